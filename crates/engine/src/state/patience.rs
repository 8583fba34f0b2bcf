//! How long a command that begins anew, because pages are missing, has been waiting for all of them to be there together.
//!
//! ```text
//!   begins anew, again and again ── many misses ──▶ waits for its turn ──▶ keeps what has come for it
//!                                                                              │          │ more than it may keep
//!                                                                     it has all of it    ▼
//!                                                                        together     as before, until it has waited for
//!                                                                                     as much as memory holds, three times
//! ```
//! Others may evict its pages while it waits for the rest. So it is refused only when it has had its turn.

use stillframe_store::{Fault, Store, Turn};

/// A command that has waited for so many times as many pages as may be in memory needs more of them at a time than that.
const MEMORIES_MISSED_MAX: u64 = 3;
/// So often a command begins anew before it asks for its turn, unless it has missed half as many pages as memory holds before.
const ROUNDS_MAX: u32 = 100;
/// A command that has waited for such a part of memory leaves its reply to a thread, which reads past memory.
const MISSED_PART: u64 = 4;

#[derive(Default)]
pub struct Patience {
    /// Pages that were waited for, and how often, since the command last got on.
    missed_page_count: u64,
    round_count: u32,
    turn: Option<Turn>,
    has_had_turn: bool,
    /// What the command's random choices begin with, so that they are the same each time.
    seed: Option<u64>,
}

impl Patience {
    pub fn seed(&mut self) -> u64 {
        *self.seed.get_or_insert_with(|| fastrand::u64(..))
    }

    /// The command goes on where it was.
    pub fn note_progress(&mut self) {
        let seed = self.seed;
        *self = Patience { seed, ..Patience::default() };
    }

    /// What was there has gone again before the command could begin: that counts as so many rounds.
    pub fn note_lost(&mut self, round_count: u32) {
        self.round_count += round_count;
    }

    /// What the command waits for now that it has met `fault`; `None`: its pages will never be there together.
    pub fn wait_for(&mut self, store: &Store, fault: Fault) -> Option<Fault> {
        let Some(most) = store.memory_page_count() else { return Some(fault) };
        self.missed_page_count += fault.page_count();
        self.round_count += 1;
        if self.turn.is_none() && !self.has_had_turn && self.is_in_vain(most) {
            let turn = store.ask_turn();
            let has_come = turn.has_come();
            let until_then = Fault::turn(&turn);
            (self.turn, self.missed_page_count) = (Some(turn), 0);
            if !has_come {
                return Some(until_then);
            }
        }
        if let Some(turn) = &self.turn {
            if !fault.hold(turn) {
                (self.turn, self.has_had_turn) = (None, true);
            }
        }
        (self.missed_page_count <= most.saturating_mul(MEMORIES_MISSED_MAX)).then_some(fault)
    }

    /// Whether the command has waited for so many pages that it may never have all of them together.
    pub fn misses_much(&self, most: u64) -> bool {
        self.turn.is_some() || self.has_had_turn || self.missed_page_count > most / MISSED_PART
    }

    fn is_in_vain(&self, most: u64) -> bool {
        self.missed_page_count > most / 2 || self.round_count > ROUNDS_MAX
    }
}
