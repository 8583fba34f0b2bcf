//! Pages that are still being brought in: frees, allocations and views meanwhile.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use stillframe_pagepool::device::{Device, DeviceError, SimDevice};
use stillframe_pagepool::pagefile::USER_HEADER_BYTES;
use stillframe_pagepool::snapshot::Progress;
use stillframe_pagepool::{CheckpointError, PageId, Pool, Restart, SnapshotKind, PAGE_SIZE};

use crate::support::*;

/// Holds up reads of chosen places.
struct GatedDevice {
    inner: SimDevice,
    gates: Mutex<Vec<(u64, Arc<Gate>)>>,
}

impl GatedDevice {
    fn new() -> Arc<GatedDevice> {
        Arc::new(GatedDevice { inner: SimDevice::new(1), gates: Mutex::default() })
    }

    /// A gate before the page with this content.
    fn gate(&self, fill: u8) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        self.gates.lock().push((self.offset_of(fill), gate.clone()));
        gate
    }

    fn offset_of(&self, fill: u8) -> u64 {
        let image = self.inner.image();
        let page = filled(fill);
        (image.chunks(PAGE_SIZE).position(|found| found == page).unwrap() * PAGE_SIZE) as u64
    }
}

impl Device for GatedDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let end = offset + bufs.iter().map(|buf| buf.len() as u64).sum::<u64>();
        let in_the_way = |(place, _): &&(u64, Arc<Gate>)| (offset..end).contains(place);
        let gate = self.gates.lock().iter().find(in_the_way).map(|(_, gate)| gate.clone());
        gate.into_iter().for_each(|gate| gate.pass());
        self.inner.read_at(offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.inner.write_at(offset, bufs)
    }

    fn sync_data(&self) -> Result<(), DeviceError> {
        self.inner.sync_data()
    }

    fn len(&self) -> Result<u64, DeviceError> {
        self.inner.len()
    }

    fn allocate(&self, len: u64) -> Result<(), DeviceError> {
        self.inner.allocate(len)
    }

    fn truncate(&self, len: u64) -> Result<(), DeviceError> {
        self.inner.truncate(len)
    }
}

const BUDGET: u64 = 1 << 20;
/// Content of pages that only fill the page file.
const SMALL: u8 = 200;

fn open(device: &Arc<GatedDevice>) -> Arc<Pool> {
    let device: Arc<dyn Device> = device.clone();
    Pool::open(device, &options(SnapshotKind::Epoch, BUDGET)).unwrap().0
}

fn checkpoint(pool: &Arc<Pool>) {
    pool.checkpoint(|| [0; USER_HEADER_BYTES], &Progress::default()).unwrap();
}

/// A page file with `small_count` small pages before an object of 40 pages with contents 1, 2, …
fn device_with_object(small_count: u32) -> (Arc<GatedDevice>, PageId) {
    let device = GatedDevice::new();
    let pool = open(&device);
    (0..small_count).for_each(|_| fill_page(&pool, new_object(&pool, 1, 0), SMALL));
    let mut object = pool.allocate_object(40, 40).unwrap();
    (0..40).for_each(|index| object.object_page_mut(index).unwrap().fill(index as u8 + 1));
    let head = object.id();
    drop(object);
    checkpoint(&pool);
    (device, head)
}

/// Pages of a freed object are not used again, nor is their memory given back, while a loader reads into them.
#[test]
fn an_object_is_freed_while_it_is_read() {
    // The warm-up is held up in its first batch, then in its second, which is the object but for its head.
    let (device, head) = device_with_object(3000);
    let (first_batch, second_batch) = (device.gate(SMALL), device.gate(6));
    let pool = open(&device);
    first_batch.wait_for_visitor();
    pool.load(&[head]);
    let object = pool.try_exclusive(head).unwrap();
    first_batch.open();
    second_batch.wait_for_visitor();
    pool.free(object, 40);
    let meanwhile = pool.allocate_object(40, 40).unwrap();
    assert_ne!(meanwhile.id(), head, "pages that are being read are not used again");
    second_batch.open();
    pool.wait_until_warm();
    let after = pool.allocate_object(40, 40).unwrap();
    assert_eq!(after.id(), head, "they are used again once they have been read");
    for index in 0..40 {
        assert!(after.object_page(index).unwrap() == &filled(0), "page {index} of a new object is zero");
    }
    assert_eq!(pool.stats().allocated_pages, 3080);
}

/// A view shows what is in the page file, also when it is asked for while that is still being read.
#[test]
fn a_view_waits_for_the_warm_up() {
    let (device, head) = device_with_object(0);
    let gate = device.gate(6);
    let pool = open(&device);
    gate.wait_for_visitor();
    let for_viewer = pool.clone();
    let viewer = thread::spawn(move || {
        let view = for_viewer.view_after(|| ()).unwrap();
        let mut bytes = filled(0);
        view.read_page(PageId(head.0 + 5), &mut bytes).unwrap();
        bytes
    });
    thread::sleep(std::time::Duration::from_millis(20));
    gate.open();
    assert!(viewer.join().unwrap() == filled(6));
}

/// A damaged page is an error in a view too, with its place, until it is freed and used again.
#[test]
fn a_view_reports_damage() {
    let (device, head) = device_with_object(0);
    let offset = device.offset_of(6);
    device.inner.corrupt(offset + 7, 1, |bytes| bytes[0] ^= 1);
    let pool = open(&device);
    let view = pool.view_after(|| ()).unwrap();
    let damaged = PageId(head.0 + 5);
    for index in 0..40 {
        let mut bytes = filled(0);
        match view.read_page(PageId(head.0 + index), &mut bytes) {
            Ok(()) => assert!(index != 5 && bytes == filled(index as u8 + 1), "page {index}"),
            Err(CheckpointError::Io(reason)) => {
                assert!(index == 5 && reason.contains(&offset.to_string()), "page {index}: {reason}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    drop(view);
    free_object(&pool, head, 40);
    assert_eq!(new_object(&pool, 40, 9), head);
    let view = pool.view_after(|| ()).unwrap();
    let mut bytes = filled(0);
    view.read_page(damaged, &mut bytes).unwrap();
    assert!(bytes == filled(9));
    free_object(&pool, head, 40);
    assert_eq!(pool.shared(damaged).err(), Some(Restart::Fault(damaged)), "freed, not damaged");
}

/// A page number that a damaged file has made up is an error, not a panic.
#[test]
fn there_is_no_such_page() {
    let (device, head) = device_with_object(0);
    let pool = open(&device);
    for page in [PageId(u32::MAX), PageId(1 << 30)] {
        assert!(matches!(pool.shared(page), Err(Restart::Damaged(_))));
        assert!(matches!(pool.exclusive(page), Err(Restart::Damaged(_))));
        assert!(matches!(pool.try_exclusive(page), Err(Restart::Damaged(_))));
        assert!(matches!(pool.optimistic(page), Err(Restart::Damaged(_))));
        assert!(!pool.is_resident(page));
        pool.load(&[page]);
        let view = pool.view_after(|| ()).unwrap();
        assert!(view.read_page(page, &mut filled(0)).is_err());
    }
    let object = pool.shared(head).unwrap();
    assert!(matches!(object.object_page(u32::MAX), Err(Restart::Damaged(_))));
    // Nor is one that nobody has allocated found.
    let unused = PageId(head.0 + 40);
    pool.load(&[unused]);
    assert!(matches!(pool.shared(unused), Err(Restart::Damaged(_))));
}
