//! What of the standard library the models in `tests` replace by loom's.

pub use std::hint::spin_loop;
pub use std::sync::atomic;
pub use std::sync::Mutex;
pub use std::thread::yield_now;
