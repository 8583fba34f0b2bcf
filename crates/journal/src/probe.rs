//! Which way to make a write durable is the faster one on this device.

use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stillframe_pagepool::device::{Device, DeviceError, SyncMethod};
use stillframe_pagepool::PAGE_SIZE;

use crate::bytes::AlignedBytes;
use crate::shared::Method;

const ROUNDS: usize = 5;
const WRITES_A_ROUND: u64 = 20;
/// A way that wants to be used instead of the other wins each round by so much: on a busy machine one run is noise.
const MARGIN: f64 = 1.3;
/// A device for which it takes longer is not measured to the end.
const LIMIT: Duration = Duration::from_secs(5);

/// Times both in turns on a spare, which is all zeros and stays so.
///
/// # Errors
/// Those of the device.
pub fn measure(method: &Method, device: &dyn Device, segment_bytes: u64) -> Result<(), DeviceError> {
    let began = Instant::now();
    let mut rounds = Vec::new();
    let mut page = 0;
    while rounds.len() < ROUNDS {
        if began.elapsed() > LIMIT {
            return Ok(());
        }
        let dsync_ns = time(device, SyncMethod::Dsync, &mut page, segment_bytes)?;
        let fdatasync_ns = time(device, SyncMethod::Fdatasync, &mut page, segment_bytes)?;
        rounds.push((dsync_ns, fdatasync_ns));
    }
    method.dsync_ns.store(median(rounds.iter().map(|round| round.0).collect()), Ordering::Relaxed);
    method.fdatasync_ns.store(median(rounds.iter().map(|round| round.1).collect()), Ordering::Relaxed);
    method.set(choose(method.get(), &rounds));
    Ok(())
}

/// The mean of one round in nanoseconds.
fn time(
    device: &dyn Device,
    method: SyncMethod,
    page: &mut u64,
    segment_bytes: u64,
) -> Result<u64, DeviceError> {
    let zeros = AlignedBytes::new(PAGE_SIZE);
    let began = Instant::now();
    for _ in 0..WRITES_A_ROUND {
        device.write_durably(*page * PAGE_SIZE as u64, &[IoSlice::new(zeros.get())], method)?;
        *page = (*page + 1) % (segment_bytes / PAGE_SIZE as u64);
    }
    Ok(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX) / WRITES_A_ROUND)
}

fn median(mut rounds_ns: Vec<u64>) -> u64 {
    rounds_ns.sort_unstable();
    rounds_ns[rounds_ns.len() / 2].max(1)
}

/// `rounds`: nanoseconds of a write by `RWF_DSYNC`, and of one by `fdatasync`.
fn choose(now: SyncMethod, rounds: &[(u64, u64)]) -> SyncMethod {
    let wins = |one: u64, other: u64| one as f64 * MARGIN < other as f64;
    match now {
        SyncMethod::Dsync if rounds.iter().all(|(dsync, fdatasync)| wins(*fdatasync, *dsync)) => {
            SyncMethod::Fdatasync
        }
        SyncMethod::Dsync => SyncMethod::Dsync,
        _ if rounds.iter().all(|(dsync, fdatasync)| wins(*dsync, *fdatasync)) => SyncMethod::Dsync,
        _ => SyncMethod::Fdatasync,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_has_to_win_each_round_and_clearly() {
        use SyncMethod::{Dsync, Fdatasync};
        assert_eq!(choose(Fdatasync, &[(10, 14), (10, 20)]), Dsync);
        assert_eq!(choose(Fdatasync, &[(10, 14), (10, 12)]), Fdatasync);
        assert_eq!(choose(Dsync, &[(14, 10), (20, 10)]), Fdatasync);
        assert_eq!(choose(Dsync, &[(14, 10), (10, 10)]), Dsync);
        assert_eq!(median(vec![5, 1, 3]), 3);
    }
}
