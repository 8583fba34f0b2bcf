//! A device that holds the warm-up up.

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use stillframe_pagepool::device::{Device, DeviceError, SimDevice};

/// A device that lets the warm-up read so much and no more until it is told to.
pub struct HeldUp {
    pub inner: SimDevice,
    warm_bytes: AtomicU64,
    is_open: Mutex<bool>,
    opened: Condvar,
}

/// The warm-up reads 8 MB at a time: it has the first of them.
const FIRST_BYTES: u64 = 8 << 20;

impl HeldUp {
    pub fn new(inner: SimDevice) -> Arc<HeldUp> {
        let (is_open, opened) = (Mutex::new(false), Condvar::new());
        Arc::new(HeldUp { inner, warm_bytes: AtomicU64::new(0), is_open, opened })
    }

    pub fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

impl Device for HeldUp {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let is_warm_up = std::thread::current().name() == Some("sf-warm-up");
        if is_warm_up && self.warm_bytes.fetch_add(len, Ordering::SeqCst) >= FIRST_BYTES {
            let mut is_open = self.is_open.lock().unwrap();
            while !*is_open {
                is_open = self.opened.wait(is_open).unwrap();
            }
        }
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
