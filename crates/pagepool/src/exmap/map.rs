//! An open map: its pages, its interfaces, what reads go by.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::abi::{self, Action, Backing, Entry, ExmapStatistics, Opcode, Run, Setup};
use super::error::ExmapError;
use super::simulated::{self, SimulatedMap};
use crate::PAGE_SIZE;

/// How long it is tried to have memory that the system does not give at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries of what cannot be done at once.
const PAUSE: Duration = Duration::from_millis(1);

/// An open map.
pub struct Exmap {
    base: NonNull<u8>,
    byte_len: usize,
    source: Source,
}

enum Source {
    Module {
        fd: OwnedFd,
        interfaces: Vec<Mutex<Interface>>,
    },
    /// For tests, on machines without the module.
    Simulated(SimulatedMap),
}

/// The page that one call at a time names its pages in (M9).
struct Interface {
    entries: NonNull<Entry>,
}

// SAFETY: M9: the mapping may be used from any thread, by whoever has the interface.
unsafe impl Send for Interface {}
// SAFETY: M1: the mapping is owned by the value and valid from any thread.
unsafe impl Send for Exmap {}
// SAFETY: M1, M8: as above; what takes pages away does so for their owners, and the rest are calls of the system.
unsafe impl Sync for Exmap {}

thread_local! {
    static INTERFACE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A number for each thread, in the order in which they come.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    INTERFACE.with(|number| {
        let mine = number.get().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        number.set(Some(mine));
        mine
    })
}

impl Exmap {
    /// A map of `byte_len` bytes, of which `pool_pages` pages can have memory at a time.
    ///
    /// # Errors
    /// [`ExmapError`]: there is no module, it is not for this user, or it refuses.
    pub fn open(byte_len: usize, pool_pages: u64) -> Result<Exmap, ExmapError> {
        let byte_len = byte_len.next_multiple_of(PAGE_SIZE);
        if simulated::is_simulated() {
            let map = SimulatedMap::new(byte_len).map_err(|source| ExmapError::at("mmap", source))?;
            return Ok(Exmap { base: map.base(), byte_len, source: Source::Simulated(map) });
        }
        let fd = open_device()?;
        let interface_count = interface_count();
        let setup = Setup {
            size: size_of::<Setup>() as u32,
            version: abi::VERSION,
            map_pages: (byte_len / PAGE_SIZE) as u64,
            pool_pages,
            interface_count: interface_count as u32,
            ..Setup::default()
        };
        // SAFETY: M9: the kernel reads the struct, which is what the request says.
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), abi::SETUP, &raw const setup) };
        check(result).map_err(|source| ExmapError::of_setup(source, pool_pages))?;
        let base = map(&fd, byte_len, 0).map_err(|source| ExmapError::at("mmap", source))?;
        let unmap = |source| {
            // SAFETY: M1: mapped above, and nobody has it yet.
            unsafe { libc::munmap(base.as_ptr().cast(), byte_len) };
            ExmapError::at("mmap", source)
        };
        let pages = map(&fd, interface_count * PAGE_SIZE, abi::OFFSET_INTERFACE).map_err(unmap)?;
        let entries = |number: usize| pages.cast::<[Entry; abi::ENTRIES_MAX]>().as_ptr().wrapping_add(number);
        let interfaces = (0..interface_count)
            .map(|number| {
                NonNull::new(entries(number).cast::<Entry>()).expect("no mapping is at address zero")
            })
            .map(|entries| Mutex::new(Interface { entries }));
        let interfaces = interfaces.collect();
        Ok(Exmap { base, byte_len, source: Source::Module { fd, interfaces } })
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub fn byte_len(&self) -> usize {
        self.byte_len
    }

    /// Gives memory to pages, unless they have some. What is in it is undefined. The caller owns them (M2).
    ///
    /// # Panics
    /// If the system has no memory for a long time, as any allocation ends then.
    pub fn give(&self, runs: &[Run]) {
        let since = Instant::now();
        while let Err(error) = self.act(Opcode::Alloc, runs) {
            assert!(since.elapsed() < PATIENCE, "no memory for pages of the exmap: {error}");
            std::thread::sleep(PAUSE);
        }
    }

    /// Takes the memory of pages, if they have any: they read as zero from then on. The caller owns them (M2), and nothing of
    /// this process is being read into them. A page that another process holds (earlier modules looked at memory for
    /// `/proc/PID/mem` as a read does) is tried again until it is free.
    ///
    /// # Panics
    /// If the map is not this process's, which is a bug.
    pub fn take(&self, runs: &[Run]) {
        while let Err(error) = self.act(Opcode::Free, runs) {
            assert!(is_contention(&error), "taking pages of an own map: {error}");
            std::thread::sleep(PAUSE);
        }
    }

    fn act(&self, opcode: Opcode, runs: &[Run]) -> io::Result<()> {
        assert!(runs.iter().all(|&run| self.has(run)), "M1: pages of the map");
        let (fd, interfaces) = match &self.source {
            Source::Simulated(map) => return map.act(opcode, runs),
            Source::Module { fd, interfaces } => (fd, interfaces),
        };
        let number = thread_number() % interfaces.len();
        let interface = interfaces[number].lock();
        let mut entries = runs.iter().flat_map(|&run| in_parts(run)).peekable();
        while entries.peek().is_some() {
            let (mut entry_count, mut wanted) = (0, 0);
            for entry in entries.by_ref().take(abi::ENTRIES_MAX) {
                // SAFETY: M9: an entry of the page of this interface, which is locked.
                unsafe { interface.entries.as_ptr().wrapping_add(entry_count).write_volatile(entry) };
                (entry_count, wanted) = (entry_count + 1, wanted + i64::from(entry.length));
            }
            let action = Action {
                interface: number as u16,
                opcode: opcode as u16,
                entry_count: entry_count as u16,
                flags: 0,
                offset: 0,
            };
            // SAFETY: M8: the caller owns the pages. M9: the kernel reads the struct and the entries.
            let done = unsafe { libc::ioctl(fd.as_raw_fd(), abi::ACTION, &raw const action) };
            if i64::from(check(done)?) < wanted {
                // SAFETY: M9: as above.
                let entry = |at| unsafe { interface.entries.as_ptr().wrapping_add(at).read_volatile() };
                return Err(first_failure(opcode, (0..entry_count).map(entry)));
            }
        }
        Ok(())
    }

    fn has(&self, (page, count): Run) -> bool {
        (page as usize + count as usize) * PAGE_SIZE <= self.byte_len
    }

    /// Whether all of these bytes are in the map.
    pub fn covers(&self, address: usize, byte_len: usize) -> bool {
        let offset = address.wrapping_sub(self.base.as_ptr().addr());
        offset.checked_add(byte_len).is_some_and(|end| end <= self.byte_len)
    }

    /// What files are read by into the map: the system cannot pin its pages, as direct transfers to memory need it. `None`: it
    /// can.
    pub fn reader(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Module { fd, .. } => Some(std::os::fd::AsFd::as_fd(fd)),
            Source::Simulated(_) => None,
        }
    }

    /// From now on reads by [`Exmap::reader`] are of this file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read_from(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let Source::Module { fd, .. } = &self.source else { return Ok(()) };
        let size = size_of::<Backing>() as u32;
        let backing = Backing { size, fd: file.as_raw_fd(), flags: 0, reserved: 0 };
        // SAFETY: M9: the kernel reads the struct, which is what the request says.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), abi::BACKING, &raw const backing) }).map(drop)
    }

    /// What the module has counted; nothing where it is simulated.
    ///
    /// # Errors
    /// Those of the system.
    pub fn statistics(&self) -> io::Result<ExmapStatistics> {
        let size = size_of::<ExmapStatistics>() as u32;
        let mut statistics = ExmapStatistics { size, version: abi::VERSION, ..ExmapStatistics::default() };
        if let Source::Module { fd, .. } = &self.source {
            // SAFETY: M9: the kernel writes the struct, which is what the request says.
            check(unsafe { libc::ioctl(fd.as_raw_fd(), abi::STATISTICS, &raw mut statistics) })?;
        }
        Ok(statistics)
    }
}

impl Drop for Exmap {
    fn drop(&mut self) {
        let Source::Module { interfaces, .. } = &mut self.source else { return };
        let pages = interfaces[0].get_mut().entries;
        // SAFETY: M1, M9: both mappings are owned, and nobody refers to them after the owner is gone.
        unsafe {
            libc::munmap(pages.as_ptr().cast(), interfaces.len() * PAGE_SIZE);
            libc::munmap(self.base.as_ptr().cast(), self.byte_len);
        }
    }
}

/// Twice the processors: threads that share one wait for each other.
fn interface_count() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * processors).clamp(8, abi::INTERFACES_MAX)
}

fn open_device() -> Result<OwnedFd, ExmapError> {
    // SAFETY: M9: the path is a string of C; the descriptor is nobody else's.
    let fd = unsafe {
        let fd = libc::open(abi::DEVICE.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        check(fd).map(|fd| OwnedFd::from_raw_fd(fd))
    };
    fd.map_err(ExmapError::of_open)
}

fn map(fd: &OwnedFd, byte_len: usize, offset: i64) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: M1: a fresh mapping at an address of the kernel's choice aliases nothing.
    let raw = unsafe {
        libc::mmap(std::ptr::null_mut(), byte_len, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset)
    };
    if raw == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(raw.cast()).expect("no mapping is at address zero"))
}

/// Why not all entries of a call were done.
fn first_failure(opcode: Opcode, mut entries: impl Iterator<Item = Entry>) -> io::Error {
    // One that was done in part has no reason of its own: there is one reason for each call.
    let of_parts = match opcode {
        Opcode::Alloc => libc::ENOMEM,
        Opcode::Free => libc::EBUSY,
    };
    let own = entries.find(|entry| entry.result < 0);
    io::Error::from_raw_os_error(own.map_or(of_parts, |entry| -i32::from(entry.result)))
}

/// Whether the same call may be done a moment later.
fn is_contention(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN | libc::EINTR | libc::ENOMEM))
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// A run as entries, of which each has a bound.
fn in_parts((page, count): Run) -> impl Iterator<Item = Entry> {
    let step = abi::LENGTH_MAX as u32;
    (0..count).step_by(abi::LENGTH_MAX).map(move |done| Entry {
        page: page + done,
        length: (count - done).min(step) as u16,
        result: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::super::simulate_exmap;
    use super::*;

    fn entry(length: u16, result: i16) -> Entry {
        Entry { page: 0, length, result }
    }

    #[test]
    fn a_failure_has_the_reason_of_its_call() {
        let reason =
            |opcode, entries: &[Entry]| first_failure(opcode, entries.iter().copied()).raw_os_error();
        let busy = -(libc::EBUSY as i16);
        assert_eq!(reason(Opcode::Free, &[entry(3, 3), entry(4, 2)]), Some(libc::EBUSY));
        assert_eq!(reason(Opcode::Alloc, &[entry(3, 3), entry(4, 2)]), Some(libc::ENOMEM));
        assert_eq!(reason(Opcode::Free, &[entry(3, 3), entry(1, busy), entry(1, 1)]), Some(libc::EBUSY));
        assert_eq!(reason(Opcode::Alloc, &[entry(4, 2), entry(1, -(libc::EINTR as i16))]), Some(libc::EINTR));
    }

    #[test]
    fn pages_that_are_busy_are_taken_later() {
        simulate_exmap();
        let map = Exmap::open(4 * PAGE_SIZE, 4).unwrap();
        let Source::Simulated(simulated) = &map.source else { panic!("it is a module's") };
        map.give(&[(0, 3)]);
        // SAFETY: M1, M2: the first byte of a page of the map, which has memory.
        unsafe { map.base().as_ptr().write(7) };
        simulated.fail_next(&[libc::EBUSY, libc::EBUSY, libc::EINTR]);
        map.take(&[(0, 1), (2, 1)]);
        assert_eq!(simulated.failures_left(), 0, "it was tried again");
        // SAFETY: M1: as above.
        assert_eq!(unsafe { map.base().as_ptr().read() }, 0, "the page has gone");
        simulated.fail_next(&[libc::ENOMEM]);
        map.give(&[(0, 1)]);
        // SAFETY: M1, M2: as above.
        unsafe { map.base().as_ptr().write(8) };
    }
}
