//! Lending the connections while a command may take long: the desk has them from when a script has run for too long until the
//! command ends (SC4).
//!
//! ```text
//!   own ── lend ──▶ lent: nobody serves them ── hand_over ──▶ at the desk
//!    ▲                │ take_back                               │ take_back: at most one round
//!    └────────────────┴─────────────────────────────────────────┘
//! ```

use std::time::Duration;

use stillframe_engine::dispatch::while_busy::Called;
use stillframe_store::Patient;

use crate::event_loop::worker::EventLoop;

/// own → lent.
#[inline]
pub fn lend(of: &mut EventLoop) {
    of.lent.put(std::mem::take(&mut of.slots));
}

impl EventLoop {
    /// Takes the connections back. If they were at the desk: what was called there, to be [settled](settle).
    #[inline]
    pub(super) fn take_back(&mut self) -> Option<Called> {
        let (slots, called) = self.lent.take_back()?;
        self.slots = slots;
        called
    }

    /// Between two commands: takes part in a pending barrier. True if the connections have been at the desk meanwhile.
    #[inline]
    pub(super) fn pass_by(&mut self) -> bool {
        !Patient::is_not_needed_by(&mut self.worker) && stand_still(self)
    }

    /// Takes the connections back; whether they have been at the desk.
    pub(super) fn end_lending(&mut self) -> bool {
        let called = self.take_back();
        let was_away = called.is_some();
        called.into_iter().for_each(|called| settle(self, called));
        was_away
    }
}

#[cold]
fn stand_still(of: &mut EventLoop) -> bool {
    lend(of);
    let EventLoop { worker, local, server, .. } = of;
    Patient { worker, meanwhile: &mut || local.stand_aside(&server.busy) }.quiesce();
    of.end_lending()
}

/// The connections have been at the desk: what is known here of them is of before. All are served in the next round; of the
/// present batch nothing is left to be executed.
#[cold]
pub fn settle(of: &mut EventLoop, called: Called) {
    let Called { rejected, run } = called;
    rejected.into_iter().for_each(|id| of.stats.command(id).rejected.add(1));
    run.into_iter().for_each(|id| of.local.measured(id, Duration::ZERO, false));
    let EventLoop { slots, held, .. } = of;
    held.by_need
        .retain(|(need_offset, id)| slots.get(*id).is_some_and(|conn| conn.held_at == Some(*need_offset)));
    let all: Vec<_> = of.slots.ids().collect();
    for id in all {
        if let Some(conn) = of.slots.get(id) {
            conn.is_ready = false;
            of.make_ready(id, true);
        }
    }
}
