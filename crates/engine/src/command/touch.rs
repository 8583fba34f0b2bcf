//! How a command touches the data: what has to hold before it may begin, and what may be asked of it in return.

use crate::protocol::args::Args;

/// How a command touches the data: what dispatch prepares for it (invariant C3), and what debug builds hold each call against.
///
/// Keys that a command changes are locked. A single key that is only read is not: all that the reply says of it has to come from one
/// operation of the store. An operation may miss pages. Then the command begins anew, which must not happen after its first change.
#[derive(Clone, Copy, Debug)]
pub enum Touch {
    /// No data: it is called at once.
    Nothing,
    /// What is queued, each command by its own row: `EXEC` prepares for them itself.
    Queued,
    /// Its keys, which it reads, or changes, in one operation of the store. Before a change there may be others that look. The
    /// command may begin anew.
    OneOperation,
    /// Its keys, each in one operation. With one key it is as [`Touch::OneOperation`], with several as [`Touch::Steps`].
    EachKey,
    /// Its keys, in several operations.
    Steps,
    /// The same, and it goes over large values part by part itself: their pages need not be there.
    Parts,
    /// Keys that it does not name. Alone it asks for their pages as it meets them; in a transaction all must be there.
    Walk,
    /// What its commands touch, which it carries out one after the other. It looks for their pages itself, and begins anew until
    /// its first change.
    Script,
    /// Counters of databases.
    Counters,
    /// Databases, which it empties.
    Flush,
    /// Databases, which it exchanges: what else a transaction names is then on other pages.
    Swap,
    /// Any page, with all others at a standstill.
    Alone,
    /// As the arguments say.
    Of(fn(&Args<'_>) -> Touch),
}

impl Touch {
    /// Whether a command that changes something, and has so many keys, does so in several operations: it must not begin anew once
    /// it has begun.
    pub fn changes_in_steps(self, key_count: usize) -> bool {
        match self {
            Touch::Steps | Touch::Parts | Touch::Walk => true,
            Touch::EachKey => key_count > 1,
            _ => false,
        }
    }

    /// Whether others could come between two reads of a command that only reads, and has so many keys: these are locked.
    pub fn reads_in_steps(self, key_count: usize) -> bool {
        key_count > 1 || matches!(self, Touch::Steps | Touch::Parts)
    }

    /// Whether it touches no key but those that it names.
    pub fn is_of_keys(self) -> bool {
        matches!(self, Touch::OneOperation | Touch::EachKey | Touch::Steps | Touch::Parts)
    }
}
