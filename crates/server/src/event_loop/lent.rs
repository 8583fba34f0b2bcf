//! The connections of a worker while they are lent (see `lend.rs`).

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use stillframe_engine::dispatch::while_busy::Called;

use crate::desk::{Desk, Tied};
use crate::net::slots::Slots;

/// The connections of a worker while its loop does not have them.
pub struct Lent {
    slots: Cell<Option<Slots>>,
    desk: Arc<Desk>,
    worker: usize,
    epoll: Arc<OwnedFd>,
}

impl Lent {
    pub fn new(desk: Arc<Desk>, worker: usize, epoll: Arc<OwnedFd>) -> Lent {
        Lent { slots: Cell::new(None), desk, worker, epoll }
    }

    /// lent → at the desk; nothing where they are there, or the loop's own.
    pub fn hand_over(&self) {
        if let Some(slots) = self.slots.take() {
            let epoll = self.epoll.clone();
            self.desk.give(Tied { worker: self.worker, slots, epoll, called: None });
        }
    }

    /// own → lent.
    #[inline]
    pub fn put(&self, slots: Slots) {
        self.slots.set(Some(slots));
    }

    /// lent, or at the desk → own, and what was called there in the second case. `None`: they were not lent.
    #[inline]
    pub fn take_back(&self) -> Option<(Slots, Option<Called>)> {
        match self.slots.take() {
            Some(slots) => Some((slots, None)),
            None => self.desk.take_back(self.worker).map(|tied| (tied.slots, tied.called)),
        }
    }
}
