//! The store: keys and values in the pages of `stillframe-pagepool`; an embeddable library.
//!
//! It is not a server: no sockets, no protocol, no command names.
//!
//! When what is written is durable says [`Store`](Store#durability). [`Store::tree`] has ordered keys, [`Store::hash`] and its
//! like have collections, [`Store::worker`] has all there is.
//!
//! Rooms from the ground up; each uses only those above it in this list:
//!
//! ```text
//!   db, key, page, value  databases and keys, bytes of a page, strings as they are read
//!   library               what a function library is
//!   error, stop           why an operation did not happen, why a step stopped
//!   here                  what a thread does with a store
//!   shares, log_options, options   how a bound of memory is divided, how a store and its log are opened
//!   leaks, pages          what is known of the pages as a whole
//!   blobs                 slabs, objects, what is to be freed
//!   entry, effect, policy what callers give and get, what changes, which keys are evicted
//!   step, listener        which changes belong together, and listeners to them
//!   tree                  page trees; below it the orders
//!   named                 which named trees there are, and who is at work on them
//!   keyspace              databases, catalog, expiry, locks, damage, sweep
//!   rdb                   dumps, the payloads of DUMP and RESTORE, elements of collections
//!   source                pages that are read ahead
//!   accesses, damage      what is known of accesses to keys, and of what cannot be read
//!   stream                changes as Redis commands
//!   log                   those in the journal, and what a checkpoint does with it
//!   walk, store           views, the store
//!   operations            what a worker has done, in debug builds
//!   worker                access to the store for a thread that has batches
//!   types                 what is particular to each type of values
//!   handle                access to keys, collections, named trees and function libraries that takes care of itself
//!   digest                one number of all data, as Redis reckons it
//!   log_door              what callers ask of the log
//!   replay, opening       from those commands to changes, a start
//!   offline               a page file without a server
//! ```
#![forbid(unsafe_code)]
// No client, file or configuration may bring the process down.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]

mod accesses;
mod blobs;
mod damage;
mod db;
pub mod digest;
mod effect;
mod entries;
mod entry;
mod error;
mod handle;
mod here;
mod key;
mod keyspace;
mod leaks;
mod library;
mod listener;
pub mod log;
mod log_door;
mod log_options;
mod named;
pub mod offline;
mod opening;
mod operations;
mod options;
mod page;
mod pages;
mod policy;
pub mod rdb;
mod reopen;
pub mod replay;
mod shares;
mod source;
mod step;
mod stop;
mod store;
pub mod stream;
mod tree;
mod types;
mod value;
mod view;
mod walk;
mod worker;

/// Atomics: those of the standard library, or of the model checker in its tests.
mod sync {
    pub use parking_lot::Mutex;
    pub use std::sync::{atomic, OnceLock};
}

pub use accesses::Accesses;
pub use blobs::{Bytes, Duplicate, Given, Incoming, Reach, Sending, SlabNeeds, SENDING_MIN_BYTES};
pub use damage::{Damage, ScrubCursor};
pub use db::DbId;
pub use effect::{Before, Change, Effect, End};
pub use entries::StreamId;
pub use entry::{DbStats, Deadline, EntryInfo, NewValue};
pub use error::{Fault, Faults, OpError, OpenError, Refusal, SaveError, TreeError};
pub use handle::{
    libraries_version, Appended, Hash, Libraries, List, OwnedEntries, Record, Set, SortedSet, Stream,
    StreamEntry, StreamError, StreamGroup, Transaction, Tree, TreeRange,
};
pub use key::{Key, UnixMillis};
pub use keyspace::{BehindLocks, CheckReport, CollectionLimits, Locks, Prefetch, SkipStats};
pub use library::{library_name, LibraryError, LIBRARY_MAX_BYTES, LIBRARY_NAME_MAX_BYTES};
pub use listener::{Ear, Listener};
pub use log_door::LogDoor;
pub use opening::{open_on_with_log, open_unread};
pub use operations::{Counting, Operations};
pub use options::Options;
pub use policy::{Access, Candidates, Evicted, EvictionPolicy, Preference, Tracking};
pub use rdb::Element;
pub use reopen::{ReopenError, Reopened};
pub use shares::MemoryShares;
pub use step::{Call, Cause, Position, Step, WorkerId};
pub use stillframe_pagepool::device::{DirectIo, IoEngine, IoOptions, IoReport};
pub use stillframe_pagepool::heap;
pub use stillframe_pagepool::metrics::Summary;
pub use stillframe_pagepool::{
    is_looking, sched, Carrying, Conditions, Late, Layout, Looking, PoolBackend, Reason, ScrubReport,
    ScrubStats, SnapshotKind, Turn, Unserved, SCRUB_STEP_PAGES,
};
pub use store::{CheckpointReport, SaveProgress, Store};
pub use tree::sorted_set::{LexBound, ScoreBound};
pub use types::{
    AddRule, Added, AutoClaimed, ClaimRule, CollectionAt, ConsumerInfo, Draw, ElementAhead, ElementCopies,
    EntryRange, FieldMode, FieldRef, GivenField, GroupAt, GroupInfo, GroupMade, GroupRead, GroupReadDone,
    GroupStart, HashAt, Insertion, ListAt, Marks, NegativeZero, NewElement, NewId, NoGroup, OwnedRange,
    PendingInfo, PendingRange, PendingSummary, RangeLimit, Rank, ScoreChanges, ScoreRule, ScoredRange, SetAt,
    Setting, SortedSetAt, StreamAt, StreamInfo, StringAt, TreesAhead, Trim, TrimTo, Upkeep,
};
pub use value::{Encoding, StrRef, ValueType, MAX_STRING_BYTES};
pub use view::View;
pub use walk::{CollectionView, Lost, Value, ViewEntry};
pub use worker::{Alone, Database, OwnSteps, Patient, Worker};
