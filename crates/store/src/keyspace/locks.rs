//! Striped key locks, for commands that need several keys not to change (invariants C2 and C8).

use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::sync::Arc;

use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, RawRwLock, RwLock};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;
use stillframe_pagepool::{prefetch_value_for_write, Member};

use super::gate::Gate;
use super::sharing::Sharing;
use super::steps::{Acting, EndOfOperation};
use crate::{DbId, Key};

const STRIPE_COUNT: usize = 1024;

/// One lock to a cache line, lest neighbours contend.
type Stripe = Arc<RwLock<Padding>>;

#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Padding;

/// The stripes: there are some as soon as several threads may work on keys.
pub(crate) struct StripeLocks {
    sharing: Sharing<Stripes>,
    gate: Arc<Gate>,
    /// Threads that wait for a lock, until they are at work again.
    waiting_count: AtomicU32,
}

struct Stripes(Box<[Stripe]>);

/// The lock sets that a worker holds. Only its thread takes and drops them: the counts need no locked instruction.
struct HeldLocks {
    shared_count: AtomicU32,
    exclusive_count: AtomicU32,
    /// Passed by those who write.
    gate: Arc<Gate>,
}

impl HeldLocks {
    fn any(&self) -> bool {
        self.shared_count.load(Ordering::Relaxed) + self.exclusive_count.load(Ordering::Relaxed) > 0
    }

    fn enter(&self, write: bool) {
        let counter = self.counter(write);
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if write {
            self.gate.enter();
        }
    }

    fn leave(&self, write: bool) {
        if write {
            self.gate.leave();
        }
        let counter = self.counter(write);
        counter.store(counter.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    fn counter(&self, write: bool) -> &AtomicU32 {
        match write {
            true => &self.exclusive_count,
            false => &self.shared_count,
        }
    }
}

/// Who takes locks: a worker, as a member of the barrier.
pub(crate) struct Holder {
    pub member: Member,
    held: Arc<HeldLocks>,
    pub acting: Arc<Acting>,
}

impl Holder {
    fn new(member: Member, acting: Arc<Acting>, gate: Arc<Gate>) -> Holder {
        let held = HeldLocks { shared_count: AtomicU32::new(0), exclusive_count: AtomicU32::new(0), gate };
        Holder { member, held: Arc::new(held), acting }
    }

    fn ends_operation(&self) -> EndOfOperation {
        debug_assert!(!self.acting.is_open(), "a step changes a key that it has not locked");
        EndOfOperation(self.acting.clone())
    }
}

enum OwnedStripe {
    Shared { _guard: ArcRwLockReadGuard<RawRwLock, Padding> },
    Exclusive { _guard: ArcRwLockWriteGuard<RawRwLock, Padding> },
}

/// Locks on the keys of a command that needs several to change at once; released when dropped.
/// Empty if a single worker has the store to itself.
#[must_use]
pub struct Locks {
    _stripes: SmallVec<[OwnedStripe; 2]>,
    held: Option<(Arc<HeldLocks>, bool)>,
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
        if let Some((held, write)) = &self.held {
            held.leave(*write);
        }
    }
}

/// The lock of a single-key operation.
pub(crate) enum KeyLock<'a> {
    /// The worker has the store to itself, or the caller holds a lock set.
    None,
    Shared {
        _guard: RwLockReadGuard<'a, Padding>,
    },
    Exclusive {
        // Dropped in this order.
        _ends: EndOfOperation,
        _guard: RwLockWriteGuard<'a, Padding>,
    },
}

impl Stripes {
    fn make() -> Stripes {
        Stripes((0..STRIPE_COUNT).map(|_| Stripe::default()).collect())
    }

    #[inline(always)]
    fn index(&self, db: DbId, hash: u64) -> usize {
        let mixed = (hash ^ u64::from(db.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % self.0.len()
    }

    #[inline(always)]
    fn of(&self, db: DbId, hash: u64) -> &Stripe {
        &self.0[self.index(db, hash)]
    }
}

/// Whether operations take locks; as of [`Sharing`].
impl StripeLocks {
    pub fn new(expects_several: bool) -> StripeLocks {
        StripeLocks {
            sharing: Sharing::new(expects_several, Stripes::make),
            gate: Arc::default(),
            waiting_count: AtomicU32::new(0),
        }
    }

    /// A worker that may take locks.
    pub fn holder(&self, member: Member, acting: Arc<Acting>) -> Holder {
        Holder::new(member, acting, self.gate.clone())
    }

    /// Whether everybody takes locks.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.sharing.is_shared()
    }

    #[must_use]
    pub fn come(&self, is_seated: bool) -> bool {
        self.sharing.come(is_seated)
    }

    pub fn go(&self, is_seated: bool) {
        self.sharing.go(is_seated);
    }

    #[must_use]
    pub fn try_share(&self) -> bool {
        self.sharing.try_share(Stripes::make)
    }

    pub fn share(&self) {
        self.sharing.share(Stripes::make);
    }
}

impl StripeLocks {
    /// Hints that a key will be locked for a write soon.
    #[inline(always)]
    pub fn prefetch(&self, db: DbId, hash: u64) {
        if let Some(stripes) = self.sharing.locks() {
            prefetch_value_for_write(&**stripes.of(db, hash));
        }
    }

    /// Locks one key for an operation that may change it. Waiting counts as quiescent: nothing has been done yet.
    #[inline(always)]
    pub fn lock_key<'a>(&'a self, holder: &Holder, db: DbId, hash: u64) -> KeyLock<'a> {
        let Some(stripes) = self.sharing.locks() else { return KeyLock::None };
        if holder.held.any() {
            return KeyLock::None;
        }
        let stripe = stripes.of(db, hash);
        let taken = stripe.try_write();
        let guard = taken.unwrap_or_else(|| self.wait(holder, || stripe.write()));
        KeyLock::Exclusive { _ends: holder.ends_operation(), _guard: guard }
    }

    /// The same for an operation that reads one key: takes nothing as long as no command changes several (C8).
    #[inline(always)]
    pub fn lock_key_to_read<'a>(&'a self, holder: &Holder, db: DbId, hash: u64) -> KeyLock<'a> {
        if self.gate.is_clear() || holder.held.any() {
            return KeyLock::None;
        }
        // An operation that has passed the gate has locks.
        let Some(stripes) = self.sharing.locks() else { return KeyLock::None };
        let stripe = stripes.of(db, hash);
        let taken = stripe.try_read();
        KeyLock::Shared { _guard: taken.unwrap_or_else(|| self.wait(holder, || stripe.read())) }
    }

    /// The lock of a key whose value lies in several pages, for an operation that reads it.
    #[inline(always)]
    pub fn lock_key_shared<'a>(&'a self, holder: &Holder, db: DbId, hash: u64) -> KeyLock<'a> {
        let Some(stripes) = self.sharing.locks() else { return KeyLock::None };
        if holder.held.any() {
            return KeyLock::None;
        }
        let stripe = stripes.of(db, hash);
        let taken = stripe.try_read();
        KeyLock::Shared { _guard: taken.unwrap_or_else(|| self.wait(holder, || stripe.read())) }
    }

    /// The lock of a key that background work may change: `None` if somebody holds the key.
    pub fn try_lock_key<'a>(&'a self, holder: &Holder, db: DbId, hash: u64) -> Option<KeyLock<'a>> {
        let Some(stripes) = self.sharing.locks() else { return Some(KeyLock::None) };
        if holder.held.any() {
            return Some(KeyLock::None);
        }
        stripes
            .of(db, hash)
            .try_write()
            .map(|guard| KeyLock::Exclusive { _ends: holder.ends_operation(), _guard: guard })
    }

    /// Whether an expired key may be removed under the locks that the worker holds.
    pub fn may_remove(&self, holder: &Holder) -> bool {
        !self.is_shared() || holder.held.shared_count.load(Ordering::Relaxed) == 0
    }

    /// Locks several keys in ascending order of their stripes. Within a lock set, a further one is empty: the
    /// first has to name every key that must not change.
    pub fn lock_keys(&self, holder: &Holder, keys: &[(DbId, Key<'_>)], write: bool) -> Locks {
        let Some(stripes) = self.sharing.locks() else {
            return Locks { _stripes: SmallVec::new(), held: None };
        };
        let mut indices: SmallVec<[usize; 2]> = SmallVec::new();
        if !holder.held.any() {
            indices.extend(keys.iter().map(|(db, key)| stripes.index(*db, key.hash)));
            indices.sort_unstable();
            indices.dedup();
        }
        let stripes =
            indices.into_iter().map(|index| self.lock_stripe(holder, &stripes.0[index], write)).collect();
        holder.held.enter(write);
        Locks { _stripes: stripes, held: Some((holder.held.clone(), write)) }
    }

    /// Until the result is dropped, reads of one key wait for the thread that has locked it, as if a command on several keys were under
    /// way.
    pub fn read_behind_locks(&self) -> BehindLocks {
        let gate = self.is_shared().then(|| self.gate.clone());
        gate.iter().for_each(|gate| gate.enter());
        BehindLocks { gate }
    }

    /// Waits for the thread that has locked a key to change it, if one has. A change that this thread has met was made under the lock, so
    /// its step has ended when this returns.
    pub fn await_writer(&self, holder: &Holder, db: DbId, hash: u64) {
        let Some(stripes) = self.sharing.locks() else { return };
        if holder.held.any() {
            return;
        }
        let stripe = stripes.of(db, hash);
        if stripe.is_locked_exclusive() {
            drop(stripe.try_read().unwrap_or_else(|| self.wait(holder, || stripe.read())));
        }
        // The look itself orders nothing.
        fence(Ordering::Acquire);
    }

    /// A lock set without locks, for a worker that has stopped the others.
    pub fn need_no_locks(&self, holder: &Holder) -> Locks {
        self.lock_keys(holder, &[], true)
    }

    /// Whether a thread waits for a lock, or has got one and is not at work yet. To be asked by a worker that has stopped the others:
    /// such a thread is quiescent in the middle of a command.
    pub fn has_waiting(&self) -> bool {
        self.waiting_count.load(Ordering::SeqCst) > 0
    }

    #[cold]
    fn wait<R>(&self, holder: &Holder, lock: impl FnOnce() -> R) -> R {
        // Before this thread is seen as quiescent.
        self.waiting_count.fetch_add(1, Ordering::SeqCst);
        let guard = holder.member.idle(lock);
        self.waiting_count.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    fn lock_stripe(&self, holder: &Holder, stripe: &Stripe, write: bool) -> OwnedStripe {
        if write {
            let taken = stripe.try_write_arc();
            OwnedStripe::Exclusive {
                _guard: taken.unwrap_or_else(|| self.wait(holder, || stripe.write_arc())),
            }
        } else {
            let taken = stripe.try_read_arc();
            OwnedStripe::Shared { _guard: taken.unwrap_or_else(|| self.wait(holder, || stripe.read_arc())) }
        }
    }
}
