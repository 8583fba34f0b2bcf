//! Every checkpoint and every dump is the data between two commands or transactions, of one instant for all clients: random
//! transactions that empty and exchange databases, walk over keys and read and change big values, with 1 to 4 workers,
//! before and while pages come back after a kill. What each save has written is read and held against the model.
//!
//! `STILLFRAME_CUTS=<count>` sets how many saves are compared, `STILLFRAME_SEED=<seed>` replays the decisions,
//! `STILLFRAME_SERVER=<path>` takes another build of the server.

#[path = "../algorithms/mod.rs"]
mod algorithms;
#[allow(dead_code)]
#[path = "../crash/instant.rs"]
mod instant;
#[path = "../crash/ledger.rs"]
mod ledger;
#[allow(dead_code)]
#[path = "../crash/model.rs"]
mod model;
#[path = "../crash/process.rs"]
mod process;
mod runner;
mod saved;
#[path = "../crash/script.rs"]
mod script;

use runner::{Config, Runner};
use stillframe_pagepool::SnapshotKind;

/// Saves that are compared unless the environment says how many.
const SAVE_COUNT: u32 = 320;
/// A server is killed and started again after so many.
const SAVES_A_START: u32 = 10;

fn number_of(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// One after the other for each number of workers, with the default algorithm and with one of the others, which take turns: both
/// tests together have all of them, and make the count.
fn run_half(has_one_lane: bool) {
    let seed = stillframe_testkit::seed();
    let save_count = number_of("STILLFRAME_CUTS").map_or(SAVE_COUNT, |count| count as u32);
    let mut compared_count = 0;
    let others: Vec<SnapshotKind> = algorithms::others().collect();
    let first = seed as usize % others.len() + if has_one_lane { 4 } else { 0 };
    for worker_count in 1..=4 {
        let other = others[(first + worker_count as usize) % others.len()];
        for algorithm in [SnapshotKind::default(), other] {
            let config = Config { worker_count, algorithm, has_one_lane };
            let mut runner = Runner::new(seed ^ u64::from(worker_count) << 32, config);
            let mut left = save_count.div_ceil(16);
            while left > 0 {
                let count = left.min(SAVES_A_START);
                runner.run(count);
                left -= count;
            }
            compared_count += runner.compared_count();
            println!("{config:?}: {:?}", runner.tally());
        }
    }
    println!("{compared_count} saves compared, none torn");
}

/// Several clients, each with databases of its own.
#[test]
fn saves_are_between_transactions_of_several_clients() {
    run_half(false);
}

/// One client, which also empties all databases.
#[test]
fn saves_are_between_commands_that_concern_all_databases() {
    run_half(true);
}
