//! Walks in steps through the elements of large collections, for those whose time is over and for the earliest deadline of the
//! others.
//!
//! ```text
//!              begin_step, end_step        the last step
//!   unknown ─────────▶ under way ─┐ ─────────────────▶ resting ── begin_step after a while ──▶ under way
//!                        ▲ └──────┘
//! ```
//! It rests for many times as long as it took, so that a collection with a deadline every moment costs no more than a share of
//! the time; what is due meanwhile counts as absent all the same. After a restart all are unknown.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::UnixMillis;

/// How many times as long as it took a walk rests.
const REST_SHARE: u32 = 16;
/// Walks that took less need no rest.
const REST_FREE: Duration = Duration::from_millis(1);
/// So many are remembered before those are forgotten that have rested.
const REMEMBERED_MAX: usize = 1024;

enum Walk {
    UnderWay {
        cursor: u64,
        /// Of the elements that have been passed, and of those that have got a deadline meanwhile.
        earliest: Option<UnixMillis>,
        took: Duration,
    },
    Resting {
        until: Instant,
    },
}

/// The walks under way and those that rest, by the tag of the tree.
#[derive(Default)]
pub(crate) struct Walks {
    by_tag: Mutex<HashMap<u32, Walk>>,
    /// Lets a write pass without the lock when there is none.
    count: AtomicUsize,
}

impl Walks {
    /// An element of this tree gets this deadline; its key is locked.
    pub fn note(&self, tag: u32, deadline: UnixMillis) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(Walk::UnderWay { earliest, .. }) = self.by_tag.lock().get_mut(&tag) {
            *earliest = Some(earliest.map_or(deadline, |earliest| earliest.min(deadline)));
        }
    }

    /// Where a walk through this tree goes on; `None` while it rests. The key is locked until the step has ended.
    pub fn begin_step(&self, tag: u32) -> Option<u64> {
        let mut by_tag = self.by_tag.lock();
        match by_tag.get(&tag) {
            Some(Walk::UnderWay { cursor, .. }) => return Some(*cursor),
            Some(Walk::Resting { until }) if Instant::now() < *until => return None,
            Some(Walk::Resting { .. }) | None => {}
        }
        if by_tag.len() >= REMEMBERED_MAX {
            let now = Instant::now();
            by_tag.retain(|_, walk| !matches!(walk, Walk::Resting { until } if *until <= now));
        }
        by_tag.insert(tag, Walk::UnderWay { cursor: 0, earliest: None, took: Duration::ZERO });
        self.count.store(by_tag.len(), Ordering::Relaxed);
        Some(0)
    }

    /// Notes what a step has found, and where the next one goes on: 0 after the last. Then it gives the earliest deadline of the
    /// whole tree.
    pub fn end_step(
        &self,
        tag: u32,
        next: u64,
        found: Option<UnixMillis>,
        took: Duration,
    ) -> Option<Option<UnixMillis>> {
        let mut by_tag = self.by_tag.lock();
        let Some(Walk::UnderWay { cursor, earliest, took: took_before }) = by_tag.get_mut(&tag) else {
            return None;
        };
        *cursor = next;
        *earliest = [*earliest, found].into_iter().flatten().min();
        *took_before += took;
        if next != 0 {
            return None;
        }
        let (earliest, took) = (*earliest, *took_before);
        if took > REST_FREE {
            by_tag.insert(tag, Walk::Resting { until: Instant::now() + REST_SHARE * took });
        } else {
            by_tag.remove(&tag);
        }
        self.count.store(by_tag.len(), Ordering::Relaxed);
        Some(earliest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_ends_with_the_earliest_deadline_and_rests() {
        let walks = Walks::default();
        walks.note(7, 1);
        assert_eq!(walks.begin_step(7), Some(0));
        assert_eq!(walks.end_step(7, 500, Some(90), Duration::from_secs(1)), None);
        assert_eq!(walks.begin_step(7), Some(500));
        // Behind the walk: it counts all the same.
        walks.note(7, 80);
        walks.note(8, 10);
        assert_eq!(walks.end_step(7, 0, Some(85), Duration::ZERO), Some(Some(80)));
        assert_eq!(walks.begin_step(7), None);
        assert_eq!(walks.begin_step(8), Some(0));
        assert_eq!(walks.end_step(8, 0, None, Duration::ZERO), Some(None));
        assert_eq!(walks.begin_step(8), Some(0), "it was short");
    }
}
