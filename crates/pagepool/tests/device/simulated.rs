//! What the simulated device adds: faults by number, and crashes in the middle of a call.

use std::collections::HashSet;

use stillframe_pagepool::device::{Device, Fault, SimDevice};

use crate::support::{offset_of, singles, transfer};

const PAGE_COUNT: usize = 40;

fn write_pages(device: &SimDevice) -> Vec<bool> {
    device.allocate(offset_of(PAGE_COUNT)).unwrap();
    transfer(device, &singles(0..PAGE_COUNT, Some(1))).iter().map(|end| end.is_ok()).collect()
}

#[test]
fn each_operation_of_a_call_counts_and_fails_alone() {
    let device = SimDevice::new(stillframe_testkit::seed_or(5));
    write_pages(&device);
    device.sync_data().unwrap();
    let before = device.call_count();
    device.schedule(before + 7, Fault::Error);
    let failed = write_pages(&device).iter().filter(|is_done| !**is_done).count();
    // One call is the allocation.
    assert_eq!((device.call_count() - before, failed), (1 + PAGE_COUNT as u64, 1));
}

/// The order of a call is not that of its operations: after a crash any part of them may have been done.
#[test]
fn a_crash_in_the_middle_of_a_call_leaves_any_part_of_it() {
    let mut orders = HashSet::new();
    for seed in 0..20 {
        let device = SimDevice::new(seed);
        device.schedule(1 + PAGE_COUNT as u64 / 2, Fault::Crash);
        let done = write_pages(&device);
        assert_eq!(done.iter().filter(|is_done| **is_done).count(), PAGE_COUNT / 2);
        orders.insert(done);
    }
    assert!(orders.len() > 10);
}
