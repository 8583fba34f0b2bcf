//! Named mistakes, and points at which a test can hold a thread up. Without the feature `mutations` both are nothing.

/// A published or likely mistake. The tests must find each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// vHG, vPB as in section 4.2.2: a transaction writes to the side of its beginning, whatever the cut has done since.
    AsPublished,
    /// vHG, vPB: what a transaction wrote before the cut that has overtaken it is not undone there.
    OvertakenNotUndone,
    /// vHG, vPB: the image does not wait for transactions that began before the cut.
    NoWaitForOvertaken,
    /// vHG: an image that failed takes the flags of its rows with it.
    FailedImageForgotten,
    /// vHG, vPB: a part of a row is taken for all of it.
    PartTakenForWhole,
    /// All: what a transaction overwrites is kept from where it writes, though nobody has copied the row there.
    KeptWhereWritten,
    /// vPB: the pass says that both copies are the same before they are.
    SameBeforeCopy,
    /// CALC: who began in `prepare` does not look in which phase it has committed, and lets its copies go.
    StraddlerLetsGo,
    /// CALC: the same, and keeps them.
    StraddlerKeeps,
    /// CALC: the cut does not wait for transactions that began at rest.
    NoWaitForRest,
    /// CALC: whoever made a stable copy after the cut lets it go when it commits.
    StableLetGoEarly,
    /// CALC: an abort in `prepare` undoes the row and forgets its stable copy.
    UndoForgetsCopy,
    /// CALC, CPR: an abort after the cut lets the stable copy go, though the sweep may be at the row.
    UndoLetsGoInSweep,
    /// CALC, CPR: the sweep does not look whether a writer came while it copied.
    NoValidation,
    /// CPR: the image does not wait for sessions that are still before their points.
    NoWaitForSessions,
    /// CPR: sessions cross their points while others do not look at versions yet.
    NoWaitForPrepare,
    /// CPR: a transaction before its point takes newer versions.
    MeetsNewer,
    /// CPR: a read after the point leaves no mark.
    ReadsUnmarked,
    /// All: an abort does not restore the row.
    NoUndo,
    /// All: locks are released before the commit has its place in the order.
    LocksReleasedEarly,
}

/// Where a test can hold a thread up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// The sweep has found a row EMPTY and not copied it yet.
    SweepFound,
    /// It has copied it and not validated the copy yet.
    SweepCopied,
    /// The pass has made a row BUSY and not copied it yet.
    PassClaimed,
    /// A transaction has its place in the order and still has its locks.
    Ordered,
}

/// What a test does at a point.
#[cfg(feature = "mutations")]
pub type AtPoint = std::sync::Arc<dyn Fn(Point) + Send + Sync>;

/// The mistake that a store makes, and what happens at its points.
#[derive(Clone, Default)]
pub struct Probe {
    #[cfg(feature = "mutations")]
    pub mutation: Option<Mutation>,
    #[cfg(feature = "mutations")]
    pub at: Option<AtPoint>,
}

impl Probe {
    #[inline(always)]
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        #[cfg(feature = "mutations")]
        return self.mutation == Some(mutation);
        #[cfg(not(feature = "mutations"))]
        {
            let _ = mutation;
            false
        }
    }

    #[inline(always)]
    pub(crate) fn reach(&self, point: Point) {
        #[cfg(feature = "mutations")]
        if let Some(at) = &self.at {
            at(point);
        }
        let _ = point;
    }
}
