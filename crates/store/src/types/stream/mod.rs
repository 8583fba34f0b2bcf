//! Streams: entries with IDs that ascend. One is a run of records, or a tree of them ([`crate::entries`]): a head, and blocks of entries.

mod change;
mod check;
mod claim;
mod distance;
mod group_at;
mod groups;
mod kind;
mod load;
mod node;
mod pending;
mod place;
mod read;
mod records;
mod show;
mod stream_at;
mod trim;

pub use change::{AddRule, Added, Marks, NewId};
pub use claim::{AutoClaimed, ClaimRule};
pub use group_at::GroupAt;
pub use groups::{ConsumerInfo, GroupInfo, GroupMade, GroupStart, NoGroup};
pub use pending::{GroupRead, GroupReadDone};
pub use place::StreamInfo;
pub use read::EntryRange;
pub use show::{PendingInfo, PendingRange, PendingSummary};
pub use stream_at::StreamAt;
pub use trim::{Trim, TrimTo};

pub(in crate::types) use kind::Streams;
