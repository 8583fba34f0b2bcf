//! Walks through a tree in order, both ways.
//!
//! A walk copies a leaf at a time and holds nothing between two of its steps. So a key that is there throughout is given
//! exactly once, in its order; what others put or remove meanwhile is given or not.

use std::ops::{Bound, Range, RangeBounds};

use stillframe_pagepool::PageId;

use super::overlay::Overlay;
use super::tree::Tree;
use super::values::{begin_parts, read_value, with_missing};
use crate::blobs::Sending;
use crate::error::TreeError;
use crate::keyspace::{resolve, Keyspace};
use crate::named::Visit;
use crate::page::PAGE_SIZE;
use crate::stop::{retry, Stop};
use crate::tree;
use crate::tree::ordered::{Next, Seek, Stored};

/// A key with its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// Bytes that are copied at a time, at most, but for one record.
const STEP_BYTES: usize = 64 * 1024;
/// What has grown beyond that, for a long value, is given back.
const KEPT_BYTES: usize = 1 << 20;
/// Leaves that are brought in together.
const AHEAD_LEAVES_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Records that have been copied, in the order of the walk.
#[derive(Default)]
struct Copied {
    bytes: Vec<u8>,
    /// Where in `bytes` key and value are.
    records: Vec<(Range<usize>, Range<usize>)>,
    taken_count: usize,
    /// Where the walk goes on after them.
    next: Option<Next>,
    /// The last record's value, if it is still to be read in parts, and where its key is.
    long: Option<(Range<usize>, Sending)>,
}

impl Copied {
    fn clear(&mut self) {
        match self.bytes.capacity() > KEPT_BYTES {
            true => self.bytes = Vec::new(),
            false => self.bytes.clear(),
        }
        self.records.clear();
        self.taken_count = 0;
        self.next = None;
        self.long = None;
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= STEP_BYTES
    }

    /// Adds a record whose value has just been appended to the bytes.
    fn end_record(&mut self, key: Range<usize>) {
        let value = key.end..self.bytes.len();
        self.records.push((key, value));
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let key = start..self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.end_record(key);
    }

    fn record(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (key, value) = self.records.get(index)?;
        Some((&self.bytes[key.clone()], &self.bytes[value.clone()]))
    }

    fn last_key(&self) -> Option<&[u8]> {
        Some(self.record(self.records.len().checked_sub(1)?)?.0)
    }
}

/// The keys that are still to come: from `lo` up to, not including, `hi`.
struct Remaining {
    lo: Vec<u8>,
    hi: Option<Vec<u8>>,
}

impl Remaining {
    fn is_empty(&self) -> bool {
        self.hi.as_ref().is_some_and(|hi| *hi <= self.lo)
    }

    fn has(&self, key: &[u8]) -> bool {
        *self.lo <= *key && self.hi.as_ref().is_none_or(|hi| key < &hi[..])
    }

    /// Everything up to a bound has been given in this direction.
    fn cut(&mut self, direction: Direction, bound: Vec<u8>) {
        match direction {
            Direction::Up if self.lo < bound => self.lo = bound,
            Direction::Down if self.hi.as_ref().is_none_or(|hi| bound < *hi) => self.hi = Some(bound),
            Direction::Up | Direction::Down => {}
        }
    }

    fn end(&mut self) {
        self.hi = Some(self.lo.clone());
    }
}

/// The least key above this one.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// A walk through a tree: an iterator over copies of records; [`TreeRange::next_with`] and its kin copy nothing a second
/// time. After an error it ends.
pub struct TreeRange<'t> {
    tree: &'t Tree,
    overlay: Option<&'t Overlay>,
    remaining: Remaining,
    up: Copied,
    down: Copied,
    /// Leaves that are brought in together when one is missing: more each time, because short walks are many.
    ahead_count: usize,
}

impl Tree {
    /// Walks through the records whose keys are within bounds, from either end.
    pub fn range<'k>(&self, bounds: impl RangeBounds<&'k [u8]>) -> TreeRange<'_> {
        TreeRange::new(self, None, bounds)
    }

    /// Walks through all records, from either end.
    pub fn iter(&self) -> TreeRange<'_> {
        self.range(..)
    }
}

impl<'t> TreeRange<'t> {
    pub(super) fn new<'k>(
        tree: &'t Tree,
        overlay: Option<&'t Overlay>,
        bounds: impl RangeBounds<&'k [u8]>,
    ) -> TreeRange<'t> {
        let lo = match bounds.start_bound() {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => successor(key),
            Bound::Unbounded => Vec::new(),
        };
        let hi = match bounds.end_bound() {
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        let remaining = Remaining { lo, hi };
        let (up, down) = (Copied::default(), Copied::default());
        TreeRange { tree, overlay, remaining, up, down, ahead_count: 1 }
    }

    /// Gives `f` the next record upwards; `None` at the end. `f` may call other operations.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn next_with<R>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> R) -> Result<Option<R>, TreeError> {
        self.step(Direction::Up, f)
    }

    /// The same downwards.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn next_back_with<R>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> R) -> Result<Option<R>, TreeError> {
        self.step(Direction::Down, f)
    }

    fn step<R>(
        &mut self,
        direction: Direction,
        f: impl FnOnce(&[u8], &[u8]) -> R,
    ) -> Result<Option<R>, TreeError> {
        loop {
            let copied = match direction {
                Direction::Up => &mut self.up,
                Direction::Down => &mut self.down,
            };
            // What the other end of the walk has given since it was copied is not there any more.
            if let Some((key, value)) =
                copied.record(copied.taken_count).filter(|(key, _)| self.remaining.has(key))
            {
                match direction {
                    Direction::Up => {
                        self.remaining.lo.clear();
                        self.remaining.lo.extend_from_slice(key);
                        self.remaining.lo.push(0);
                    }
                    Direction::Down => {
                        let hi = self.remaining.hi.get_or_insert_default();
                        hi.clear();
                        hi.extend_from_slice(key);
                    }
                }
                let result = f(key, value);
                copied.taken_count += 1;
                return Ok(Some(result));
            }
            if copied.taken_count < copied.records.len() || self.remaining.is_empty() {
                return Ok(None);
            }
            match copied.next.take() {
                Some(Next::End) => self.remaining.end(),
                Some(Next::From(bound)) => self.remaining.cut(direction, bound),
                None => self.copy(direction).inspect_err(|_| self.remaining.end())?,
            }
        }
    }

    /// Copies what comes next.
    fn copy(&mut self, direction: Direction) -> Result<(), TreeError> {
        let (remaining, tree, ahead_count) = (&self.remaining, self.tree, &mut self.ahead_count);
        let copied = match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        };
        let mut missing = Vec::new();
        tree.run(Visit::Reads, |keyspace, id| {
            let mut step =
                Step { keyspace, remaining, direction, copied, missing: &mut missing, ahead_count };
            retry(|| step.run(id)).map_err(|error| with_missing(error, &mut missing))
        })?;
        if let Some((key, value)) = copied.long.take() {
            let _busy = tree.seat.begin()?;
            tree.read_parts(&value, &mut copied.bytes)?;
            copied.end_record(key);
        }
        if let Some(overlay) = self.overlay {
            copied.lay_over(direction, remaining, overlay);
        }
        Ok(())
    }
}

/// One leaf, or a part of it, is copied.
struct Step<'s> {
    keyspace: &'s Keyspace,
    remaining: &'s Remaining,
    direction: Direction,
    copied: &'s mut Copied,
    /// Pages that are not in memory: of values, or leaves from here on.
    missing: &'s mut Vec<PageId>,
    ahead_count: &'s mut usize,
}

impl Step<'_> {
    fn run(&mut self, tree: tree::Tree) -> Result<(), Stop> {
        self.copied.clear();
        self.missing.clear();
        let (trees, mut ended) = (&self.keyspace.named.trees, None);
        let (Remaining { lo, hi }, direction) = (self.remaining, self.direction);
        let take = |key: &[u8], value: Stored<'_>| {
            ended = match self.take(key, value)? {
                None if self.copied.long.is_some() => Some(self.behind(key)),
                ended => ended,
            };
            Ok(ended.is_none())
        };
        let walked = match direction {
            Direction::Up => trees.walk_up(tree, lo, take),
            Direction::Down => trees.walk_down(tree, hi.as_deref(), take),
        };
        let walked = match walked {
            Err(Stop::Fault(pid)) => {
                self.look_ahead(tree, pid)?;
                return Err(Stop::Fault(pid));
            }
            walked => walked?,
        };
        if let Some(pid) = self.missing.first() {
            return Err(Stop::Fault(*pid));
        }
        self.copied.next = Some(ended.unwrap_or(walked));
        Ok(())
    }

    /// A leaf is missing, or what leads there: those after it are asked for with it.
    #[cold]
    fn look_ahead(&mut self, tree: tree::Tree, missing: PageId) -> Result<(), Stop> {
        self.missing.push(missing);
        let count = self.keyspace.pages.ahead_pages(*self.ahead_count);
        *self.ahead_count = (2 * count).min(AHEAD_LEAVES_MAX);
        let Remaining { lo, hi } = self.remaining;
        let (seek, is_upwards) = match self.direction {
            Direction::Up => (Seek::Key(lo), true),
            Direction::Down => (hi.as_deref().map_or(Seek::Last, Seek::Below), false),
        };
        match self.keyspace.named.trees.leaves_ahead(tree, seek, is_upwards, count) {
            Ok(leaves) => resolve::add_missing(self.keyspace, leaves.into_iter(), self.missing),
            Err(Stop::Fault(_)) => {}
            Err(stop) => return Err(stop),
        }
        Ok(())
    }

    /// Takes a record, or says where to go on instead.
    fn take(&mut self, key: &[u8], value: Stored<'_>) -> Result<Option<Next>, Stop> {
        if !self.remaining.has(key) {
            return Ok(Some(Next::End));
        }
        if self.copied.is_full() || self.missing.len() >= STEP_BYTES / PAGE_SIZE {
            return Ok(Some(self.behind(self.copied.last_key().unwrap_or_default())));
        }
        let start = self.copied.bytes.len();
        self.copied.bytes.extend_from_slice(key);
        let key = start..self.copied.bytes.len();
        if let Some(long) = begin_parts(self.keyspace, value)? {
            self.copied.long = Some((key, long));
            return Ok(None);
        }
        match read_value(self.keyspace, value, &mut self.copied.bytes, self.missing) {
            // What else is missing is asked for with it.
            Ok(()) | Err(Stop::Missing(_)) => self.copied.end_record(key),
            Err(stop) => return Err(stop),
        }
        Ok(None)
    }

    /// Where the walk goes on behind a key.
    fn behind(&self, key: &[u8]) -> Next {
        Next::From(match self.direction {
            Direction::Up => successor(key),
            Direction::Down => key.to_vec(),
        })
    }
}

impl Copied {
    /// Lays what a transaction has written over what has been copied.
    fn lay_over(&mut self, direction: Direction, remaining: &Remaining, overlay: &Overlay) {
        let Remaining { lo, hi } = remaining;
        let (lo, hi) = match (direction, &self.next) {
            (Direction::Up, Some(Next::From(bound))) if hi.as_ref().is_none_or(|hi| bound < hi) => {
                (&lo[..], Some(&bound[..]))
            }
            (Direction::Down, Some(Next::From(bound))) if lo < bound => (&bound[..], hi.as_deref()),
            _ => (&lo[..], hi.as_deref()),
        };
        let mut writes: Vec<_> = overlay.between(lo, hi).collect();
        if writes.is_empty() {
            return;
        }
        if direction == Direction::Down {
            writes.reverse();
        }
        let is_before = |a: &[u8], b: &[u8]| match direction {
            Direction::Up => a < b,
            Direction::Down => a > b,
        };
        let (mut merged, mut writes) = (Copied::default(), writes.into_iter().peekable());
        for index in 0..self.records.len() {
            let Some((key, value)) = self.record(index) else { break };
            while let Some((written, value)) = writes.next_if(|(written, _)| is_before(written, key)) {
                value.into_iter().for_each(|value| merged.push(written, value));
            }
            match writes.next_if(|(written, _)| *written == key) {
                Some((_, value)) => value.into_iter().for_each(|value| merged.push(key, value)),
                None => merged.push(key, value),
            }
        }
        writes.for_each(|(key, value)| value.into_iter().for_each(|value| merged.push(key, value)));
        merged.next = self.next.take();
        *self = merged;
    }
}

impl Iterator for TreeRange<'_> {
    type Item = Result<Record, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_with(|key, value| (key.to_vec(), value.to_vec())).transpose()
    }
}

impl DoubleEndedIterator for TreeRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_back_with(|key, value| (key.to_vec(), value.to_vec())).transpose()
    }
}

impl std::iter::FusedIterator for TreeRange<'_> {}
