//! Pending entries that change their owner.

use super::groups::{tell, with_group, NoGroup, OpenConsumer, OpenGroup};
use super::pending::{forget, give_one, own, resolve, small_records, Give};
use super::records::{malformed, Records};
use crate::effect::Change;
use crate::entries::group::{ConsumerNumber, Part, Pending};
use crate::keyspace::{CollectionKey, Op};
use crate::{OpError, StreamId};

/// How entries change their owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClaimRule {
    /// Those alone that were delivered so long ago, in milliseconds.
    pub min_idle_ms: i64,
    /// When they were delivered; `None`: now.
    pub time_ms: Option<i64>,
    /// How often they were delivered; `None`: once more, unless `is_silent`.
    pub count: Option<u64>,
    /// Those that nobody owns, too.
    pub forces: bool,
    /// They are not given: their deliveries are not counted.
    pub is_silent: bool,
    /// The group has given out up to this ID, at least.
    pub last: Option<StreamId>,
    /// Also an entry that has gone, and without a look at it: what another server says.
    pub is_told: bool,
}

impl ClaimRule {
    /// Of entries that have been idle for so long; `is_silent`: they are not given.
    pub fn new(min_idle_ms: i64, is_silent: bool) -> ClaimRule {
        ClaimRule {
            min_idle_ms,
            time_ms: None,
            count: None,
            forces: false,
            is_silent,
            last: None,
            is_told: false,
        }
    }

    /// As another server says: the entry is pending, delivered then and so often.
    pub fn told(time_ms: i64, count: u64) -> ClaimRule {
        let (time_ms, count) = (Some(time_ms), Some(count));
        ClaimRule { time_ms, count, forces: true, is_told: true, ..ClaimRule::new(0, true) }
    }
}

/// What a claim does with an entry.
enum Claimed {
    Owned(StreamId, Pending),
    /// It has gone from the stream, and is pending no longer.
    Gone(StreamId),
}

/// A claim on its way.
struct Claiming<'c> {
    name: &'c [u8],
    rule: &'c ClaimRule,
    consumer: Option<OpenConsumer>,
    done: Vec<Claimed>,
}

impl Claiming<'_> {
    /// Has the consumer own an entry, which has been found pending or not; `false` if the rule leaves it alone.
    fn claim(
        &mut self,
        op: &mut Op<'_>,
        stream: &mut Records<'_>,
        open: &mut OpenGroup,
        (id, was): (StreamId, Option<Pending>),
        give: Give<'_>,
    ) -> Result<bool, OpError> {
        let (rule, now) = (self.rule, op.local.now);
        let mut is_there = true;
        if !rule.is_told {
            let mut shown = None;
            is_there = give_one(op, stream, id, &mut |_, parts| {
                shown = Some(parts.iter().map(|part| part.to_vec()).collect::<Vec<_>>());
            })?;
            let is_idle = was.is_none_or(|was| now.saturating_sub(was.time_ms) >= rule.min_idle_ms);
            if is_there && is_idle && (was.is_some() || rule.forces) {
                let parts: Vec<&[u8]> = shown.iter().flatten().map(|part| &part[..]).collect();
                give(id, Some(&parts));
            } else if is_there {
                return Ok(false);
            }
        }
        if !is_there {
            let Some(was) = was else { return Ok(false) };
            forget(op, stream, open, &[(id, was.consumer)])?;
            self.done.push(Claimed::Gone(id));
            return Ok(true);
        }
        let mut consumer = match self.consumer.take() {
            Some(consumer) => consumer,
            None => open.consumer_for(op, stream, self.name)?,
        };
        // What another of these steps has stored of it counts.
        if !consumer.is_new {
            consumer = open.consumer(op, stream, consumer.number)?;
        }
        consumer.consumer.seen_ms = consumer.consumer.seen_ms.max(now);
        // One that nobody has got counts as delivered once, as in Redis.
        let before = was.map_or(1, |was| was.count);
        let count = rule.count.unwrap_or(if rule.is_silent { before } else { before.saturating_add(1) });
        let time_ms = rule.time_ms.filter(|time| (0..=now).contains(time) || rule.is_told).unwrap_or(now);
        let pending = Pending { consumer: consumer.number, time_ms, count };
        own(op, stream, open, &mut consumer, (id, was), pending)?;
        consumer.store(op, stream, &open.keys)?;
        self.done.push(Claimed::Owned(id, pending));
        self.consumer = Some(consumer);
        Ok(true)
    }

    fn announce(&self, op: &Op<'_>, at: &CollectionKey<'_>, open: &OpenGroup, last_was: StreamId) {
        let (group, consumer) = (&open.group.name[..], self.name);
        if self.consumer.as_ref().is_some_and(|consumer| consumer.is_new) {
            tell(op, at, Change::ConsumerAdded { group, consumer }, false);
        }
        for claimed in &self.done {
            let change = match *claimed {
                Claimed::Owned(id, Pending { time_ms, count, .. }) => {
                    Change::PendingSet { group, consumer, id, time: time_ms, count }
                }
                Claimed::Gone(id) => Change::PendingRemoved { group, id },
            };
            tell(op, at, change, false);
        }
        let (last, read_count) = (open.group.last, open.group.read_count);
        if last != last_was {
            tell(op, at, Change::GroupSet { group, last, read_count, is_new_group: false }, false);
        }
    }
}

/// Entries change their owner; `give` gets those that have.
pub(super) fn claim(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    (name, consumer): (&[u8], &[u8]),
    ids: &[StreamId],
    rule: &ClaimRule,
    give: Give<'_>,
    run: &mut Vec<u8>,
) -> Result<Result<(), NoGroup>, OpError> {
    with_group(op, at, name, run, |op, mut stream, mut open| {
        let mut found = Vec::new();
        for id in ids {
            found.push((*id, open.pending(op, &stream, *id)?));
        }
        let number = open.find_consumer(op, &stream, consumer)?.map(|consumer| consumer.number);
        let number = number.unwrap_or(ConsumerNumber(open.group.next_number));
        resolve(op, &stream, &open, number, &found)?;
        let _admitted = stream.admit(op, small_records(2 * found.len()))?;
        let last_was = open.group.last;
        open.group.last = rule.last.map_or(last_was, |last| last.max(last_was));
        let mut claiming = Claiming { name: consumer, rule, consumer: None, done: Vec::new() };
        for (at_id, (id, _)) in found.iter().enumerate() {
            // The same ID may come twice.
            let was = if found[..at_id].iter().any(|(other, _)| other == id) {
                open.pending(op, &stream, *id)?
            } else {
                found[at_id].1
            };
            claiming.claim(op, &mut stream, &mut open, (*id, was), give)?;
        }
        if claiming.done.is_empty() && open.group.last == last_was {
            return Ok(());
        }
        open.store(op, &mut stream)?;
        stream.store(op)?;
        claiming.announce(op, at, &open, last_was);
        Ok(())
    })
}

/// What `XAUTOCLAIM` came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AutoClaimed {
    /// Where the next one goes on; `0-0`: it begins anew.
    pub next: StreamId,
    /// Pending entries that have gone from the stream.
    pub gone: Vec<StreamId>,
}

/// Entries that are looked at for each that is claimed, at most.
const ATTEMPTS: u64 = 10;

pub(super) fn auto_claim(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    (name, consumer): (&[u8], &[u8]),
    (from, most): (StreamId, u64),
    rule: &ClaimRule,
    give: Give<'_>,
    run: &mut Vec<u8>,
) -> Result<Result<AutoClaimed, NoGroup>, OpError> {
    with_group(op, at, name, run, |op, mut stream, mut open| {
        let (mut found, mut next) = (Vec::new(), StreamId::MIN);
        let attempts = most.saturating_mul(ATTEMPTS);
        stream.walk_up(op, &open.keys.pending(from), |key, value| {
            let Some(Part::Pending(id)) = open.keys.part(key) else { return Ok(false) };
            next = id;
            if found.len() as u64 == attempts {
                return Ok(false);
            }
            next = StreamId::MIN;
            found.push((id, Some(Pending::parse(value).ok_or_else(malformed)?)));
            Ok(true)
        })?;
        let number = open.find_consumer(op, &stream, consumer)?.map(|consumer| consumer.number);
        let number = number.unwrap_or(ConsumerNumber(open.group.next_number));
        resolve(op, &stream, &open, number, &found)?;
        let _admitted = stream.admit(op, small_records(2 * found.len()))?;
        let mut claiming = Claiming { name: consumer, rule, consumer: None, done: Vec::new() };
        for (id, was) in &found {
            if claiming.done.len() as u64 == most {
                next = *id;
                break;
            }
            claiming.claim(op, &mut stream, &mut open, (*id, *was), give)?;
        }
        let gone = |claimed: &Claimed| match claimed {
            Claimed::Gone(id) => Some(*id),
            Claimed::Owned(..) => None,
        };
        let gone = claiming.done.iter().filter_map(gone).collect();
        if !claiming.done.is_empty() {
            open.store(op, &mut stream)?;
            stream.store(op)?;
            claiming.announce(op, at, &open, open.group.last);
        }
        Ok(AutoClaimed { next, gone })
    })
}
