//! What a command takes, counted and not timed: instructions, calls of the allocator, system calls, page faults. A count is
//! the same on a busy machine, so a test can hold it.

pub mod baseline;
pub mod callgrind;
pub mod cases;
pub mod figures;
pub mod locked;
pub mod native;
pub mod server;
pub mod valgrind;
