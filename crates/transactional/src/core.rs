//! What transactions and cuts of a store share.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{FairMutex, Mutex};

use crate::cut::{fence_before_places, CommitWord, Phase, Place};
use crate::image::{Prefix, SessionId};
use crate::probe::Probe;
use crate::row::{RowId, RowLock, Shape};
use crate::seam::Algorithm;

pub struct Core<A> {
    pub shape: Shape,
    pub algorithm: A,
    pub word: CommitWord,
    pub probe: Probe,
    /// Who has it waits for locks; all others restart.
    pub elder: FairMutex<()>,
    locks: Box<[RowLock]>,
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    open_count: u32,
    seats: Vec<Seat>,
}

struct Seat {
    session: SessionId,
    place: Arc<Place>,
    is_open: bool,
}

impl<A: Algorithm> Core<A> {
    pub fn new(shape: Shape, probe: Probe) -> Core<A> {
        Core {
            shape,
            algorithm: A::new(shape, probe.clone()),
            word: CommitWord::new(),
            probe,
            elder: FairMutex::new(()),
            locks: shape.one_each(RowLock::new),
            seats: Mutex::default(),
        }
    }

    #[inline]
    pub fn lock(&self, row: RowId) -> &RowLock {
        &self.locks[row.index()]
    }

    pub fn bytes(&self) -> usize {
        self.algorithm.bytes() + std::mem::size_of_val(&*self.locks)
    }

    /// A place for a session, which others see from now on.
    pub fn sit_down(&self) -> (SessionId, Arc<Place>) {
        let mut seats = self.seats.lock();
        let session = SessionId(seats.open_count);
        seats.open_count += 1;
        let place = Arc::new(Place::new(self.word.phase().epoch(A::EPOCH_BEGINS)));
        seats.seats.push(Seat { session, place: place.clone(), is_open: true });
        (session, place)
    }

    /// The session ends. Where images say how far sessions are, the next one still names it.
    pub fn stand_up(&self, session: SessionId) {
        let mut seats = self.seats.lock();
        for seat in seats.seats.iter_mut().filter(|seat| seat.session == session) {
            seat.is_open = false;
        }
        if A::BY_COMMIT_ORDER {
            seats.seats.retain(|seat| seat.is_open);
        }
    }

    /// Whether no transaction under way goes by a phase before this one, which is the latest.
    pub fn are_all_past(&self, phase: Phase) -> bool {
        let seats = self.seats.lock();
        fence_before_places();
        seats.seats.iter().all(|seat| seat.place.is_past(phase))
    }

    /// How far each session was before `epoch`, the latest, and which of them have ended with nothing after that.
    pub fn points(&self, epoch: u16) -> (Prefix, Vec<SessionId>) {
        let seats = self.seats.lock();
        let mut ended = Vec::new();
        let mut points = BTreeMap::new();
        for seat in &seats.seats {
            let point = seat.place.committed_before(epoch);
            points.insert(seat.session, point);
            if !seat.is_open && seat.place.committed() == point {
                ended.push(seat.session);
            }
        }
        (Prefix::Sessions(points), ended)
    }

    /// An image has named these for the last time.
    pub fn forget(&self, ended: &[SessionId]) {
        self.seats.lock().seats.retain(|seat| !ended.contains(&seat.session));
    }
}
