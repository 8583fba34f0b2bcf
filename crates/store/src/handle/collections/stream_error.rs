//! Why an operation on a stream did not happen.

use crate::{NoGroup, OpError};

/// Why an operation on a stream, or on a group of one, did not happen. None of them leaves a partial change.
#[derive(thiserror::Error, Clone, Debug)]
pub enum StreamError {
    /// As on any collection: another type at the key, no memory, damage.
    #[error(transparent)]
    Op(#[from] OpError),
    #[error("an entry has a field at least")]
    NoFields,
    /// `0-0` is before all entries.
    #[error("0-0 is the ID of no entry")]
    IdIsZero,
    /// The stream has, or has had, an entry of that ID or of a greater one ([`Stream::last_id`](crate::Stream::last_id)).
    #[error("the ID of a new entry must be greater than those of all entries that the stream has had")]
    IdNotAbove,
    /// The stream has had an entry of the greatest ID that there is.
    #[error("the stream has had the last possible ID")]
    IdsExhausted,
    /// The key has no value.
    #[error("there is no stream at the key")]
    NoStream,
    #[error("the stream has no such group")]
    NoGroup,
}

impl From<NoGroup> for StreamError {
    fn from(why: NoGroup) -> StreamError {
        match why {
            NoGroup::NoStream => StreamError::NoStream,
            NoGroup::NoGroup => StreamError::NoGroup,
        }
    }
}
