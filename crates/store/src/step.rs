//! Steps: what becomes visible, durable and replicated together.

use crate::UnixMillis;

/// A worker, by its number: no two of a store have the same one as long as it is open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct WorkerId(pub u32);

/// Why a step is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Cause {
    /// An operation, or several that the worker's caller wants to be one.
    #[default]
    Call,
    /// The time of a key, or of an element, was over.
    Expiry,
    /// Memory was short.
    Eviction,
    /// Data is read from elsewhere: the store's content begins anew.
    Load,
}

/// What the worker's caller is at, in its own words. A step may be made of several calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Call {
    /// Of the worker's calls that have been named.
    pub number: u64,
    /// What the caller calls its changes; `None`: what they are usually called.
    pub name: Option<&'static str>,
}

/// A command, a transaction, an expiry, an eviction: its effects are seen together, or none of them is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    pub worker: WorkerId,
    pub cause: Cause,
    /// The worker's clock when the step began.
    pub now: UnixMillis,
    /// The present one.
    pub call: Call,
}

/// The place of a step among all those that a listener has followed since the store was opened, from 1 on. Steps that touch the same key are
/// in the order of their changes. A cut stands between two steps: those before it are in it, and no others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position(pub u64);
