//! What a crash, a full disk and a damaged file may do to a server: never more than take it back to its last
//! completed checkpoint, and never without saying so. Replay the decisions of a failed test with
//! `STILLFRAME_SEED=<seed>`; `STILLFRAME_KILLS=<count>` sets how many rounds each test of kills runs.

#[path = "../algorithms/mod.rs"]
mod algorithms;
mod damage;
mod disk;
mod instant;
mod kill;
mod lane;
#[allow(dead_code)]
mod ledger;
mod log_evicted;
mod log_found;
mod log_ledger;
mod log_model;
mod log_moves;
mod log_player;
mod log_shared;
mod log_starts;
mod log_streams;
mod model;
mod moves;
mod process;
mod script;
mod verify;
