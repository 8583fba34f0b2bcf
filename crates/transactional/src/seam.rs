//! The seam: what a snapshot algorithm is asked by transactions, and by the thread that takes a cut.

use crate::cut::{CommitWord, Phase, Stage};
use crate::probe::Probe;
use crate::row::{Change, RowId, Shape};
use crate::sync::atomic::AtomicU64;
use crate::writes::Writes;

/// A step of a cut, in the order in which they are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A phase begins: transactions that begin from now on go by it.
    Enter(Stage),
    /// The same, and this instant is the cut.
    Cut(Stage),
    /// Transactions that go by an older phase are waited for; others begin and end.
    Drain,
    /// The image gets its rows.
    Access,
    /// The phase between cuts begins.
    Rest,
}

/// Why a transaction has to begin anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestartCause {
    /// Another has locked the row.
    Locked,
    /// It belongs before the cut, and the row was changed or read by one that belongs after it.
    MetNewer,
}

/// An algorithm keeps the rows. Calls about a row come from who has its lock: exclusively for those that write. What is said of
/// a cut comes from the one thread that takes it.
pub trait Algorithm: Send + Sync + Sized {
    /// An image has all transactions up to a commit. Otherwise it has those of each session up to a point of its own, and
    /// commits are not counted.
    const BY_COMMIT_ORDER: bool;
    /// An image has all rows. Otherwise it has those that have changed since the one before.
    const IS_FULL: bool;
    /// A cut's steps, from REST to REST.
    const STEPS: &'static [Step];
    /// With this stage a new epoch begins.
    const EPOCH_BEGINS: Stage;
    /// What is remembered of a row that a transaction has written.
    type Mark: Copy;

    /// All rows zero.
    fn new(shape: Shape, probe: Probe) -> Self;

    /// Whether a drain in this stage waits. It does, but for a mistake that a test is to find.
    fn drains(&self, _stage: Stage) -> bool {
        true
    }

    /// The latest content of a row.
    fn live(&self, row: RowId) -> &[AtomicU64];

    /// Before each read of a row that the transaction has not locked before.
    ///
    /// # Errors
    /// The transaction must begin anew.
    #[inline(always)]
    fn before_read(&self, _began: Phase, _row: RowId) -> Result<(), RestartCause> {
        Ok(())
    }

    /// Before a transaction's first write of a row. Afterwards `live` is where it writes; what the row was is there only if a
    /// part of it is written. Where `live` was before, the row stays as it was until that write.
    ///
    /// # Errors
    /// The transaction must begin anew.
    fn before_write(
        &self,
        began: Phase,
        word: &CommitWord,
        row: RowId,
        change: Change,
    ) -> Result<Self::Mark, RestartCause>;

    /// A transaction that began in one phase has committed in another, or the same; it still has its locks.
    fn committed(&self, began: Phase, ended: Phase, writes: &Writes<Self::Mark>);

    /// A row that an aborted transaction had written is as it was before, and still locked.
    fn undone(&self, began: Phase, row: RowId, mark: Self::Mark);

    /// The cut's old transactions have ended; before the image is told of anything.
    fn gather(&self, _cut: u16) {}

    /// Hands on each row of the image once, in ascending order. How many were second copies is returned.
    ///
    /// # Errors
    /// The first of `emit`.
    fn sweep<E>(&self, cut: u16, emit: impl FnMut(RowId, &[u64]) -> Result<(), E>) -> Result<u32, E>;

    /// After the image: it has all rows and is kept, or it failed somewhere, perhaps before its first row. Everything
    /// becomes ready for the next cut.
    fn settle(&self, cut: u16, is_kept: bool);

    /// A row with a flag or a second copy left over, when `cut` was the last cut and is over. Transactions may be
    /// under way.
    fn first_unclean(&self, cut: u16) -> Option<RowId>;

    /// Memory of rows, copies and flags together.
    fn bytes(&self) -> usize;
}
