//! What is pending in a group, and its consumers, as they are shown.

use std::ops::RangeBounds;

use super::groups::{ConsumerInfo, OpenGroup};
use super::records::{malformed, Records};
use crate::entries::group::{ConsumerNumber, Part, Pending};
use crate::keyspace::Op;
use crate::{OpError, StreamId};

/// What is pending in a group, in short.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PendingSummary {
    /// Pending entries.
    pub count: u64,
    /// The least ID of them; `0-0` if there is none.
    pub first: StreamId,
    /// The greatest ID of them; `0-0` if there is none.
    pub last: StreamId,
    /// Those who own something, by name, and how much.
    pub consumers: Vec<(Vec<u8>, u64)>,
}

/// A pending entry as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingInfo {
    pub id: StreamId,
    /// The name of the consumer that owns it.
    pub consumer: Vec<u8>,
    /// When it was last delivered, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// How often it was delivered.
    pub count: u64,
}

/// Which pending entries are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingRange<'c> {
    /// The least ID.
    pub from: StreamId,
    /// The greatest ID.
    pub to: StreamId,
    /// So many at most.
    pub most: u64,
    /// Those alone that are owned by this one.
    pub consumer: Option<&'c [u8]>,
    /// Those alone that were delivered so long ago, in milliseconds.
    pub min_idle_ms: i64,
}

impl<'c> PendingRange<'c> {
    /// All pending entries with these IDs, so many at most.
    pub fn of(ids: impl RangeBounds<StreamId>, most: u64) -> PendingRange<'static> {
        let (from, to) = StreamId::ends_of(&ids);
        PendingRange { from, to, most, consumer: None, min_idle_ms: i64::MIN }
    }

    /// Those alone that this consumer owns.
    #[must_use]
    pub fn owned_by(self, consumer: &'c (impl AsRef<[u8]> + ?Sized)) -> PendingRange<'c> {
        PendingRange { consumer: Some(consumer.as_ref()), ..self }
    }
}

pub(super) fn summary(
    op: &mut Op<'_>,
    stream: &Records<'_>,
    open: &OpenGroup,
) -> Result<PendingSummary, OpError> {
    let mut summary = PendingSummary { count: open.group.pending_count, ..PendingSummary::default() };
    if summary.count == 0 {
        return Ok(summary);
    }
    let end = |op: &mut Op<'_>, is_first: bool| {
        let mut found = None;
        let take = |found: &mut Option<StreamId>, key: &[u8]| {
            if let Some(Part::Pending(id)) = open.keys.part(key) {
                *found = Some(id);
            }
            Ok(false)
        };
        match is_first {
            true => stream.walk_up(op, &open.keys.pending(StreamId::MIN), |key, _| take(&mut found, key))?,
            false => stream.walk_down(op, &open.keys.names(), |key, _| take(&mut found, key))?,
        }
        found.ok_or_else(malformed)
    };
    (summary.first, summary.last) = (end(op, true)?, end(op, false)?);
    open.for_each_consumer(op, stream, |_, consumer| {
        if consumer.pending_count > 0 {
            summary.consumers.push((consumer.name, consumer.pending_count));
        }
    })?;
    summary.consumers.sort();
    Ok(summary)
}

pub(super) fn range(
    op: &mut Op<'_>,
    stream: &Records<'_>,
    open: &OpenGroup,
    wanted: &PendingRange<'_>,
) -> Result<Vec<PendingInfo>, OpError> {
    let (mut all, now): (Vec<(StreamId, Pending)>, _) = (Vec::new(), op.local.now);
    if wanted.most == 0 || wanted.from > wanted.to {
        return Ok(Vec::new());
    }
    let of = match wanted.consumer {
        None => None,
        Some(name) => match open.find_consumer(op, stream, name)? {
            None => return Ok(Vec::new()),
            Some(consumer) => Some(consumer.number),
        },
    };
    let is_shown = |pending: &Pending| now.saturating_sub(pending.time_ms) >= wanted.min_idle_ms;
    match of {
        None => stream.walk_up(op, &open.keys.pending(wanted.from), |key, value| {
            let Some(Part::Pending(id)) = open.keys.part(key).filter(|_| all.len() as u64 != wanted.most)
            else {
                return Ok(false);
            };
            let pending = Pending::parse(value).ok_or_else(malformed)?;
            if id <= wanted.to && is_shown(&pending) {
                all.push((id, pending));
            }
            Ok(id < wanted.to)
        })?,
        Some(number) => {
            let mut ids = Vec::new();
            stream.walk_up(op, &open.keys.owned(number, wanted.from), |key, _| {
                match open.keys.part(key) {
                    Some(Part::Owned(of, id)) if of == number && id <= wanted.to => ids.push(id),
                    _ => return Ok(false),
                }
                // Those that are left out by their time are not counted.
                Ok(wanted.min_idle_ms > 0 || (ids.len() as u64) < wanted.most)
            })?;
            for id in ids {
                let pending = open.pending(op, stream, id)?.ok_or_else(malformed)?;
                if is_shown(&pending) && (all.len() as u64) < wanted.most {
                    all.push((id, pending));
                }
            }
        }
    }
    named(op, stream, open, all)
}

/// Pending entries with the names of their consumers.
fn named(
    op: &mut Op<'_>,
    stream: &Records<'_>,
    open: &OpenGroup,
    all: Vec<(StreamId, Pending)>,
) -> Result<Vec<PendingInfo>, OpError> {
    let mut names: Vec<(ConsumerNumber, Vec<u8>)> = Vec::new();
    let mut shown = Vec::with_capacity(all.len());
    for (id, Pending { consumer, time_ms, count }) in all {
        let known = names.iter().find(|(number, _)| *number == consumer).map(|(_, name)| name.clone());
        let name = match known {
            Some(name) => name,
            None => {
                let name = open.consumer(op, stream, consumer)?.consumer.name;
                names.push((consumer, name.clone()));
                name
            }
        };
        shown.push(PendingInfo { id, consumer: name, time_ms, count });
    }
    Ok(shown)
}

/// The consumers of a group, by name.
pub(super) fn consumers(
    op: &mut Op<'_>,
    stream: &Records<'_>,
    open: &OpenGroup,
) -> Result<Vec<ConsumerInfo>, OpError> {
    let mut all = Vec::new();
    open.for_each_consumer(op, stream, |_, consumer| {
        all.push(ConsumerInfo {
            name: consumer.name,
            pending_count: consumer.pending_count,
            seen_ms: consumer.seen_ms,
            active_ms: consumer.active_ms,
        });
    })?;
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}
