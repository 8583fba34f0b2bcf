//! Where tests step in: published mistakes by name, and points at which a thread can be held up. Nothing of it is there
//! without the feature `mutations`.

use crate::rows::Change;

#[cfg(feature = "mutations")]
pub use with_mutations::{Hooks, Mutation, Point};

/// Nothing, in a build that is not for tests of mutations.
#[cfg(not(feature = "mutations"))]
#[derive(Clone, Default, Debug)]
pub struct Hooks(());

/// Whether the algorithm is to make this mistake.
macro_rules! mutated {
    ($hooks:expr, $mutation:ident) => {{
        #[cfg(feature = "mutations")]
        let is_mutated = $hooks.is(crate::hooks::Mutation::$mutation);
        #[cfg(not(feature = "mutations"))]
        let is_mutated = {
            let _ = &$hooks;
            false
        };
        is_mutated
    }};
}

/// Does something else, and returns from there, if the algorithm is to make this mistake.
macro_rules! mutate {
    ($hooks:expr, $mutation:ident => $body:block) => {
        #[cfg(feature = "mutations")]
        if $hooks.is(crate::hooks::Mutation::$mutation) $body
        #[cfg(not(feature = "mutations"))]
        let _ = &$hooks;
    };
}

/// A point at which the thread may be held up.
macro_rules! point {
    ($hooks:expr, $point:ident, $row:expr) => {
        #[cfg(feature = "mutations")]
        $hooks.pass(crate::hooks::Point::$point, $row);
        #[cfg(not(feature = "mutations"))]
        let _ = (&$hooks, $row);
    };
}

pub(crate) use {mutate, mutated, point};

impl Hooks {
    /// Whether a write needs nothing of what the row was.
    #[inline(always)]
    pub(crate) fn replaces(&self, change: Change) -> bool {
        let begins_with_row = matches!(change, Change::Part { start: 0, .. });
        change == Change::Whole || (begins_with_row && mutated!(self, PartTakenForWhole))
    }
}

#[cfg(feature = "mutations")]
mod with_mutations {
    use std::fmt;
    use std::sync::Arc;

    use crate::rows::RowId;

    /// A published mistake, or one that is easily made. An algorithm knows its own.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Mutation {
        /// Zigzag, Hourglass, Piggyback: a part that begins where its row does is taken for all of it.
        PartTakenForWhole,
        /// Copy-on-update says that a row is saved before it has copied it.
        CouSavedBeforeCopy,
        /// Copy-on-update: the access phase looks at a row's flag and then takes the row, without holding it.
        CouTestThenEmit,
        /// Zigzag as published: a write replaces the row, so nothing is carried over.
        ZigzagNoCarryOver,
        /// Zigzag: the copy that reads begin with has no initial content.
        ZigzagOneCopyNotInitialised,
        /// Zigzag: the cut leaves the write bits as they are.
        ZigzagBitsNotFlipped,
        /// Zigzag: a flag is changed by a load and a store of the word that neighbours share.
        ZigzagNeighboursNotAtomic,
        /// Ping-Pong as published: the update copy gets what was written and nothing else.
        PingPongNoCarryOver,
        /// Ping-Pong: writes after the first in a period are not written again into the update copy.
        PingPongFirstWriteOnly,
        /// Ping-Pong: flags are cleared before the image has finished.
        PingPongClearedBeforeFinish,
        /// Hourglass as published: nothing is carried over.
        HourglassNoCarryOver,
        /// Hourglass: `br` is not kept up to date.
        HourglassLatestNotKept,
        /// Hourglass: the first image has only what was written.
        HourglassNoBaseImage,
        /// Hourglass: flags are cleared before the image has finished.
        HourglassClearedBeforeFinish,
        /// Hourglass: rows of an image that failed are left where they are.
        HourglassFailedImageForgotten,
        /// Piggyback as published: nothing is carried over by a writer.
        PiggybackNoCarryOver,
        /// Piggyback as published: the pass clears the flag and copies then.
        PiggybackFlagBeforeCopy,
        /// Piggyback as published: the pass tests the flag, copies, and sets it, while a writer does what it does.
        PiggybackTestThenCopy,
        /// Piggyback: a flag of two bits is changed by a load and a store of the word that neighbours share.
        PiggybackNeighboursNotAtomic,
        /// Piggyback: the cut swaps though the pass has not ended.
        PiggybackSwapBeforePassEnds,
        /// Epoch: the sweep believes its copy.
        EpochNoValidation,
        /// Epoch: the writer captures a row without claiming it.
        EpochCaptureUnclaimed,
        /// Epoch: without a free frame the writer goes on and nobody has the row.
        EpochNoHelp,
        /// Epoch: the access phase ends when the sweep has ended, whoever is still capturing.
        EpochEndsBeforeCaptured,
        /// Epoch with parts: a part is kept, but its row does not lead to it.
        PartsNotLinked,
        /// Epoch with parts: the sweep believes its copy of a row of which parts have been kept.
        PartsNotLaidOver,
        /// Epoch with parts: what has been kept for one cut counts for the next.
        PartsOfLastCut,
        /// Epoch with parts: frames are used again before their row has been put.
        PartsReleasedUnclaimed,
        /// Epoch with parts: a writer that helps gives the row as it is, not as it was.
        HelpWithoutParts,
        /// Rows are merged into an image without a journal.
        MergeWithoutJournal,
        /// A journal of which it is not known that it is durable is merged.
        MergeOfUnsyncedJournal,
    }

    /// Where a thread may be held up: between two steps that another thread may come between.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Point {
        /// A writer is about to copy a row, or has just begun.
        WriterCopies,
        /// A writer has read a word of flags that it is about to change.
        FlagsRead,
        /// The background is about to copy or to put a row.
        BackgroundCopies,
        /// The background has the bytes of a row, but has not told so yet.
        BackgroundCopied,
        /// The sweep has gone over all rows.
        SweepEnds,
    }

    type Pause = dyn Fn(Point, RowId) + Send + Sync;

    /// The mistake to make, and who is told of points.
    #[derive(Clone, Default)]
    pub struct Hooks {
        pub mutation: Option<Mutation>,
        pub pause: Option<Arc<Pause>>,
    }

    impl Hooks {
        pub fn is(&self, mutation: Mutation) -> bool {
            self.mutation == Some(mutation)
        }

        pub fn pass(&self, point: Point, row: RowId) {
            if let Some(pause) = &self.pause {
                pause(point, row);
            }
        }
    }

    impl fmt::Debug for Hooks {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Hooks").field("mutation", &self.mutation).finish_non_exhaustive()
        }
    }
}
