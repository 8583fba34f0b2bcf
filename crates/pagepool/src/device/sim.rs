//! A [`Device`] in memory that behaves as badly as disks do, by seed.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::seam::{
    total_len, total_len_mut, Device, DeviceError, DeviceErrorKind, DeviceOp, Done, Transfer, DEVICE_ALIGN,
};

/// Bytes that a disk writes whole: a torn write tears between sectors.
const SECTOR_BYTES: usize = 512;

/// What goes wrong in one call. A fault that has no meaning for the call it meets does nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The machine stops in the middle of the call; every later call fails until [`SimDevice::crash`].
    Crash,
    /// The call fails with `EIO`. A failed write leaves some of its sectors written; a failed sync makes some of
    /// the writes durable and forgets the others, as the kernel does.
    Error,
    /// The call fails with `ENOSPC` (write, allocate).
    NoSpace,
    /// The write is acknowledged and never done.
    LostWrite,
    /// The write is acknowledged and goes to another place.
    MisdirectedWrite,
    /// Only some sectors are written, the call succeeds.
    TornWrite,
    /// One bit of what is written or read is inverted.
    BitFlip,
    /// The sync is acknowledged and nothing is durable.
    LyingSync,
}

/// Probabilities, a call, of random faults.
#[derive(Clone, Copy, Default, Debug)]
pub struct FaultRates {
    /// [`Fault::Error`] on a read.
    pub read_error: f64,
    /// [`Fault::Error`] on a write.
    pub write_error: f64,
    /// [`Fault::Error`] on a sync.
    pub sync_error: f64,
    /// [`Fault::NoSpace`] on a write or an allocation.
    pub no_space: f64,
    /// [`Fault::LostWrite`], [`Fault::MisdirectedWrite`], [`Fault::TornWrite`] or [`Fault::BitFlip`] on a write.
    pub silent_damage: f64,
}

/// An array of bytes that forgets what was not synced when it crashes.
///
/// Reads see every completed write. On [`SimDevice::crash`] each write since the last sync is kept, lost, or torn
/// at sector granularity, and the survivors land in any order; length changes since then survive up to a point, as
/// a journal would have it.
pub struct SimDevice {
    state: Mutex<SimState>,
}

struct SimState {
    rng: fastrand::Rng,
    /// What a crash leaves for certain.
    durable: Vec<u8>,
    /// What reads see.
    visible: Vec<u8>,
    /// Writes and length changes since the last sync, oldest first.
    unsynced: Vec<Unsynced>,
    call_count: u64,
    schedule: BTreeMap<u64, Fault>,
    rates: FaultRates,
    capacity_bytes: u64,
    crashed: bool,
}

enum Unsynced {
    Write { offset: usize, data: Vec<u8> },
    Len(usize),
}

impl SimDevice {
    /// An empty device of unlimited capacity without faults; `seed` decides what crashes and random faults do.
    pub fn new(seed: u64) -> SimDevice {
        SimDevice::from_image(seed, Vec::new())
    }

    /// A device that holds `image`.
    pub fn from_image(seed: u64, image: Vec<u8>) -> SimDevice {
        let state = SimState {
            rng: fastrand::Rng::with_seed(seed),
            durable: image.clone(),
            visible: image,
            unsynced: Vec::new(),
            call_count: 0,
            schedule: BTreeMap::new(),
            rates: FaultRates::default(),
            capacity_bytes: u64::MAX,
            crashed: false,
        };
        SimDevice { state: Mutex::new(state) }
    }

    /// What reads see now.
    pub fn image(&self) -> Vec<u8> {
        self.state.lock().visible.clone()
    }

    /// Calls of reads, writes, syncs, allocations and truncations so far.
    pub fn call_count(&self) -> u64 {
        self.state.lock().call_count
    }

    /// Injects `fault` into the call with that number (the next one is `call_count()`).
    pub fn schedule(&self, call: u64, fault: Fault) {
        self.state.lock().schedule.insert(call, fault);
    }

    /// Sets the probabilities of random faults.
    pub fn set_rates(&self, rates: FaultRates) {
        self.state.lock().rates = rates;
    }

    /// Takes back all scheduled and random faults.
    pub fn clear_faults(&self) {
        let mut state = self.state.lock();
        state.schedule.clear();
        state.rates = FaultRates::default();
    }

    /// Sets the size in bytes beyond which the device cannot grow.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.state.lock().capacity_bytes = capacity_bytes;
    }

    /// The power fails and comes back: decides the fate of all unsynced writes and serves again.
    pub fn crash(&self) {
        self.state.lock().crash();
    }

    /// Damages the device behind everybody's back, durably: `change` gets the `len` bytes from `offset` on.
    pub fn corrupt(&self, offset: u64, len: usize, change: impl Fn(&mut [u8])) {
        let state = &mut *self.state.lock();
        let offset = offset as usize;
        for image in [&mut state.durable, &mut state.visible] {
            if let Some(bytes) = image.get_mut(offset..offset + len) {
                change(bytes);
            }
        }
    }
}

impl SimState {
    /// Counts a call and says what goes wrong in it.
    fn begin(&mut self, op: DeviceOp, offset: u64, len: u64) -> Result<Option<Fault>, DeviceError> {
        if self.crashed {
            return Err(error(op, offset, len, DeviceErrorKind::Crashed));
        }
        let fault = self.schedule.remove(&self.call_count).or_else(|| self.random_fault(op));
        self.call_count += 1;
        if fault == Some(Fault::Crash) {
            self.crashed = true;
        }
        Ok(fault)
    }

    fn random_fault(&mut self, op: DeviceOp) -> Option<Fault> {
        let rates = self.rates;
        let mut hit = |rate: f64| rate > 0.0 && self.rng.f64() < rate;
        match op {
            DeviceOp::Read if hit(rates.read_error) => Some(Fault::Error),
            DeviceOp::Sync if hit(rates.sync_error) => Some(Fault::Error),
            DeviceOp::Write if hit(rates.write_error) => Some(Fault::Error),
            DeviceOp::Write | DeviceOp::Allocate if hit(rates.no_space) => Some(Fault::NoSpace),
            DeviceOp::Write if hit(rates.silent_damage) => {
                let kinds = [Fault::LostWrite, Fault::MisdirectedWrite, Fault::TornWrite, Fault::BitFlip];
                Some(kinds[self.rng.usize(..kinds.len())])
            }
            _ => None,
        }
    }

    /// Performs a write as seen by reads; it becomes durable with the next sync.
    fn put(&mut self, offset: usize, data: Vec<u8>) {
        self.visible[offset..offset + data.len()].copy_from_slice(&data);
        self.unsynced.push(Unsynced::Write { offset, data });
    }

    /// Performs a random part of the sectors of a write.
    fn put_torn(&mut self, offset: usize, data: &[u8]) {
        for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
            if self.rng.bool() {
                self.put(offset + index * SECTOR_BYTES, sector.to_vec());
            }
        }
    }

    fn set_len(&mut self, len: usize) {
        self.visible.resize(len, 0);
        self.unsynced.push(Unsynced::Len(len));
    }

    /// Makes a random part of the unsynced operations durable and forgets the others.
    fn settle_at_random(&mut self) {
        let ops = std::mem::take(&mut self.unsynced);
        let len_count = ops.iter().filter(|op| matches!(op, Unsynced::Len(_))).count();
        let mut kept_lens = self.rng.usize(..=len_count);
        let mut writes = Vec::new();
        for op in ops {
            match op {
                Unsynced::Write { offset, data } => writes.push((offset, data)),
                Unsynced::Len(len) if kept_lens > 0 => {
                    kept_lens -= 1;
                    self.settle_writes(&mut writes);
                    self.durable.resize(len, 0);
                }
                Unsynced::Len(_) => {}
            }
        }
        self.settle_writes(&mut writes);
    }

    /// Each write is kept, lost or torn; the survivors land in random order. Writes beyond the end are lost.
    fn settle_writes(&mut self, writes: &mut Vec<(usize, Vec<u8>)>) {
        self.rng.shuffle(writes);
        for (offset, data) in writes.drain(..) {
            let fate = self.rng.u8(..3);
            for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
                let at = offset + index * SECTOR_BYTES;
                let keep = fate == 0 || (fate == 1 && self.rng.bool());
                if keep && at + sector.len() <= self.durable.len() {
                    self.durable[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
    }

    fn crash(&mut self) {
        self.settle_at_random();
        self.visible = self.durable.clone();
        self.crashed = false;
    }

    fn sync(&mut self) {
        for op in std::mem::take(&mut self.unsynced) {
            match op {
                Unsynced::Write { offset, data } => {
                    let end = self.durable.len().min(offset + data.len());
                    if offset < end {
                        self.durable[offset..end].copy_from_slice(&data[..end - offset]);
                    }
                }
                Unsynced::Len(len) => self.durable.resize(len, 0),
            }
        }
    }

    /// Performs `data` at `offset` under `fault`.
    fn write(
        &mut self,
        offset: usize,
        mut data: Vec<u8>,
        fault: Option<Fault>,
    ) -> Result<(), DeviceErrorKind> {
        match fault {
            Some(Fault::Crash) => {
                self.put(offset, data);
                return Err(DeviceErrorKind::Crashed);
            }
            Some(Fault::Error) => {
                self.put_torn(offset, &data);
                return Err(DeviceErrorKind::Os(Errno::IO));
            }
            Some(Fault::NoSpace) => return Err(DeviceErrorKind::NoSpace(Errno::NOSPC)),
            Some(Fault::LostWrite) => {}
            Some(Fault::MisdirectedWrite) => {
                let places = (self.visible.len() - data.len()) / DEVICE_ALIGN + 1;
                let elsewhere = self.rng.usize(..places) * DEVICE_ALIGN;
                self.put(elsewhere, data);
            }
            Some(Fault::TornWrite) => self.put_torn(offset, &data),
            Some(Fault::BitFlip) => {
                flip_bit(&mut self.rng, &mut data);
                self.put(offset, data);
            }
            Some(Fault::LyingSync) | None => self.put(offset, data),
        }
        Ok(())
    }
}

impl Device for SimDevice {
    fn name(&self) -> &str {
        "simulated device"
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let len = total_len_mut(bufs);
        assert_aligned(offset, len);
        if len == 0 {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        let fault = state.begin(DeviceOp::Read, offset, len)?;
        let fail = |kind| Err(error(DeviceOp::Read, offset, len, kind));
        match fault {
            Some(Fault::Crash) => return fail(DeviceErrorKind::Crashed),
            Some(Fault::Error) => return fail(DeviceErrorKind::Os(Errno::IO)),
            _ => {}
        }
        if offset + len > state.visible.len() as u64 {
            return fail(DeviceErrorKind::PastEnd { len: state.visible.len() as u64 });
        }
        let mut at = offset as usize;
        for buf in bufs.iter_mut() {
            let end = at + buf.len();
            buf.copy_from_slice(&state.visible[at..end]);
            at = end;
        }
        if fault == Some(Fault::BitFlip) {
            let victim = state.rng.usize(..bufs.len());
            flip_bit(&mut state.rng, &mut bufs[victim]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let len = total_len(bufs);
        assert_aligned(offset, len);
        if len == 0 {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        let fault = state.begin(DeviceOp::Write, offset, len)?;
        if offset + len > state.visible.len() as u64 {
            let kind = DeviceErrorKind::PastEnd { len: state.visible.len() as u64 };
            return Err(error(DeviceOp::Write, offset, len, kind));
        }
        let data = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        state.write(offset as usize, data, fault).map_err(|kind| error(DeviceOp::Write, offset, len, kind))
    }

    /// In random order; each counts as a call of its own.
    fn transfer(&self, transfers: &mut [Transfer<'_>], done: &Done<'_>) {
        let mut order: Vec<usize> = (0..transfers.len()).collect();
        self.state.lock().rng.shuffle(&mut order);
        for index in order {
            let transfer = &mut transfers[index];
            let result = transfer.perform(self);
            done(index, transfer, result);
        }
    }

    fn sync_data(&self) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        match state.begin(DeviceOp::Sync, 0, 0)? {
            Some(Fault::Crash) => return Err(error(DeviceOp::Sync, 0, 0, DeviceErrorKind::Crashed)),
            Some(Fault::Error) => {
                state.settle_at_random();
                return Err(error(DeviceOp::Sync, 0, 0, DeviceErrorKind::Os(Errno::IO)));
            }
            Some(Fault::LyingSync) => {}
            _ => state.sync(),
        }
        Ok(())
    }

    fn len(&self) -> Result<u64, DeviceError> {
        let state = self.state.lock();
        if state.crashed {
            return Err(error(DeviceOp::Len, 0, 0, DeviceErrorKind::Crashed));
        }
        Ok(state.visible.len() as u64)
    }

    fn allocate(&self, len: u64) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        let fault = state.begin(DeviceOp::Allocate, len, 0)?;
        if len <= state.visible.len() as u64 {
            return Ok(());
        }
        let kind = match fault {
            Some(Fault::Error) => DeviceErrorKind::Os(Errno::IO),
            Some(Fault::NoSpace) => DeviceErrorKind::NoSpace(Errno::NOSPC),
            _ if len > state.capacity_bytes => DeviceErrorKind::NoSpace(Errno::NOSPC),
            _ => {
                state.set_len(len as usize);
                if !state.crashed {
                    return Ok(());
                }
                DeviceErrorKind::Crashed
            }
        };
        Err(error(DeviceOp::Allocate, len, 0, kind))
    }

    fn truncate(&self, len: u64) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        let fault = state.begin(DeviceOp::Truncate, len, 0)?;
        if fault == Some(Fault::Error) {
            return Err(error(DeviceOp::Truncate, len, 0, DeviceErrorKind::Os(Errno::IO)));
        }
        if len < state.visible.len() as u64 {
            state.set_len(len as usize);
        }
        match state.crashed {
            true => Err(error(DeviceOp::Truncate, len, 0, DeviceErrorKind::Crashed)),
            false => Ok(()),
        }
    }
}

fn error(op: DeviceOp, offset: u64, len: u64, kind: DeviceErrorKind) -> DeviceError {
    DeviceError { device: "simulated device".to_owned(), op, offset, len, kind }
}

fn flip_bit(rng: &mut fastrand::Rng, bytes: &mut [u8]) {
    if !bytes.is_empty() {
        bytes[rng.usize(..bytes.len())] ^= 1 << rng.u8(..8);
    }
}

fn assert_aligned(offset: u64, len: u64) {
    let align = DEVICE_ALIGN as u64;
    assert!(offset % align == 0 && len % align == 0, "unaligned transfer: byte {offset}, {len} bytes");
}
