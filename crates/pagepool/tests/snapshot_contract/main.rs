//! One contract for every snapshot algorithm: pictures equal a model cloned at the cut, with writers running.
//!
//! Each test runs with a fixed seed and with a random one; replay a failure with `STILLFRAME_SEED=<seed>`. All run on each
//! backend; `STILLFRAME_POOL_BACKEND=array` runs them on that alone, `=exmap` on the kernel module, if it is there.

mod ahead;
mod budget;
mod checkpoints;
mod contract;
mod loading;
mod places;
mod races;
mod requests;
mod reuse;
#[path = "../small_pool/mod.rs"]
mod small_pool;
mod support;
mod writers;
