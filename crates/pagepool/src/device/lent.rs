//! Memory that transfers often go to and from. Rings register it, a piece at a time, so that the kernel does not look up and
//! pin each page anew.
//!
//! ```text
//!   a piece, in a ring:   UNKNOWN ── a transfer goes there ──▶ KNOWN ── take_back ──▶ UNKNOWN
//!                            ▲                                    │
//!                            └── end, or the kernel refuses one ──┘  from then on all are, in all rings
//! ```
//! What is known is pinned. So it is taken back before its memory goes back to the system: the kernel would go on with pages
//! that the program does not see any more.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use io_uring::IoUring;
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::exmap::Exmap;

/// Bytes of a piece: a huge page.
pub const PIECE_BYTES: usize = 2 << 20;
/// Pieces that a ring can know; what lies beyond is as all other memory.
const MOST_PIECES: usize = 1 << 14;

/// `IORING_UNREGISTER_BUFFERS`; `IORING_REGISTER_BUFFERS_UPDATE` and its argument.
const UNREGISTER_BUFFERS: libc::c_uint = 1;
const UPDATE_BUFFERS: libc::c_uint = 16;

#[repr(C)]
struct Update {
    offset: u32,
    resv: u32,
    data: u64,
    tags: u64,
    nr: u32,
    resv2: u32,
}

/// See the module.
pub struct Lent {
    /// Address of the first byte.
    base: usize,
    /// How often each piece has been taken back.
    turns: Box<[AtomicU32]>,
    refusal: OnceLock<Errno>,
    is_over: AtomicBool,
    /// It is a map, which is read into by its descriptor and never registered.
    map: Option<Arc<Exmap>>,
    /// Rings that know some of it; open as long as they are here.
    rings: Mutex<Vec<RawFd>>,
}

impl Lent {
    /// Memory of so many bytes from this address on.
    pub fn new(base: usize, byte_len: usize) -> Lent {
        let piece_count = (byte_len / PIECE_BYTES).min(MOST_PIECES);
        let turns = (0..piece_count).map(|_| AtomicU32::new(0)).collect();
        Lent {
            base,
            turns,
            refusal: OnceLock::new(),
            is_over: AtomicBool::new(false),
            map: None,
            rings: Mutex::default(),
        }
    }

    /// A map that is read into by its descriptor.
    pub fn of_map(map: Arc<Exmap>) -> Lent {
        Lent { map: Some(map), ..Lent::new(0, 0) }
    }

    /// The descriptor by which all of these bytes are to be read, if it is not that of the file.
    pub fn reader(&self, address: usize, byte_len: usize) -> Option<BorrowedFd<'_>> {
        self.map.as_ref().filter(|map| map.covers(address, byte_len))?.reader()
    }

    /// Address of the first byte.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Why no ring registers any of it, if so.
    pub fn refusal(&self) -> Option<Errno> {
        self.refusal.get().copied()
    }

    /// The memory of a piece is going to be given back: no ring has it from now on. Nothing is under way there.
    pub fn take_back(&self, piece: usize) {
        let Some(turn) = self.turns.get(piece) else { return };
        turn.fetch_add(1, Ordering::Release);
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let data = (&raw const nothing).addr() as u64;
        let update = Update { offset: piece as u32, resv: 0, data, tags: 0, nr: 1, resv2: 0 };
        for ring in &*self.rings.lock() {
            let size = size_of::<Update>();
            // SAFETY: I5: the ring is open, and the kernel is given nothing.
            unsafe {
                libc::syscall(libc::SYS_io_uring_register, *ring, UPDATE_BUFFERS, &raw const update, size)
            };
        }
    }

    /// All of it goes: no ring has any from now on. Nothing is under way there.
    pub fn end(&self) {
        let rings = self.rings.lock();
        self.is_over.store(true, Ordering::Release);
        for ring in &*rings {
            // SAFETY: I5: the ring is open, and the kernel is given nothing.
            unsafe { libc::syscall(libc::SYS_io_uring_register, *ring, UNREGISTER_BUFFERS, 0_usize, 0) };
        }
    }

    /// Whether rings may know of it.
    pub fn is_usable(&self) -> bool {
        self.map.is_none() && self.refusal.get().is_none() && !self.is_over.load(Ordering::Acquire)
    }

    /// The piece that all of these bytes are in.
    fn piece_of(&self, address: usize, byte_len: usize) -> Option<usize> {
        let offset = address.checked_sub(self.base)?;
        let piece = offset / PIECE_BYTES;
        let is_whole = byte_len > 0 && offset % PIECE_BYTES + byte_len <= PIECE_BYTES;
        (is_whole && piece < self.turns.len()).then_some(piece)
    }

    fn forget(&self, ring: RawFd) {
        self.rings.lock().retain(|it| *it != ring);
    }
}

/// What a ring knows of it. To be given up before the ring is closed.
pub struct Known {
    lent: Arc<Lent>,
    ring: RawFd,
    /// The turn of each piece that is known, and one; 0: it is not.
    turns: Vec<u32>,
}

impl Known {
    /// A ring that knows nothing yet; none if the kernel refuses.
    pub fn new(lent: &Arc<Lent>, ring: &IoUring) -> Option<Known> {
        if !lent.is_usable() {
            return None;
        }
        if let Err(error) = ring.submitter().register_buffers_sparse(lent.turns.len() as u32) {
            lent.refusal.get_or_init(|| Errno::from_io_error(&error).unwrap_or(Errno::IO));
            return None;
        }
        lent.rings.lock().push(ring.as_raw_fd());
        Some(Known { lent: lent.clone(), ring: ring.as_raw_fd(), turns: vec![0; lent.turns.len()] })
    }

    pub fn is_usable(&self) -> bool {
        self.lent.is_usable()
    }

    /// The number of the buffer that these bytes are in, which the ring gets to know if need be.
    pub fn buffer_of(&mut self, ring: &IoUring, address: usize, byte_len: usize) -> Option<u16> {
        let piece = self.lent.piece_of(address, byte_len)?;
        let turn = self.lent.turns[piece].load(Ordering::Acquire).wrapping_add(1).max(1);
        if self.turns[piece] != turn {
            let start = std::ptr::without_provenance_mut(self.lent.base + piece * PIECE_BYTES);
            let buffer = libc::iovec { iov_base: start, iov_len: PIECE_BYTES };
            // SAFETY: I5: the piece stays until it is taken back, which no ring knows it after.
            let known = unsafe { ring.submitter().register_buffers_update(piece as u32, &[buffer], None) };
            if let Err(error) = known {
                self.lent.refusal.get_or_init(|| Errno::from_io_error(&error).unwrap_or(Errno::IO));
                return None;
            }
            self.turns[piece] = turn;
        }
        Some(piece as u16)
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.lent.forget(self.ring);
    }
}
