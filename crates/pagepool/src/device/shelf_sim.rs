//! A [`Shelf`] in memory whose devices fail and crash together.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::seam::{Device, DeviceError, DeviceErrorKind, DeviceOp};
use super::shelf::{Shelf, ShelfNumber};
use super::sim::{Fault, SimDevice};

/// Runs before each operation, on the thread that asks for it; may wait.
pub type ShelfHook = Arc<dyn Fn(ShelfNumber, DeviceOp) + Send + Sync>;

/// A directory of [`SimDevice`]s on one simulated machine, as one process sees it.
///
/// Operations of all devices and of the directory are counted together. A change of a name is two: the change and the sync of
/// the directory; what was not synced when the machine crashes is kept up to a point, as a journal would have it.
pub struct SimShelf {
    machine: Arc<Machine>,
    /// Which process this is; what earlier ones do fails.
    process: u64,
}

struct Machine {
    state: Mutex<State>,
    hook: Mutex<Option<ShelfHook>>,
}

struct State {
    rng: fastrand::Rng,
    process: u64,
    files: Vec<Arc<SimDevice>>,
    /// Which file has the number, as the process sees it.
    names: BTreeMap<ShelfNumber, usize>,
    durable_names: BTreeMap<ShelfNumber, usize>,
    unsynced: Vec<NameChange>,
    call_count: u64,
    schedule: BTreeMap<u64, Fault>,
    crashed: bool,
    capacity_bytes: u64,
}

#[derive(Clone, Copy)]
enum NameChange {
    Put(ShelfNumber, usize),
    Move(ShelfNumber, ShelfNumber),
    Remove(ShelfNumber),
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<ShelfNumber, usize>) {
        match self {
            NameChange::Put(number, file) => drop(names.insert(number, file)),
            NameChange::Move(from, to) => {
                if let Some(file) = names.remove(&from) {
                    names.insert(to, file);
                }
            }
            NameChange::Remove(number) => drop(names.remove(&number)),
        }
    }
}

impl SimShelf {
    /// An empty one; `seed` decides what crashes and faults do.
    pub fn new(seed: u64) -> SimShelf {
        let state = State {
            rng: fastrand::Rng::with_seed(seed),
            process: 0,
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced: Vec::new(),
            call_count: 0,
            schedule: BTreeMap::new(),
            crashed: false,
            capacity_bytes: u64::MAX,
        };
        let machine = Machine { state: Mutex::new(state), hook: Mutex::new(None) };
        SimShelf { machine: Arc::new(machine), process: 0 }
    }

    /// Operations so far.
    pub fn call_count(&self) -> u64 {
        self.machine.state.lock().call_count
    }

    /// Injects `fault` into the operation with that number (the next one is `call_count()`).
    pub fn schedule(&self, call: u64, fault: Fault) {
        self.machine.state.lock().schedule.insert(call, fault);
    }

    /// Takes back what was scheduled.
    pub fn clear_faults(&self) {
        self.machine.state.lock().schedule.clear();
    }

    /// Sets the bytes that all devices may have together.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.machine.state.lock().capacity_bytes = capacity_bytes;
    }

    /// Sets the hook, in the place of any other.
    pub fn before_each(&self, hook: ShelfHook) {
        *self.machine.hook.lock() = Some(hook);
    }

    /// The power fails and comes back: the fate of all that was not synced is decided. Returns the shelf of the next process.
    pub fn crash(&self) -> SimShelf {
        let state = &mut *self.machine.state.lock();
        state.crash();
        self.next_process(state)
    }

    /// The process ends, and the machine runs on, unless it has crashed. Returns the shelf of the next process.
    pub fn kill(&self) -> SimShelf {
        let state = &mut *self.machine.state.lock();
        if state.crashed {
            state.crash();
        }
        self.next_process(state)
    }

    /// The same shelf, for the same process.
    #[must_use]
    pub fn same(&self) -> SimShelf {
        SimShelf { machine: self.machine.clone(), process: self.process }
    }

    fn next_process(&self, state: &mut State) -> SimShelf {
        state.process += 1;
        state.crashed = false;
        state.schedule.clear();
        SimShelf { machine: self.machine.clone(), process: state.process }
    }

    /// What is on the shelf now, by number.
    pub fn images(&self) -> BTreeMap<ShelfNumber, Vec<u8>> {
        let state = self.machine.state.lock();
        state.names.iter().map(|(number, file)| (*number, state.files[*file].image())).collect()
    }

    /// Another machine with a shelf that holds `images`, durably.
    pub fn from_images(seed: u64, images: &BTreeMap<ShelfNumber, Vec<u8>>) -> SimShelf {
        let shelf = SimShelf::new(seed);
        {
            let state = &mut *shelf.machine.state.lock();
            for (number, image) in images {
                state.names.insert(*number, state.files.len());
                let seed = state.rng.u64(..);
                state.files.push(Arc::new(SimDevice::from_image(seed, image.clone())));
            }
            state.durable_names = state.names.clone();
        }
        shelf
    }

    fn call_hook(&self, number: ShelfNumber, op: DeviceOp) {
        call_hook(&self.machine, number, op);
    }

    fn begin(
        &self,
        number: ShelfNumber,
        op: DeviceOp,
        state: &mut State,
    ) -> Result<Option<Fault>, DeviceError> {
        state.begin(self.process).map_err(|kind| failed(number, op, kind))
    }

    /// Changes a name and makes that durable.
    fn change(&self, number: ShelfNumber, op: DeviceOp, change: NameChange) -> Result<(), DeviceError> {
        let state = &mut *self.machine.state.lock();
        let fail = |kind| Err(failed(number, op, kind));
        let fault = self.begin(number, op, state)?;
        match fault {
            Some(Fault::Error) => return fail(DeviceErrorKind::Os(Errno::IO)),
            Some(Fault::NoSpace) => return fail(DeviceErrorKind::NoSpace(Errno::NOSPC)),
            _ => {}
        }
        change.apply(&mut state.names);
        state.unsynced.push(change);
        if fault == Some(Fault::Crash) {
            return fail(DeviceErrorKind::Crashed);
        }
        match self.begin(number, op, state)? {
            Some(Fault::Crash) => fail(DeviceErrorKind::Crashed),
            Some(Fault::Error) => fail(DeviceErrorKind::Os(Errno::IO)),
            Some(Fault::LyingSync) => Ok(()),
            _ => {
                for change in std::mem::take(&mut state.unsynced) {
                    change.apply(&mut state.durable_names);
                }
                Ok(())
            }
        }
    }

    fn device(&self, number: ShelfNumber, file: usize, sim: Arc<SimDevice>) -> Arc<dyn Device> {
        let name = self.device_name(number);
        Arc::new(Numbered { machine: self.machine.clone(), process: self.process, number, name, file, sim })
    }
}

impl State {
    /// Counts a call and says what goes wrong in it.
    fn begin(&mut self, process: u64) -> Result<Option<Fault>, DeviceErrorKind> {
        if self.crashed || process != self.process {
            return Err(DeviceErrorKind::Crashed);
        }
        let fault = self.schedule.remove(&self.call_count);
        self.call_count += 1;
        self.crashed = fault == Some(Fault::Crash);
        Ok(fault)
    }

    fn crash(&mut self) {
        let kept = self.rng.usize(..=self.unsynced.len());
        for change in std::mem::take(&mut self.unsynced).into_iter().take(kept) {
            change.apply(&mut self.durable_names);
        }
        self.names = self.durable_names.clone();
        self.files.iter().for_each(|file| file.crash());
    }

    fn byte_count(&self) -> u64 {
        self.names.values().map(|file| self.files[*file].len().unwrap_or(0)).sum()
    }
}

impl Shelf for SimShelf {
    fn name(&self) -> &str {
        "simulated shelf"
    }

    fn device_name(&self, number: ShelfNumber) -> String {
        format!("simulated shelf/{number}.log")
    }

    fn list(&self) -> Result<Vec<ShelfNumber>, DeviceError> {
        let state = self.machine.state.lock();
        if state.crashed || state.process != self.process {
            return Err(failed(ShelfNumber(0), DeviceOp::List, DeviceErrorKind::Crashed));
        }
        Ok(state.names.keys().copied().collect())
    }

    fn create(&self, number: ShelfNumber) -> Result<Arc<dyn Device>, DeviceError> {
        self.call_hook(number, DeviceOp::Open);
        let (file, sim) = {
            let state = &mut *self.machine.state.lock();
            if state.names.contains_key(&number) {
                return Err(failed(number, DeviceOp::Open, DeviceErrorKind::Os(Errno::EXIST)));
            }
            let sim = Arc::new(SimDevice::new(state.rng.u64(..)));
            state.files.push(sim.clone());
            (state.files.len() - 1, sim)
        };
        self.change(number, DeviceOp::Open, NameChange::Put(number, file))?;
        Ok(self.device(number, file, sim))
    }

    fn open(&self, number: ShelfNumber) -> Result<Arc<dyn Device>, DeviceError> {
        let state = self.machine.state.lock();
        let fail = |kind| Err(failed(number, DeviceOp::Open, kind));
        if state.crashed || state.process != self.process {
            return fail(DeviceErrorKind::Crashed);
        }
        let Some(file) = state.names.get(&number) else {
            return fail(DeviceErrorKind::Os(Errno::NOENT));
        };
        Ok(self.device(number, *file, state.files[*file].clone()))
    }

    fn renumber(&self, from: ShelfNumber, to: ShelfNumber) -> Result<Arc<dyn Device>, DeviceError> {
        self.call_hook(from, DeviceOp::Name);
        if self.machine.state.lock().names.contains_key(&to) {
            return Err(failed(to, DeviceOp::Name, DeviceErrorKind::Os(Errno::EXIST)));
        }
        self.change(from, DeviceOp::Name, NameChange::Move(from, to))?;
        self.open(to)
    }

    fn remove(&self, number: ShelfNumber) -> Result<(), DeviceError> {
        self.call_hook(number, DeviceOp::Remove);
        self.change(number, DeviceOp::Remove, NameChange::Remove(number))
    }
}

/// A device of the shelf, as one process has it open.
struct Numbered {
    machine: Arc<Machine>,
    process: u64,
    number: ShelfNumber,
    name: String,
    file: usize,
    sim: Arc<SimDevice>,
}

impl Numbered {
    /// Does an operation alone on the machine, with the fault that is due.
    fn perform(
        &self,
        op: DeviceOp,
        grows_to: Option<u64>,
        act: impl FnOnce(&SimDevice) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        call_hook(&self.machine, self.number, op);
        let state = &mut *self.machine.state.lock();
        let fault = state.begin(self.process).map_err(|kind| failed(self.number, op, kind))?;
        let has_room = |len: u64| {
            let grown = len.saturating_sub(self.sim.len().unwrap_or(0));
            state.byte_count() + grown <= state.capacity_bytes
        };
        if !grows_to.is_none_or(has_room) {
            return Err(failed(self.number, op, DeviceErrorKind::NoSpace(Errno::NOSPC)));
        }
        if let Some(fault) = fault {
            self.sim.schedule(self.sim.call_count(), fault);
        }
        let result = act(&self.sim);
        self.sim.clear_faults();
        result.map_err(|error| DeviceError { device: self.name.clone(), ..error })
    }
}

impl Device for Numbered {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        self.perform(DeviceOp::Read, None, |sim| sim.read_at(offset, bufs))
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.perform(DeviceOp::Write, None, |sim| sim.write_at(offset, bufs))
    }

    fn sync_data(&self) -> Result<(), DeviceError> {
        self.perform(DeviceOp::Sync, None, SimDevice::sync_data)
    }

    fn len(&self) -> Result<u64, DeviceError> {
        self.perform(DeviceOp::Len, None, |_| Ok(()))?;
        self.sim.len()
    }

    fn allocate(&self, len: u64) -> Result<(), DeviceError> {
        self.perform(DeviceOp::Allocate, Some(len), |sim| sim.allocate(len))
    }

    fn truncate(&self, len: u64) -> Result<(), DeviceError> {
        self.perform(DeviceOp::Truncate, None, |sim| sim.truncate(len))
    }

    fn check_identity(&self) -> Result<(), DeviceError> {
        match self.machine.state.lock().names.get(&self.number) {
            Some(file) if *file == self.file => Ok(()),
            _ => Err(failed(self.number, DeviceOp::Find, DeviceErrorKind::Replaced)),
        }
    }
}

fn call_hook(machine: &Machine, number: ShelfNumber, op: DeviceOp) {
    let hook = machine.hook.lock().clone();
    if let Some(hook) = hook {
        hook(number, op);
    }
}

fn failed(number: ShelfNumber, op: DeviceOp, kind: DeviceErrorKind) -> DeviceError {
    DeviceError { device: format!("simulated shelf/{number}.log"), op, offset: 0, len: 0, kind }
}
