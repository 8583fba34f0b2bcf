//! What a crash, a full disk and a damaged file may do to a server: never more than take it back to its last
//! completed checkpoint, and never without saying so. Replay the decisions of a failed test with
//! `STILLFRAME_SEED=<seed>`.

mod damage;
mod disk;
mod kill;
mod lane;
mod model;
mod process;
#[allow(dead_code)]
#[path = "../differential/resp.rs"]
mod resp;
mod verify;

/// The seed of a random test: `STILLFRAME_SEED`, or a fresh one. Printed, so that a failure can be replayed.
fn seed() -> u64 {
    let given = std::env::var("STILLFRAME_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("STILLFRAME_SEED={seed}");
    seed
}
