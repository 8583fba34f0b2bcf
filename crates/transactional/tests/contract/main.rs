//! The contract that every algorithm keeps: several threads with transfers, partial writes and aborts, cuts at random times,
//! images that fail or take their time; everything is held against the history of what was committed.
//!
//! `STILLFRAME_SEED=n` replays a seed; a thousand of each algorithm: `cargo test -p stillframe-transactional --test contract
//! -- --ignored`.

#[path = "../common/mod.rs"]
mod common;
mod threads;

use stillframe_transactional::{Algorithm, Calc, Cpr, VirtualHourglass, VirtualPiggyback};

const FEW_SEEDS: u64 = 20;
const MANY_SEEDS: u64 = 1000;

fn run_seeds<A: Algorithm>(seed_count: u64) {
    let first = stillframe_testkit::seed();
    let mut totals = threads::Totals::default();
    for seed in (0..seed_count).map(|number| first.wrapping_add(number)) {
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
                run_seeds::<$algorithm>(FEW_SEEDS);
            }

            #[test]
            #[ignore = "takes a minute or two"]
            fn images_are_prefixes_for_a_thousand_seeds() {
                run_seeds::<$algorithm>(MANY_SEEDS);
            }
        }
    )*};
}

contract!(calc: Calc, cpr: Cpr, vhg: VirtualHourglass, vpb: VirtualPiggyback);
