//! Striped key locks, for commands that need several keys not to change (invariants C2 and C8).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, RawRwLock, RwLock};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use stillframe_pagepool::{prefetch_value_for_write, Member};

use super::gate::Gate;
use crate::{DbId, Key};

const STRIPE_COUNT: usize = 1024;

/// One lock to a cache line, lest neighbours contend.
type Stripe = Arc<RwLock<Padding>>;

#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Padding;

/// The stripes; none with a single worker, which needs no locks.
pub(crate) struct StripeLocks {
    stripes: Box<[Stripe]>,
    gate: Arc<Gate>,
}

/// The lock sets that a worker holds.
#[derive(Default)]
struct HeldLocks {
    shared_count: AtomicU32,
    exclusive_count: AtomicU32,
}

impl HeldLocks {
    fn any(&self) -> bool {
        self.shared_count.load(Ordering::Relaxed) + self.exclusive_count.load(Ordering::Relaxed) > 0
    }
}

/// Who takes locks: a worker, as a member of the barrier.
pub(crate) struct Holder {
    pub member: Member,
    held: Arc<HeldLocks>,
}

impl Holder {
    pub fn new(member: Member) -> Holder {
        Holder { member, held: Arc::default() }
    }
}

enum OwnedStripe {
    Shared { _guard: ArcRwLockReadGuard<RawRwLock, Padding> },
    Exclusive { _guard: ArcRwLockWriteGuard<RawRwLock, Padding> },
}

/// Locks on the keys of a command that needs several to change at once; released when dropped.
/// Empty with a single worker.
#[must_use]
pub struct Locks {
    _stripes: Vec<OwnedStripe>,
    held: Option<(Arc<HeldLocks>, bool)>,
    /// Passed by those who write.
    gate: Option<Arc<Gate>>,
}

/// See [`crate::Worker::read_behind_locks`].
#[must_use]
pub struct BehindLocks {
    gate: Option<Arc<Gate>>,
}

impl Drop for BehindLocks {
    fn drop(&mut self) {
        if let Some(gate) = &self.gate {
            gate.leave();
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        if let Some(gate) = &self.gate {
            gate.leave();
        }
        if let Some((held, write)) = &self.held {
            held.counter(*write).fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl HeldLocks {
    fn counter(&self, write: bool) -> &AtomicU32 {
        if write {
            &self.exclusive_count
        } else {
            &self.shared_count
        }
    }
}

/// The lock of a single-key operation.
pub(crate) enum KeyLock<'a> {
    /// A single worker, or the caller holds a lock set.
    None,
    Shared {
        _guard: RwLockReadGuard<'a, Padding>,
    },
    Exclusive {
        _guard: RwLockWriteGuard<'a, Padding>,
    },
}

impl StripeLocks {
    pub fn new(worker_count: usize) -> StripeLocks {
        let count = if worker_count > 1 { STRIPE_COUNT } else { 0 };
        StripeLocks { stripes: (0..count).map(|_| Stripe::default()).collect(), gate: Arc::default() }
    }

    fn index(&self, db: DbId, hash: u64) -> usize {
        let mixed = (hash ^ u64::from(db.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % self.stripes.len()
    }

    fn stripe(&self, db: DbId, hash: u64) -> &Stripe {
        &self.stripes[self.index(db, hash)]
    }
}

impl StripeLocks {
    /// Hints that a key will be locked for a write soon.
    #[inline(always)]
    pub fn prefetch(&self, db: DbId, hash: u64) {
        if !self.stripes.is_empty() {
            prefetch_value_for_write(&**self.stripe(db, hash));
        }
    }

    /// Locks one key for an operation that may change it. Waiting counts as quiescent: nothing has been done yet.
    #[inline(always)]
    pub fn lock_key<'a>(&'a self, holder: &Holder, db: DbId, hash: u64) -> KeyLock<'a> {
        if self.stripes.is_empty() || holder.held.any() {
            return KeyLock::None;
        }
        let stripe = self.stripe(db, hash);
        let taken = stripe.try_write();
        KeyLock::Exclusive { _guard: taken.unwrap_or_else(|| holder.member.idle(|| stripe.write())) }
    }

    /// The same for an operation that reads one key: takes nothing as long as no command changes several (C8).
    #[inline(always)]
    pub fn lock_key_to_read<'a>(&'a self, holder: &Holder, db: DbId, hash: u64) -> KeyLock<'a> {
        if self.gate.is_clear() || holder.held.any() {
            return KeyLock::None;
        }
        let stripe = self.stripe(db, hash);
        let taken = stripe.try_read();
        KeyLock::Shared { _guard: taken.unwrap_or_else(|| holder.member.idle(|| stripe.read())) }
    }

    /// The lock of a key whose value lies in several pages, for an operation that reads it.
    #[inline(always)]
    pub fn lock_key_shared<'a>(&'a self, holder: &Holder, db: DbId, hash: u64) -> KeyLock<'a> {
        if self.stripes.is_empty() || holder.held.any() {
            return KeyLock::None;
        }
        let stripe = self.stripe(db, hash);
        let taken = stripe.try_read();
        KeyLock::Shared { _guard: taken.unwrap_or_else(|| holder.member.idle(|| stripe.read())) }
    }

    /// The lock of a key that background work may change: `None` if somebody holds the key.
    pub fn try_lock_key<'a>(&'a self, holder: &Holder, db: DbId, hash: u64) -> Option<KeyLock<'a>> {
        if self.stripes.is_empty() || holder.held.any() {
            return Some(KeyLock::None);
        }
        self.stripe(db, hash).try_write().map(|guard| KeyLock::Exclusive { _guard: guard })
    }

    /// Whether an expired key may be removed under the locks that the worker holds.
    pub fn may_remove(&self, holder: &Holder) -> bool {
        self.stripes.is_empty() || holder.held.shared_count.load(Ordering::Relaxed) == 0
    }

    /// Locks several keys in ascending order of their stripes. Within a lock set, a further one is empty: the
    /// first has to name every key that must not change.
    pub fn lock_keys(&self, holder: &Holder, keys: &[(DbId, Key<'_>)], write: bool) -> Locks {
        if self.stripes.is_empty() {
            return Locks { _stripes: Vec::new(), held: None, gate: None };
        }
        let mut indices: Vec<usize> = Vec::new();
        if !holder.held.any() {
            indices.extend(keys.iter().map(|(db, key)| self.index(*db, key.hash)));
            indices.sort_unstable();
            indices.dedup();
        }
        let stripes = indices.into_iter().map(|index| self.lock_stripe(holder, index, write)).collect();
        holder.held.counter(write).fetch_add(1, Ordering::Relaxed);
        let gate = write.then(|| self.gate.clone());
        gate.iter().for_each(|gate| gate.enter());
        Locks { _stripes: stripes, held: Some((holder.held.clone(), write)), gate }
    }

    /// Until the result is dropped, reads of one key wait for the thread that has locked it, as if a command on several keys were under
    /// way.
    pub fn read_behind_locks(&self) -> BehindLocks {
        let gate = (!self.stripes.is_empty()).then(|| self.gate.clone());
        gate.iter().for_each(|gate| gate.enter());
        BehindLocks { gate }
    }

    /// A lock set without locks, for a worker that has stopped the others.
    pub fn need_no_locks(&self, holder: &Holder) -> Locks {
        self.lock_keys(holder, &[], true)
    }

    fn lock_stripe(&self, holder: &Holder, index: usize, write: bool) -> OwnedStripe {
        let stripe = &self.stripes[index];
        if write {
            let taken = stripe.try_write_arc();
            OwnedStripe::Exclusive {
                _guard: taken.unwrap_or_else(|| holder.member.idle(|| stripe.write_arc())),
            }
        } else {
            let taken = stripe.try_read_arc();
            OwnedStripe::Shared { _guard: taken.unwrap_or_else(|| holder.member.idle(|| stripe.read_arc())) }
        }
    }
}
