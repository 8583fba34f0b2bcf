//! A thread that works in the background until it is told to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::{sched, PoolError};

/// Whether a thread is to end: it looks now and then.
#[derive(Clone, Default)]
pub struct StopSign(Arc<AtomicBool>);

impl StopSign {
    pub fn is_given(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The thread, from outside. It ends when this is dropped, if not before.
pub struct Background {
    stop: StopSign,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Background {
    /// Runs `body`, which ends when the sign is given.
    ///
    /// # Errors
    /// [`PoolError::Thread`].
    pub fn start(
        name: &str,
        stop: StopSign,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<Background, PoolError> {
        let name = name.to_owned();
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
            sched::enroll(&name);
            body();
        });
        let thread = thread.map_err(PoolError::Thread)?;
        Ok(Background { stop, thread: Mutex::new(Some(thread)) })
    }

    /// Ends a rest of the thread.
    pub fn wake(&self) {
        self.thread.lock().iter().for_each(|thread| thread.thread().unpark());
    }

    /// Ends the thread.
    pub fn shut_down(&self) {
        self.stop.0.store(true, Ordering::Release);
        let Some(thread) = self.thread.lock().take() else { return };
        thread.thread().unpark();
        // One that panicked has nothing to give back.
        let _ = thread.join();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.shut_down();
    }
}
