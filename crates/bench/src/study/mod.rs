//! The comparative study's set-up (Li et al., TKDE 2019, section 5.2): a client that updates rows tick by tick, and a thread
//! that dumps a snapshot of them after the other, by any of the algorithms.
//!
//! From the ground up: [`subject`] the algorithms by name, [`case`] what is measured and what comes out, [`draw`] fresh
//! updates, [`memory`] rows in populated memory, [`image_file`] where images go, [`engine`] the seam, [`engines`] one file a
//! kind, [`driver`] the ticks, [`measure()`] from a plan to its outcome, [`host`] the processes that do it.

mod case;
mod draw;
mod driver;
mod engine;
mod engines;
mod host;
mod image_file;
mod measure;
mod memory;
mod subject;

pub use case::{Case, Draw, Outcome, Reply, Ticks, Work, Writes, TICK_NS};
pub use host::{Host, GUEST};
pub use measure::measure;
pub use subject::Subject;
