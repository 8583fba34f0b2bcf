//! Loom's locks with the faces of those that the pool uses, for sources that the models include.
#![allow(dead_code, unused_imports)]

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

pub use loom::sync::{atomic, Arc, RwLockReadGuard, RwLockWriteGuard};

#[derive(Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

pub struct RawMutex;

/// A guard that keeps its mutex.
pub struct ArcMutexGuard<R, T: 'static> {
    /// First, so that it goes before the mutex.
    _guard: loom::sync::MutexGuard<'static, T>,
    _mutex: std::sync::Arc<Mutex<T>>,
    _raw: PhantomData<R>,
}

impl<T: 'static> Mutex<T> {
    /// Nobody gives up here.
    pub fn try_lock_arc_for(
        self: &std::sync::Arc<Self>,
        _limit: std::time::Duration,
    ) -> Option<ArcMutexGuard<RawMutex, T>> {
        Some(self.lock_arc())
    }

    pub fn lock_arc(self: &std::sync::Arc<Self>) -> ArcMutexGuard<RawMutex, T> {
        let mutex = self.clone();
        let guard = mutex.0.lock().expect("no holder panics");
        // SAFETY: M1, in the small: the guard borrows from the mutex that is kept beside it, at a fixed place, and goes
        // before it.
        let guard = unsafe {
            std::mem::transmute::<loom::sync::MutexGuard<'_, T>, loom::sync::MutexGuard<'static, T>>(guard)
        };
        ArcMutexGuard { _guard: guard, _mutex: mutex, _raw: PhantomData }
    }
}

pub struct MutexGuard<'m, T>(Option<loom::sync::MutexGuard<'m, T>>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn try_lock_for(&self, _limit: std::time::Duration) -> Option<MutexGuard<'_, T>> {
        Some(self.lock())
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect("no holder panics")))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("gone only within a wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("gone only within a wait")
    }
}

pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub fn new() -> Condvar {
        Condvar(loom::sync::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("gone only within a wait");
        guard.0 = Some(self.0.wait(held).expect("no holder panics"));
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

pub struct RwLock<T>(loom::sync::RwLock<T>);

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        RwLock::new(T::default())
    }
}

impl<T> RwLock<T> {
    pub fn new(value: T) -> RwLock<T> {
        RwLock(loom::sync::RwLock::new(value))
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect("no holder panics")
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().expect("no holder panics")
    }
}
