//! Piggyback (section 3.2.2): two copies, of which the cut swaps the roles. In the background the copy that is written is
//! made complete, so that at the next cut it has everything.
//!
//! ```text
//!   a row, in the period that writes D[cur]; at its cut it is SAME or OTHER:
//!
//!   OTHER ── writer: BUSY, copy to D[cur] ──▶ ME           reads: OTHER, BUSY: D[not cur]
//!     ├───── writer of the whole row ───────▶ ME                  SAME, ME: D[cur]
//!     └───── pass:   BUSY, copy to D[cur] ──▶ SAME
//!   SAME ─── writer ────────────────────────▶ ME
//!   cut, after the pass has ended: cur = not cur. ME is OTHER then.
//! ```
//!
//! The flags are those of the paper, `ZERO` and `ONE` for the copy that alone has the latest content, and `BUSY`.
//! Against the publication: a flag says `SAME` after the copy (H4). The thread that copies holds the row, and the other waits (H6):
//! a pass that tests, copies and sets would undo a write in between. A writer copies before a write of a part (H2); a write
//! of the whole row copies nothing, as published. And the cut finishes a pass that has not ended (H9).

use crate::backoff::Backoff;
use crate::hooks::{mutate, mutated, point, Hooks};
use crate::image::{put, Image, ImageError};
use crate::pairs::{Pair, Pairs};
use crate::rows::{Change, Copies, CopyId, Place, RowId};
use crate::seam::Algorithm;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const SAME: Pair = 0;
const ZERO: Pair = 1;
const ONE: Pair = 2;
const BUSY: Pair = 3;

/// Which copy is written in a period, with its flags.
#[derive(Clone, Copy)]
struct Roles {
    cur: CopyId,
    not_cur: CopyId,
    me: Pair,
    other: Pair,
}

const ROLES: [Roles; 2] = [
    Roles { cur: CopyId::D0, not_cur: CopyId::D1, me: ZERO, other: ONE },
    Roles { cur: CopyId::D1, not_cur: CopyId::D0, me: ONE, other: ZERO },
];

impl Roles {
    #[inline(always)]
    fn copy(&self, copies: &impl Copies, row: RowId) {
        copies.copy(Place::of(row, self.not_cur), Place::of(row, self.cur));
    }
}

/// See the module.
pub struct Piggyback {
    flags: Pairs,
    /// Whether `D1` is written in this period. Changes at the cut.
    writes_second: AtomicBool,
    /// The pass of this period has not ended.
    is_pass_owed: AtomicBool,
    cut_row_count: AtomicU32,
    hooks: Hooks,
}

impl Piggyback {
    /// For at most `row_count` rows.
    #[must_use]
    pub fn new(row_count: u32) -> Piggyback {
        Piggyback::with_hooks(row_count, Hooks::default())
    }

    #[must_use]
    pub fn with_hooks(row_count: u32, hooks: Hooks) -> Piggyback {
        Piggyback {
            // The initial data is in `D0` alone.
            flags: Pairs::new(row_count, ZERO),
            writes_second: AtomicBool::new(false),
            is_pass_owed: AtomicBool::new(false),
            cut_row_count: AtomicU32::new(0),
            hooks,
        }
    }

    /// Those of this period, which the caller is in.
    #[inline(always)]
    fn roles(&self) -> &'static Roles {
        &ROLES[usize::from(self.writes_second.load(Ordering::Relaxed))]
    }

    /// The writer's edge from `SAME`. False if it was not.
    #[inline(always)]
    fn take_same(&self, roles: &Roles, row: RowId) -> bool {
        mutate!(self.hooks, PiggybackNeighboursNotAtomic => {
            self.flags.store(row, roles.me, || self.hooks.pass(crate::hooks::Point::FlagsRead, row));
            return true;
        });
        let is_taken = self.flags.exchange(row, SAME, roles.me);
        point!(self.hooks, FlagsRead, row);
        is_taken
    }

    /// The writer's edge from `OTHER`. False if the pass was first.
    #[inline(always)]
    fn take_other(&self, copies: &impl Copies, roles: &Roles, row: RowId, change: Change) -> bool {
        if self.hooks.replaces(change) || mutated!(self.hooks, PiggybackNoCarryOver) {
            return self.flags.exchange(row, roles.other, roles.me);
        }
        let is_mine = self.flags.exchange(row, roles.other, BUSY);
        if is_mine {
            point!(self.hooks, WriterCopies, row);
            roles.copy(copies, row);
            self.flags.replace(row, BUSY, roles.me);
        }
        is_mine
    }

    /// The pass, over a row: on return its latest content is in `D[cur]`.
    fn make_same(&self, copies: &impl Copies, roles: &Roles, row: RowId) {
        mutate!(self.hooks, PiggybackFlagBeforeCopy => {
            if self.flags.exchange(row, roles.other, SAME) {
                point!(self.hooks, BackgroundCopies, row);
                roles.copy(copies, row);
            }
            return;
        });
        mutate!(self.hooks, PiggybackTestThenCopy => {
            if self.flags.get(row) == roles.other {
                point!(self.hooks, BackgroundCopies, row);
                roles.copy(copies, row);
                self.flags.store(row, SAME, || ());
            }
            return;
        });
        let mut backoff = Backoff::default();
        loop {
            match self.flags.get(row) {
                BUSY => backoff.wait(),
                flag if flag != roles.other => return,
                _ if self.flags.exchange(row, roles.other, BUSY) => {
                    point!(self.hooks, BackgroundCopies, row);
                    roles.copy(copies, row);
                    return self.flags.replace(row, BUSY, SAME);
                }
                _ => {}
            }
        }
    }

    /// Gives the rows of the copy that is not written back. From here on they are in `D[cur]` alone, which the flag says first.
    fn let_go(&self, copies: &impl Copies, roles: &Roles, row_count: u32) {
        for row in (0..row_count).map(RowId) {
            self.flags.exchange(row, SAME, roles.me);
        }
        copies.let_go(roles.not_cur, 0..row_count);
    }
}

impl<C: Copies> Algorithm<C> for Piggyback {
    const SECOND_COPIES: &'static [CopyId] = &[CopyId::D1];
    const IS_INCREMENTAL: bool = false;
    const SEES_EACH_WRITE: bool = false;

    fn start(&self, copies: &C) {
        self.cut_row_count.store(copies.row_count(), Ordering::Relaxed);
    }

    #[inline]
    fn before_write(&self, copies: &C, row: RowId, change: Change) -> CopyId {
        let roles = self.roles();
        let mut backoff = Backoff::default();
        loop {
            match self.flags.get(row) {
                flag if flag == roles.me => break,
                SAME if self.take_same(roles, row) => break,
                flag if flag == roles.other && self.take_other(copies, roles, row, change) => break,
                BUSY => backoff.wait(),
                _ => {}
            }
        }
        roles.cur
    }

    #[inline(always)]
    fn live(&self, row: RowId) -> CopyId {
        match self.flags.get(row) {
            ZERO => CopyId::D0,
            ONE => CopyId::D1,
            SAME => self.roles().cur,
            _ => self.roles().not_cur,
        }
    }

    fn cut(&self, copies: &C) {
        let roles = self.roles();
        let (before, row_count) = (self.cut_row_count.load(Ordering::Relaxed), copies.row_count());
        let is_complete = !self.is_pass_owed.swap(true, Ordering::Relaxed)
            || mutated!(self.hooks, PiggybackSwapBeforePassEnds);
        // Rows that came after the last cut were not the pass's.
        let from = if is_complete { before.min(row_count) } else { 0 };
        (from..row_count).for_each(|row| self.make_same(copies, roles, RowId(row)));
        self.cut_row_count.store(row_count, Ordering::Relaxed);
        self.writes_second.store(roles.me == ZERO, Ordering::Relaxed);
    }

    fn access<I: Image<C>>(&self, copies: &C, image: &mut I) -> Result<(), ImageError> {
        let roles = self.roles();
        let row_count = self.cut_row_count.load(Ordering::Relaxed);
        (0..row_count).for_each(|row| self.make_same(copies, roles, RowId(row)));
        self.is_pass_owed.store(false, Ordering::Relaxed);
        for row in (0..row_count).map(RowId) {
            put(image, copies, row, Place::of(row, roles.not_cur))?;
        }
        image.finish()?;
        if C::LETS_GO {
            self.let_go(copies, roles, row_count);
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        let me = self.roles().me;
        let mut rows = (0..self.cut_row_count.load(Ordering::Relaxed)).map(RowId);
        rows.all(|row| [SAME, me].contains(&self.flags.get(row)))
    }
}
