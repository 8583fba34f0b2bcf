//! Latches that a thread holds, counted in debug builds: who holds one waits for nobody who may want it (invariant L1).
//! So every test finds such a wait, and not only the one in which two threads meet there.

#[cfg(debug_assertions)]
thread_local! {
    static HELD_COUNT: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

/// Part of a guard: a latch that this thread has taken and has not given up yet.
pub struct Held(());

impl Held {
    #[inline(always)]
    pub fn new() -> Held {
        #[cfg(debug_assertions)]
        HELD_COUNT.with(|count| count.set(count.get() + 1));
        Held(())
    }

    /// For a guard that is forgotten instead of dropped.
    #[inline(always)]
    pub fn give_up() {
        #[cfg(debug_assertions)]
        HELD_COUNT.with(|count| count.set(count.get() - 1));
    }

    /// Asserts that this thread holds no latch.
    #[inline(always)]
    pub fn assert_none() {
        #[cfg(debug_assertions)]
        HELD_COUNT.with(|count| assert_eq!(count.get(), 0, "L1: waits upwards with a latch held"));
    }
}

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        Held::give_up();
    }
}
