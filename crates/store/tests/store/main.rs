//! The store against a model. A failure is replayed with `STILLFRAME_SEED=<seed>`.

mod ahead;
mod captures;
mod closing;
mod contract;
mod effects;
mod evict;
mod expiry;
#[path = "../support/held_up.rs"]
mod held_up;
mod incoming;
mod input;
mod libraries;
mod library_failures;
mod loading;
mod looking;
mod model;
mod reopen;
mod resolve;
mod restart;
mod scan;
mod sending;
mod soak;
mod steps;
mod threads;
mod waiting;

use stillframe_store::{Options, Store};
use stillframe_testkit::TempDir;

fn open(dir: &TempDir, options: Options) -> Store {
    let options = Options { pool_backend: stillframe_testkit::pool_backend(), ..options };
    Store::open(dir.path(), options).expect("the store opens")
}
