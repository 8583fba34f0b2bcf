//! What a worker has done since somebody began to count: debug builds hold against it what is said of a command elsewhere.

/// Operations of a worker, in debug builds; without debug assertions none is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operations {
    /// All of them, also those that failed.
    pub count: u64,
    /// Those that have changed something. What expires does not count.
    pub changing_count: u64,
    /// Those that began when something had been changed.
    pub after_change_count: u64,
    /// The worker's changes up to where they have been looked at.
    seen_changes: u64,
    /// The last one has changed something that is not told.
    has_changed_silently: bool,
}

impl Operations {
    /// None so far, of a worker that has made so many changes before.
    pub(crate) fn from(change_count: u64) -> Operations {
        Operations { seen_changes: change_count, ..Operations::default() }
    }

    /// One begins.
    pub(crate) fn begin(&mut self, change_count: u64) {
        self.settle(change_count);
        self.count += 1;
        self.after_change_count += u64::from(self.changing_count > 0);
    }

    /// The last one has changed something that no change counts.
    pub(crate) fn note_silent_change(&mut self) {
        self.has_changed_silently = true;
    }

    /// Those before do not count with those that follow.
    pub(crate) fn look_anew(&mut self) {
        self.count = 0;
    }

    /// Looks whether the last one has changed something.
    pub(crate) fn settle(&mut self, change_count: u64) {
        let is_silent = std::mem::take(&mut self.has_changed_silently);
        self.changing_count += u64::from(is_silent || change_count != self.seen_changes);
        self.seen_changes = change_count;
    }
}

/// The operations of a worker, to be held against what is said of a command.
pub struct Counting<'w> {
    pub(crate) operations: &'w mut Operations,
    /// The worker's changes so far.
    pub(crate) change_count: u64,
}

impl Counting<'_> {
    /// Begins to count operations; returns what has been counted before, for [`Counting::end`].
    pub fn begin(&mut self) -> Operations {
        let from = Operations::from(self.change_count);
        std::mem::replace(self.operations, from)
    }

    /// What has been done since [`Counting::begin`], which has returned `before`: that is counted on from there. Nothing
    /// without debug assertions.
    pub fn end(&mut self, before: Operations) -> Operations {
        if cfg!(debug_assertions) {
            self.operations.settle(self.change_count);
        }
        std::mem::replace(self.operations, before)
    }

    /// The caller makes nothing of what it has found so far, and looks at its keys anew: operations before do not count with those
    /// that follow.
    #[inline(always)]
    pub fn look_anew(&mut self) {
        if cfg!(debug_assertions) {
            self.operations.look_anew();
        }
    }
}
