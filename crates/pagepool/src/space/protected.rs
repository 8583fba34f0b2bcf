//! Memory whose writers are held up until a page has been copied away: `userfaultfd` with write protection, for comparison.
//!
//! ```text
//!   a page:  writable ── protect ──▶ protected ── lift ──▶ writable
//!                                       └── write: the writer sleeps, `next_write` tells the page ── lift ──▶ it goes on
//! ```

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::memory::{Memory, VirtualArray, ZeroInit};
use crate::PAGE_SIZE;

/// The kernel's interface, `linux/userfaultfd.h`.
mod kernel {
    pub const USER_MODE_ONLY: libc::c_int = 1;
    pub const API: u64 = 0xaa;
    pub const FEATURE_WRITE_PROTECT: u64 = 1;
    pub const REGISTER_WRITE_PROTECT: u64 = 2;
    pub const PROTECT: u64 = 1;
    pub const EVENT_PAGE_FAULT: u8 = 0x12;

    #[repr(C)]
    pub struct Api {
        pub api: u64,
        pub features: u64,
        pub ioctls: u64,
    }

    #[repr(C)]
    pub struct Register {
        pub start: u64,
        pub len: u64,
        pub mode: u64,
        pub ioctls: u64,
    }

    #[repr(C)]
    pub struct WriteProtect {
        pub start: u64,
        pub len: u64,
        pub mode: u64,
    }

    /// `struct uffd_msg` of a page fault.
    #[repr(C)]
    #[derive(Default)]
    pub struct Message {
        pub event: u8,
        pub reserved: [u8; 7],
        pub flags: u64,
        pub address: u64,
        pub thread: u64,
    }

    pub const IOCTL_API: libc::c_ulong = 0xc018_aa3f;
    pub const IOCTL_REGISTER: libc::c_ulong = 0xc020_aa00;
    pub const IOCTL_WRITE_PROTECT: libc::c_ulong = 0xc018_aa06;
}

/// The write protection of a whole array.
pub struct WriteProtection<'a, T: ZeroInit> {
    events: OwnedFd,
    base: usize,
    byte_len: usize,
    _array: PhantomData<&'a VirtualArray<T>>,
}

impl<'a, T: ZeroInit> WriteProtection<'a, T> {
    /// Nothing is protected yet. All pages are to have been populated: those that have not been touched cannot be protected.
    ///
    /// # Errors
    /// The system has no `userfaultfd`, or does not allow it to this process.
    pub fn new(array: &'a VirtualArray<T>) -> io::Result<WriteProtection<'a, T>> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | kernel::USER_MODE_ONLY;
        // SAFETY: I1: the call takes a number only.
        let events = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if events < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: I1: a descriptor that was made just now and is nobody else's.
        let events = unsafe { OwnedFd::from_raw_fd(events as libc::c_int) };
        let memory = array.memory();
        let (base, byte_len) = (memory.base().as_ptr() as usize, memory.byte_len());
        let protection = WriteProtection { events, base, byte_len, _array: PhantomData };
        let mut api = kernel::Api { api: kernel::API, features: kernel::FEATURE_WRITE_PROTECT, ioctls: 0 };
        protection.call(kernel::IOCTL_API, &mut api)?;
        let mut register = kernel::Register {
            start: base as u64,
            len: byte_len as u64,
            mode: kernel::REGISTER_WRITE_PROTECT,
            ioctls: 0,
        };
        protection.call(kernel::IOCTL_REGISTER, &mut register)?;
        Ok(protection)
    }

    /// One of the calls above, with its own structure.
    fn call<A>(&self, request: libc::c_ulong, argument: &mut A) -> io::Result<()> {
        loop {
            // SAFETY: I1: the structure is the one of the request, and lives through the call; M1: ranges lie in the mapping,
            // which the value borrows.
            let result =
                unsafe { libc::ioctl(self.events.as_raw_fd(), request, std::ptr::from_mut(argument)) };
            match result {
                0 => return Ok(()),
                _ => match io::Error::last_os_error() {
                    error if [libc::EINTR, libc::EAGAIN].contains(&error.raw_os_error().unwrap_or(0)) => {}
                    error => return Err(error),
                },
            }
        }
    }

    fn set(&self, pages: Range<usize>, mode: u64) -> io::Result<()> {
        let (start, end) = (pages.start * PAGE_SIZE, pages.end * PAGE_SIZE);
        assert!(start <= end && end <= self.byte_len, "M1: pages of the mapping");
        let (start, len) = ((self.base + start) as u64, (end - start) as u64);
        self.call(kernel::IOCTL_WRITE_PROTECT, &mut kernel::WriteProtect { start, len, mode })
    }

    /// Pages of 4 KB that there are.
    pub fn page_count(&self) -> usize {
        self.byte_len / PAGE_SIZE
    }

    /// From now on who writes to one of these pages sleeps.
    ///
    /// # Errors
    /// Of the system.
    pub fn protect(&self, pages: Range<usize>) -> io::Result<()> {
        self.set(pages, kernel::PROTECT)
    }

    /// They may be written, and who sleeps because of them goes on.
    ///
    /// # Errors
    /// Of the system.
    pub fn lift(&self, pages: Range<usize>) -> io::Result<()> {
        self.set(pages, 0)
    }

    /// The page that somebody wants to write and sleeps for, if there is one within the time.
    ///
    /// # Errors
    /// Of the system.
    pub fn next_write(&self, patience: Duration) -> io::Result<Option<usize>> {
        let mut wait = libc::pollfd { fd: self.events.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: I1: one structure that lives through the call.
        let ready = unsafe { libc::poll(&mut wait, 1, patience.as_millis() as libc::c_int) };
        if ready <= 0 {
            return Ok(None);
        }
        let mut message = kernel::Message::default();
        let len = std::mem::size_of_val(&message);
        // SAFETY: I1: the structure has as many bytes as are asked for, and any bytes are a value of it.
        let read =
            unsafe { libc::read(self.events.as_raw_fd(), std::ptr::from_mut(&mut message).cast(), len) };
        if read < 0 {
            return match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            };
        }
        let is_fault = read.unsigned_abs() == len && message.event == kernel::EVENT_PAGE_FAULT;
        Ok(is_fault.then(|| (message.address as usize - self.base) / PAGE_SIZE))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const PAGE_WORDS: usize = PAGE_SIZE / 8;

    #[test]
    fn who_writes_sleeps_until_the_page_is_free() {
        let array: VirtualArray<AtomicU64> = VirtualArray::new(8 * PAGE_WORDS).unwrap();
        array.populate(0, 8 * PAGE_WORDS);
        let protection = match WriteProtection::new(&array) {
            Ok(protection) => protection,
            // Containers and some kernels refuse it.
            Err(error)
                if [libc::ENOSYS, libc::EPERM, libc::EINVAL].map(Some).contains(&error.raw_os_error()) =>
            {
                return eprintln!("SKIPPED: no userfaultfd here: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(protection.page_count(), 8);
        array.get(3 * PAGE_WORDS).store(7, Ordering::Relaxed);
        protection.protect(0..8).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| array.get(3 * PAGE_WORDS).store(8, Ordering::SeqCst));
            let page = loop {
                if let Some(page) = protection.next_write(Duration::from_millis(100)).unwrap() {
                    break page;
                }
            };
            assert_eq!((page, array.get(3 * PAGE_WORDS).load(Ordering::SeqCst)), (3, 7));
            assert!(!writer.is_finished());
            protection.lift(page..page + 1).unwrap();
            writer.join().unwrap();
        });
        assert_eq!(array.get(3 * PAGE_WORDS).load(Ordering::SeqCst), 8);
        assert_eq!(protection.next_write(Duration::ZERO).unwrap(), None);
        protection.lift(0..8).unwrap();
        array.get(0).store(1, Ordering::Relaxed);
    }
}
