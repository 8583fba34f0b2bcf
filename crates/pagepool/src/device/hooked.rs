//! A [`Device`] that can be watched and held up: for tests of what happens while it is at work.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::seam::{total_len_mut, Device, DeviceError, DeviceOp};
use super::sim::SimDevice;

/// Longest that a gate holds anybody: a test that waits for longer has failed.
const GATE_TIMEOUT: Duration = Duration::from_secs(20);

/// Holds up whoever passes until it is opened, and tells that somebody came.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    arrived: bool,
    open: bool,
}

impl Gate {
    /// Waits until the gate is open.
    ///
    /// # Panics
    /// If nobody opens it for 20 s.
    pub fn pass(&self) {
        let mut state = self.state.lock();
        state.arrived = true;
        self.changed.notify_all();
        let waited = self.changed.wait_while_for(&mut state, |s| !s.open, GATE_TIMEOUT);
        assert!(!waited.timed_out(), "nobody opened the gate");
    }

    pub fn open(&self) {
        self.state.lock().open = true;
        self.changed.notify_all();
    }

    pub fn has_visitor(&self) -> bool {
        self.state.lock().arrived
    }

    /// Waits until somebody stands at the gate, or has passed.
    ///
    /// # Panics
    /// If nobody comes for 20 s.
    pub fn wait_for_visitor(&self) {
        let waited = self.changed.wait_while_for(&mut self.state.lock(), |s| !s.arrived, GATE_TIMEOUT);
        assert!(!waited.timed_out(), "nobody came to the gate");
    }
}

/// A read that is about to happen.
#[derive(Clone, Copy, Debug)]
pub struct ReadCall<'a> {
    /// Name of the thread that reads.
    pub thread: &'a str,
    pub offset: u64,
    pub byte_len: u64,
}

/// Runs before each read, on the thread that reads; may wait.
pub type ReadHook = Arc<dyn Fn(ReadCall<'_>) + Send + Sync>;

/// Runs before each sync and each change of the length, on the thread that asks for it; may wait.
pub type OpHook = Arc<dyn Fn(DeviceOp) + Send + Sync>;

/// A [`SimDevice`] with hooks.
pub struct HookedDevice {
    inner: SimDevice,
    read_hook: Mutex<Option<ReadHook>>,
    op_hook: Mutex<Option<OpHook>>,
}

impl HookedDevice {
    pub fn new(inner: SimDevice) -> Arc<HookedDevice> {
        Arc::new(HookedDevice { inner, read_hook: Mutex::new(None), op_hook: Mutex::new(None) })
    }

    /// Sets the hook of reads, in the place of any other.
    pub fn before_read(&self, hook: ReadHook) {
        *self.read_hook.lock() = Some(hook);
    }

    /// Sets the hook of syncs and changes of the length, in the place of any other.
    pub fn before_op(&self, hook: OpHook) {
        *self.op_hook.lock() = Some(hook);
    }

    fn call_op_hook(&self, op: DeviceOp) {
        let hook = self.op_hook.lock().clone();
        if let Some(hook) = hook {
            hook(op);
        }
    }

    /// The device below.
    pub fn inner(&self) -> &SimDevice {
        &self.inner
    }
}

impl Device for HookedDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let hook = self.read_hook.lock().clone();
        if let Some(hook) = hook {
            let thread = std::thread::current();
            let thread = thread.name().unwrap_or_default();
            hook(ReadCall { thread, offset, byte_len: total_len_mut(bufs) });
        }
        self.inner.read_at(offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.inner.write_at(offset, bufs)
    }

    fn sync_data(&self) -> Result<(), DeviceError> {
        self.call_op_hook(DeviceOp::Sync);
        self.inner.sync_data()
    }

    fn len(&self) -> Result<u64, DeviceError> {
        self.inner.len()
    }

    fn allocate(&self, len: u64) -> Result<(), DeviceError> {
        self.call_op_hook(DeviceOp::Allocate);
        self.inner.allocate(len)
    }

    fn truncate(&self, len: u64) -> Result<(), DeviceError> {
        self.call_op_hook(DeviceOp::Truncate);
        self.inner.truncate(len)
    }
}
