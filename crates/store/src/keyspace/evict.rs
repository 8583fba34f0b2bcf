//! Choosing keys that go because memory is full, as Redis does: from samples, the best of which are remembered.
//!
//! ```text
//!   a random leaf of each database ─▶ some of its keys ─▶ the best 16 of all samples so far ─▶ the best goes
//! ```
//! A leaf is found by a random hash, so its keys are as good a sample as any. Keys with a deadline may be rare: where a random
//! leaf has none, the side array says which leaves do.

use std::time::{Duration, Instant};

use stillframe_pagepool::{PageId, SharedGuard};

use super::choice::Victim;
use super::op::Op;
use super::read::outside_bytes;
use super::stamps::coldness;
use super::state::Keyspace;
use super::steps::Because;
use super::write::{self, Was};
use super::{expire, random, scan};
use crate::effect::Effect;
use crate::stop::{retry, Follow, Stop};
use crate::tree::hash::{as_leaf, Links, Record, RecordKey, SLOT_BYTES};
use crate::tree::{bad_record, Joining, Tree};
use crate::{Candidates, Cause, DbId, Evicted, EvictionPolicy, Key, OpError, Preference};

/// Samples from all databases for one key, before it is left for later. More than are remembered: all those may be gone.
const ROUNDS_MAX: u32 = 32;
/// Leaves of which the side array says that they have deadlines, that are looked at for one that has.
const DUE_LEAVES_TRIED: u32 = 32;
/// Random leaves that are looked at for a sample: of a few keys each may have one, and that is the best of itself.
const LEAVES_TRIED: u32 = 3;

/// What is taken from a tree, and of which keys how many.
struct Sample {
    policy: EvictionPolicy,
    most: usize,
    victims: Vec<Victim>,
    /// Keys whose time is over: they go first.
    expired: Vec<Victim>,
}

impl Sample {
    fn new(policy: EvictionPolicy, most: usize) -> Sample {
        Sample { policy, most, victims: Vec::new(), expired: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.victims.is_empty() && self.expired.is_empty()
    }

    fn is_full(&self) -> bool {
        self.victims.len() + self.expired.len() >= self.most
    }

    /// Whether only keys with a deadline may go.
    fn needs_deadline(&self) -> bool {
        self.policy.candidates == Candidates::WithDeadline
    }
}

/// Evicts one key, and removes what was met that has expired. To be called between two commands, without locks.
///
/// # Errors
/// What is in the way of a key that was chosen.
pub fn evict(op: &mut Op<'_>, policy: EvictionPolicy, sample_count: usize) -> Result<Evicted, OpError> {
    if op.local.choice.policy != Some(policy) {
        op.local.choice.policy = Some(policy);
        op.local.choice.remembered.clear();
    }
    let (expired_before, mut memory_bytes, mut failure) = (op.local.expired_count, 0, None);
    let count = |op: &Op<'_>, evicted_count: u64, memory_bytes: u64| Evicted::Keys {
        evicted_count,
        expired_count: op.local.expired_count - expired_before,
        memory_bytes,
    };
    for _ in 0..ROUNDS_MAX {
        memory_bytes += sample_databases(op, policy, sample_count.max(1))?;
        // If the best is gone by now, the next best may be the worst of all: with two workers all of the better ones are gone
        // at times. Hence another sample before it.
        if let Some(victim) = op.local.choice.remembered.pop() {
            match evict_victim(op, policy, &victim) {
                Ok(true) => return Ok(count(op, 1, memory_bytes + victim.memory_bytes)),
                Ok(false) => {}
                // There are others.
                Err(error) => failure = Some(error),
            }
        }
        if op.local.expired_count > expired_before {
            return Ok(count(op, 0, memory_bytes));
        }
        if !has_candidates(op.keyspace, policy) && !op.keyspace.garbage.is_being_freed() {
            return Ok(Evicted::Nothing);
        }
    }
    failure.map_or(Ok(Evicted::Later), Err)
}

fn has_candidates(keyspace: &Keyspace, policy: EvictionPolicy) -> bool {
    let count = |db| {
        let stats = keyspace.db_stats(DbId(db as u32));
        match policy.candidates {
            Candidates::All => stats.key_count,
            Candidates::WithDeadline => stats.deadline_count,
        }
    };
    (0..keyspace.database_count()).any(|db| count(db) > 0)
}

/// Takes samples from all databases, or of one in turn if any key will do. Removes what has expired; returns how much memory
/// that took.
fn sample_databases(op: &mut Op<'_>, policy: EvictionPolicy, sample_count: usize) -> Result<u64, OpError> {
    let trees: Vec<Tree> = op.keyspace.databases.trees().collect();
    if policy.preference != Preference::Random {
        let sample = |tree: &Tree| sample_tree(op, *tree, Sample::new(policy, sample_count));
        return trees.iter().map(sample).sum();
    }
    let last = op.local.choice.next_db;
    let (before, after): (Vec<&Tree>, Vec<&Tree>) = trees.iter().partition(|tree| tree.db.0 <= last);
    for tree in after.into_iter().chain(before) {
        op.local.choice.next_db = tree.db.0;
        let memory_bytes = sample_tree(op, *tree, Sample::new(policy, 1))?;
        if memory_bytes > 0 || !op.local.choice.remembered.is_empty() {
            return Ok(memory_bytes);
        }
    }
    Ok(0)
}

fn sample_tree(op: &mut Op<'_>, tree: Tree, mut sample: Sample) -> Result<u64, OpError> {
    for _ in 0..LEAVES_TRIED {
        let hash = fastrand::u64(..);
        let leaf = || op.keyspace.trees.leaf_shared(tree, hash, None);
        take_sample(op, tree, leaf, &mut sample)?;
        if sample.is_full() {
            break;
        }
    }
    if sample.is_empty() {
        sample_sparse(op, tree, &mut sample)?;
    }
    sample.victims.into_iter().for_each(|victim| op.local.choice.remember(victim));
    let mut memory_bytes = 0;
    for victim in sample.expired {
        let key = Key::new(&victim.bytes, victim.hash);
        let _lock = op.keyspace.locks.lock_key(&op.local.holder, tree.db, key.hash);
        if write::expire(op, tree.db, &key)? {
            memory_bytes += victim.memory_bytes;
        }
    }
    Ok(memory_bytes)
}

/// For a tree of which random leaves have nothing to offer: looks where there is something.
fn sample_sparse(op: &mut Op<'_>, tree: Tree, sample: &mut Sample) -> Result<(), OpError> {
    let stats = op.keyspace.db_stats(tree.db);
    if sample.needs_deadline() {
        if stats.deadline_count == 0 {
            return Ok(());
        }
        return sample_by_deadline(op, tree, sample);
    }
    if stats.key_count == 0 {
        return Ok(());
    }
    let found = match random::first_key_from(op, tree.db, fastrand::u64(..1 << 52)) {
        // Another leaf may be there.
        Err(OpError::Fault(_)) => None,
        found => found?,
    };
    if let Some(bytes) = found {
        let hash = op.keyspace.trees.order.hash(&bytes);
        let leaf = || op.keyspace.trees.leaf_shared(tree, hash, None);
        take_sample(op, tree, leaf, sample)?;
    }
    Ok(())
}

/// Takes keys from leaves that the side array knows to have deadlines, and tells it of those that have none any more.
fn sample_by_deadline(op: &mut Op<'_>, tree: Tree, sample: &mut Sample) -> Result<(), OpError> {
    let side = &op.keyspace.trees.order.side;
    let mut from = PageId(fastrand::u32(..side.page_end().0.max(1)));
    for _ in 0..DUE_LEAVES_TRIED {
        let Some(pid) = side.next_with_deadline(from).or_else(|| side.next_with_deadline(PageId(0))) else {
            expire::register_leaves(op.keyspace, Instant::now() + REGISTERING);
            return Ok(());
        };
        let leaf = || Ok(op.keyspace.pool.shared(pid)?);
        take_sample(op, tree, leaf, sample)?;
        if !sample.is_empty() {
            return Ok(());
        }
        // It may be one of another database.
        expire::register_deadline(op.keyspace, pid);
        from = PageId(pid.0 + 1);
    }
    Ok(())
}

/// Takes keys from a leaf, if it is in memory and one of the tree's.
fn take_sample<'a>(
    op: &mut Op<'a>,
    tree: Tree,
    mut leaf: impl FnMut() -> Result<SharedGuard<'a>, Stop>,
    sample: &mut Sample,
) -> Result<(), OpError> {
    let taken = retry(|| {
        let guard = leaf()?;
        if !op.keyspace.trees.order.side.is_leaf(guard.id()) {
            return Ok(());
        }
        sample_leaf(op, tree, guard, sample)
    });
    match taken {
        // There are other leaves.
        Err(OpError::Fault(_) | OpError::Damaged(_)) => Ok(()),
        taken => taken,
    }
}

fn sample_leaf<'a>(
    op: &mut Op<'a>,
    tree: Tree,
    mut guard: SharedGuard<'a>,
    sample: &mut Sample,
) -> Result<(), Stop> {
    let mut links = Links::default();
    loop {
        let leaf = as_leaf(guard.id(), guard.page())?;
        if leaf.tag() != tree.tag {
            return Ok(());
        }
        let (count, first) = (leaf.count(), fastrand::usize(..leaf.count().max(1)));
        let is_worth_it = !sample.needs_deadline() || leaf.deadline_count() > 0;
        for slot in (0..if is_worth_it { count } else { 0 }).map(|nth| (first + nth) % count) {
            let record = leaf.record(slot).ok_or_else(|| bad_record(guard.id()))?;
            if sample.needs_deadline() && record.deadline.is_none() {
                continue;
            }
            take_record(op, tree, &record, sample)?;
            if sample.is_full() {
                return Ok(());
            }
        }
        match links.after(guard.id(), leaf)? {
            None => return Ok(()),
            Some(next) => guard = op.keyspace.pool.follow_shared(next)?,
        }
    }
}

fn take_record(op: &mut Op<'_>, tree: Tree, record: &Record<'_>, sample: &mut Sample) -> Result<(), Stop> {
    let hash = op.keyspace.trees.order.hash_of(record);
    let bytes = scan::with_key(op.keyspace, record, &mut op.local.bytes, <[u8]>::to_vec)?;
    let memory_bytes = memory_bytes(record);
    let soonest = record.deadline.map_or(0, |deadline| u64::MAX - deadline.max(0) as u64);
    let score = match sample.policy.preference {
        Preference::SoonestDeadline => soonest,
        _ => coldness_of(op, tree, hash),
    };
    let victim = Victim { score, db: tree.db, hash, bytes, memory_bytes };
    match record.deadline.is_some_and(|deadline| deadline <= op.local.now) {
        true => sample.expired.push(victim),
        false => sample.victims.push(victim),
    }
    Ok(())
}

fn coldness_of(op: &Op<'_>, tree: Tree, hash: u64) -> u64 {
    op.local.tracked.access(tree.tag, hash).map_or(0, coldness)
}

/// Removes a key that was chosen, unless it is gone, has been accessed since, or is not to go any more.
fn evict_victim(op: &mut Op<'_>, policy: EvictionPolicy, victim: &Victim) -> Result<bool, OpError> {
    let Some(tree) = op.keyspace.tree(victim.db) else { return Ok(false) };
    let is_by_access = policy.preference != Preference::SoonestDeadline;
    if is_by_access && coldness_of(op, tree, victim.hash) < victim.score {
        return Ok(false);
    }
    let key = Key::new(&victim.bytes, victim.hash);
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, victim.db, victim.hash);
    let _because = Because::of(&op.local.holder.acting, Cause::Eviction);
    let needs_deadline = policy.candidates == Candidates::WithDeadline;
    let was = write::remove_if(op, victim.db, &key, Joining::Tight, |remains| {
        !needs_deadline || remains.deadline.is_some()
    })?;
    if was == Was::There {
        op.announce(Effect::Evict { db: victim.db, key });
    }
    op.local.holder.acting.end_operation();
    Ok(was == Was::There)
}

/// How long leaves are looked for that have deadlines, once after a restart.
const REGISTERING: Duration = Duration::from_micros(200);

/// Memory of a record and of what it refers to.
fn memory_bytes(record: &Record<'_>) -> u64 {
    let key = match &record.key {
        RecordKey::Out { blob, .. } => blob.memory_bytes(),
        RecordKey::Inline(_) | RecordKey::Hash(_) => 0,
    };
    (SLOT_BYTES + record.encoded_bytes()) as u64 + key + outside_bytes(record)
}
