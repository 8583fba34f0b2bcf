//! The contract of physical snapshot algorithms, one suite for all. Replayed by `STILLFRAME_SEED`; `STILLFRAME_SEEDS` says
//! how many seeds from that one on.

mod contract;
#[cfg(feature = "mutations")]
mod intruder;
mod picture;
mod whole;
mod world;

use stillframe_algorithms::PhysicalKind;

#[test]
fn naive() {
    contract::all(PhysicalKind::Naive);
}

#[test]
fn cou() {
    contract::all(PhysicalKind::Cou);
}

#[test]
fn zigzag() {
    contract::all(PhysicalKind::Zigzag);
}

#[test]
fn pingpong() {
    contract::all(PhysicalKind::PingPong);
}

#[test]
fn hourglass() {
    contract::all(PhysicalKind::Hourglass);
}

#[test]
fn piggyback() {
    contract::all(PhysicalKind::Piggyback);
}

#[test]
fn epoch() {
    contract::all(PhysicalKind::Epoch);
}
