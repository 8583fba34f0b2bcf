//! Files that lose power. What has not been synced is kept, lost or torn then, each write for itself.

use std::io;
use std::sync::{Mutex, MutexGuard};

use fastrand::Rng;
use stillframe_algorithms::image_file::{FileKind, Files};

const SECTOR_LEN: usize = 512;

/// What goes wrong at one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No step succeeds from there on.
    PowerFails,
    /// This step fails, and those after it do not.
    Fails,
}

#[derive(Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Clear,
}

#[derive(Clone, Default)]
struct File {
    /// What a crash leaves in any case.
    durable: Vec<u8>,
    /// What readers see.
    view: Vec<u8>,
    /// What has been done since the last sync.
    pending: Vec<Change>,
}

fn write(into: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    into.resize(into.len().max(offset + bytes.len()), 0);
    into[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl Change {
    fn apply(&self, into: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => write(into, *offset, bytes),
            Change::Clear => into.clear(),
        }
    }

    /// The same as a crash leaves it.
    fn apply_some(&self, into: &mut Vec<u8>, rng: &mut Rng) {
        match (self, rng.u8(..3)) {
            (_, 0) => {}
            (Change::Write { offset, bytes }, 1) => {
                for (sector, part) in bytes.chunks(SECTOR_LEN).enumerate() {
                    let len = if rng.bool() { 0 } else { rng.usize(..=part.len()) };
                    write(into, offset + sector * SECTOR_LEN, &part[..len]);
                }
            }
            _ => self.apply(into),
        }
    }
}

struct Disk {
    files: [File; 3],
    step: u64,
    faults: Vec<(u64, Fault)>,
    is_off: bool,
    rng: Rng,
}

pub struct SimFiles(Mutex<Disk>);

impl SimFiles {
    pub fn new(seed: u64, faults: Vec<(u64, Fault)>) -> SimFiles {
        let rng = Rng::with_seed(seed);
        SimFiles(Mutex::new(Disk { files: Default::default(), step: 0, faults, is_off: false, rng }))
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().expect("no holder panics")
    }

    pub fn step_count(&self) -> u64 {
        self.disk().step
    }

    pub fn is_off(&self) -> bool {
        self.disk().is_off
    }

    /// The files after the power has come back, with faults to come.
    pub fn restart(&self, faults: Vec<(u64, Fault)>) -> SimFiles {
        let mut disk = self.disk();
        let seed = disk.rng.u64(..);
        let mut rng = disk.rng.fork();
        let mut files = disk.files.clone();
        for file in &mut files {
            for change in std::mem::take(&mut file.pending) {
                change.apply_some(&mut file.durable, &mut rng);
            }
            file.view = file.durable.clone();
        }
        SimFiles(Mutex::new(Disk { files, step: 0, faults, is_off: false, rng: Rng::with_seed(seed) }))
    }
}

impl Disk {
    /// One step: whether it is the one that fails.
    fn step(&mut self) -> io::Result<bool> {
        if self.is_off {
            return Err(io::Error::other("no power"));
        }
        self.step += 1;
        let mut faults = self.faults.iter().filter(|&&(step, _)| step == self.step).map(|&(_, fault)| fault);
        let fault = faults.next();
        self.is_off = fault == Some(Fault::PowerFails);
        Ok(fault.is_some())
    }
}

fn result(fails: bool) -> io::Result<()> {
    match fails {
        true => Err(io::Error::other("as told")),
        false => Ok(()),
    }
}

impl SimFiles {
    fn change(&self, file: FileKind, change: Change) -> io::Result<()> {
        let mut disk = self.disk();
        let fails = disk.step()?;
        // One that fails may have been done in part: so it may be found after a crash, and readers see it.
        let file = &mut disk.files[file as usize];
        change.apply(&mut file.view);
        file.pending.push(change);
        result(fails)
    }
}

impl Files for SimFiles {
    fn write_at(&self, file: FileKind, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(file, Change::Write { offset: offset as usize, bytes: bytes.to_vec() })
    }

    fn read_at(&self, file: FileKind, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let disk = self.disk();
        if disk.is_off {
            return Err(io::Error::other("no power"));
        }
        let view = &disk.files[file as usize].view;
        let rest = view.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn sync(&self, file: FileKind) -> io::Result<()> {
        let mut disk = self.disk();
        let fails = disk.step()?;
        if fails && disk.is_off {
            return result(true);
        }
        let mut rng = disk.rng.fork();
        let file = &mut disk.files[file as usize];
        for change in std::mem::take(&mut file.pending) {
            match fails {
                // The system forgets that it has not written it.
                true => change.apply_some(&mut file.durable, &mut rng),
                false => change.apply(&mut file.durable),
            }
        }
        result(fails)
    }

    fn clear(&self, file: FileKind) -> io::Result<()> {
        self.change(file, Change::Clear)
    }

    fn replace_image(&self) -> io::Result<()> {
        let mut disk = self.disk();
        let fails = disk.step()?;
        if !fails || disk.rng.bool() {
            disk.files[FileKind::Image as usize] = std::mem::take(&mut disk.files[FileKind::Next as usize]);
        }
        result(fails)
    }
}
