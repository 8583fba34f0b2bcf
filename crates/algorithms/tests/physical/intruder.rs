//! Holds a thread up at a point of the algorithm while something else happens that may come in between.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillframe_algorithms::hooks::{Hooks, Mutation, Point};
use stillframe_algorithms::RowId;

use crate::world::Deed;

/// The longest that a thread is held up. What is to come in between does within it, unless the algorithm keeps it out.
const HOLD: Duration = Duration::from_millis(30);

/// Holds of one walk, at each point.
const HOLDS_MAX: u64 = 4;

type Request = (Deed, SyncSender<()>);

pub struct Intruder {
    pub mutation: Option<Mutation>,
    /// An access phase is under way.
    is_armed: AtomicBool,
    hold_counts: [AtomicU64; 5],
    rng: Mutex<Rng>,
    requests: Mutex<Option<SyncSender<Request>>>,
}

impl Default for Intruder {
    fn default() -> Self {
        Intruder::new(None)
    }
}

impl Intruder {
    pub fn new(mutation: Option<Mutation>) -> Intruder {
        Intruder {
            mutation,
            is_armed: AtomicBool::new(false),
            hold_counts: Default::default(),
            rng: Mutex::new(Rng::with_seed(1)),
            requests: Mutex::new(None),
        }
    }

    pub fn hooks(self: &Arc<Self>) -> Hooks {
        let intruder = self.clone();
        Hooks { mutation: self.mutation, pause: Some(Arc::new(move |point, row| intruder.pass(point, row))) }
    }

    pub fn arm(&self, is_armed: bool) {
        self.is_armed.store(is_armed, Ordering::Release);
    }

    /// The intruder's own thread: does what threads that are held up ask for.
    pub fn work(&self, seed: u64, mut intrude: impl FnMut(Deed), done: &AtomicBool) {
        let (requests, received): (_, Receiver<Request>) = sync_channel(1);
        *self.rng.lock().unwrap_or_else(PoisonError::into_inner) = Rng::with_seed(seed);
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner) = Some(requests);
        while !done.load(Ordering::Relaxed) {
            if let Ok((deed, reply)) = received.recv_timeout(Duration::from_millis(1)) {
                intrude(deed);
                // Who asked may have given up.
                let _ = reply.try_send(());
            }
        }
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// One in eight is held up, until there have been enough.
    fn is_chosen(&self, point: Point) -> bool {
        let is_chosen = self.rng.lock().unwrap_or_else(PoisonError::into_inner).u8(..8) == 0;
        is_chosen && self.hold_counts[point as usize].fetch_add(1, Ordering::Relaxed) < HOLDS_MAX
    }

    fn pass(&self, point: Point, row: RowId) {
        if !self.is_armed.load(Ordering::Acquire) || !self.is_chosen(point) {
            return;
        }
        match point {
            Point::WriterCopies => self.let_phase_end(),
            Point::FlagsRead => self.ask(Deed::WriteNeighbour(row)),
            Point::BackgroundCopies | Point::BackgroundCopied => self.ask(Deed::ReadAndWrite(row)),
            Point::SweepEnds => {}
        }
    }

    /// Lets the access phase go on without this thread.
    fn let_phase_end(&self) {
        let since = Instant::now();
        while self.is_armed.load(Ordering::Acquire) && since.elapsed() < HOLD {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn ask(&self, deed: Deed) {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (reply, replied) = sync_channel(1);
        if requests.is_some_and(|requests| requests.try_send((deed, reply)).is_ok()) {
            let _ = replied.recv_timeout(HOLD);
        }
    }
}
