//! What is particular to each type of values.

mod ahead;
mod copy;
mod elements;
#[cfg(test)]
mod garbage_tests;
mod hash;
mod kind;
mod kinds;
mod list;
mod packed;
mod set;
mod size;
mod sorted_set;
mod stream;
mod string;
#[cfg(test)]
mod string_tests;
mod upkeep;
mod view;
mod viewed;

pub use ahead::{ElementAhead, TreesAhead};
pub use copy::ElementCopies;
pub use elements::CollectionAt;
pub use hash::{Draw, FieldMode, FieldRef, GivenField, HashAt};
pub use kind::NewElement;
pub use list::{Insertion, ListAt, Setting};
pub use set::SetAt;
pub use sorted_set::{
    NegativeZero, OwnedRange, RangeLimit, Rank, ScoreChanges, ScoreRule, ScoredRange, SortedSetAt,
};
pub use stream::{
    AddRule, Added, AutoClaimed, ClaimRule, ConsumerInfo, EntryRange, GroupAt, GroupInfo, GroupMade,
    GroupRead, GroupReadDone, GroupStart, Marks, NewId, NoGroup, PendingInfo, PendingRange, PendingSummary,
    StreamAt, StreamInfo, Trim, TrimTo,
};
pub use string::StringAt;
pub use upkeep::Upkeep;
