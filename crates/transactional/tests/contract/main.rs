//! The contract that every algorithm keeps: several threads with transfers, partial writes and aborts, cuts at random times,
//! images that fail or take their time; everything is held against the history of what was committed.
//!
//! `STILLFRAME_SEED=n` replays a seed; `STILLFRAME_SEEDS=1000` tries so many of each algorithm.

#[path = "../common/mod.rs"]
mod common;
mod threads;

use stillframe_transactional::{Algorithm, Calc, Cpr, VirtualHourglass, VirtualPiggyback};

const FEW_SEEDS: u64 = 20;

fn run_seeds<A: Algorithm>() {
    let seeds = stillframe_testkit::seeds(fastrand::u64(..), FEW_SEEDS);
    let seed_count = seeds.end - seeds.start;
    let mut totals = threads::Totals::default();
    for seed in seeds {
        match threads::run::<A>(seed) {
            Ok(run) => totals.add(&run),
            Err(error) => panic!("STILLFRAME_SEED={seed}: {error}"),
        }
    }
    println!("{seed_count} seeds: {totals:?}");
    // A suite in which nothing happens proves nothing.
    assert!(totals.image_count > 2 * seed_count && totals.failed_image_count > 0, "{totals:?}");
    assert!(totals.aborts > 0 && totals.restarts > 0, "{totals:?}");
}

macro_rules! contract {
    ($($name:ident: $algorithm:ty),*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn images_are_prefixes() {
                run_seeds::<$algorithm>();
            }
        }
    )*};
}

contract!(calc: Calc, cpr: Cpr, vhg: VirtualHourglass, vpb: VirtualPiggyback);
