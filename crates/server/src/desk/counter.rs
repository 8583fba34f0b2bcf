//! How connections go from a worker to the desk and back: always whole, always one owner (SC4).

use crate::sync::{Condvar, Mutex};

/// What a worker lends, of each worker by its number.
///
/// ```text
///             give                 the desk takes it             the worker asks             end of the desk's round
///   AtWorker ─────▶ Given ────────────────────────────▶ AtDesk ─────────────────▶ Asked ────────────────────────────▶ Returned
///      ▲              │ the worker asks: it has it at once                                                                │
///      └──────────────┴───────────────────────────────────────────────────────────────────────────────────────────────────┘
///                                                                                             the worker takes it
///
///   desk: (no thread) ── first give: its giver starts it ──▶ ATTENDED ── nothing is given or lent: leave ──▶ (no thread)
/// ```
pub struct Counter<T> {
    inside: Mutex<Inside<T>>,
    returned: Condvar,
}

enum Place<T> {
    AtWorker,
    Given(T),
    AtDesk,
    Asked,
    Returned(T),
}

struct Inside<T> {
    places: Vec<Place<T>>,
    is_attended: bool,
}

/// What a worker that has given something has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// Wake the desk.
    Wake,
    /// Start its thread.
    Start,
}

/// What a worker that asks for its own gets.
pub enum Taken<T> {
    There(T),
    /// The desk is to be woken, and then waited for.
    Asked,
    /// It was never given.
    Nothing,
}

impl<T> Counter<T> {
    pub fn new(worker_count: usize) -> Counter<T> {
        let places = (0..worker_count).map(|_| Place::AtWorker).collect();
        Counter { inside: Mutex::new(Inside { places, is_attended: false }), returned: Condvar::new() }
    }

    /// AtWorker → Given.
    pub fn give(&self, worker: usize, what: T) -> Given {
        let mut inside = self.inside.lock();
        inside.places[worker] = Place::Given(what);
        match std::mem::replace(&mut inside.is_attended, true) {
            true => Given::Wake,
            false => Given::Start,
        }
    }

    /// The thread that was to be started cannot be: nobody attends. What was given stays there until it is asked for.
    pub fn close(&self) {
        self.inside.lock().is_attended = false;
    }

    /// Given, Returned → AtWorker; AtDesk → Asked.
    pub fn ask(&self, worker: usize) -> Taken<T> {
        let place = &mut self.inside.lock().places[worker];
        match std::mem::replace(place, Place::AtWorker) {
            Place::Given(what) | Place::Returned(what) => Taken::There(what),
            Place::AtDesk | Place::Asked => {
                *place = Place::Asked;
                Taken::Asked
            }
            Place::AtWorker => Taken::Nothing,
        }
    }

    /// Asked → Returned → AtWorker.
    pub fn await_return(&self, worker: usize) -> T {
        let mut inside = self.inside.lock();
        loop {
            match std::mem::replace(&mut inside.places[worker], Place::AtWorker) {
                Place::Returned(what) => return what,
                other => inside.places[worker] = other,
            }
            self.returned.wait(&mut inside);
        }
    }

    /// Given → AtDesk, of all.
    pub fn take_given(&self) -> Vec<T> {
        let mut inside = self.inside.lock();
        let given = inside.places.iter_mut().filter(|place| matches!(place, Place::Given(_)));
        let taken = given.map(|place| std::mem::replace(place, Place::AtDesk));
        let what = |place| match place {
            Place::Given(what) => Some(what),
            _ => None,
        };
        taken.filter_map(what).collect()
    }

    /// Whether the worker waits for what is at the desk.
    pub fn is_asked(&self, worker: usize) -> bool {
        matches!(self.inside.lock().places[worker], Place::Asked)
    }

    /// AtDesk, Asked → Returned.
    pub fn give_back(&self, worker: usize, what: T) {
        self.inside.lock().places[worker] = Place::Returned(what);
        self.returned.notify_all();
    }

    /// The desk's thread has nothing. Whether it may end: nothing has been given meanwhile.
    pub fn leave(&self) -> bool {
        let mut inside = self.inside.lock();
        inside.is_attended = inside.places.iter().any(|place| matches!(place, Place::Given(_)));
        !inside.is_attended
    }
}
