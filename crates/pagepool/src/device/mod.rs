//! Where page files live: a byte-addressed [`Device`] with positioned, vectored transfers.
//!
//! [`FileDevice`] is a file, which `io_uring` or threads read and write, [`SimDevice`] an array in memory that fails on request: crashes that lose, tear and
//! reorder writes, lying syncs, I/O errors, a full disk, flipped bits and misdirected writes, all by seed.
//! [`HookedDevice`] is one that can be held up. A [`Shelf`] has many, by number.

mod bell;
mod buf;
mod crew;
mod file;
mod hooked;
mod lent;
mod lock;
mod meter;
mod options;
mod ring;
mod ring_stream;
mod seam;
mod shelf;
mod shelf_files;
mod shelf_sim;
mod sim;

pub use bell::Bell;
pub use buf::PageBuf;
pub use file::FileDevice;
pub use hooked::{Gate, HookedDevice, OpHook, ReadCall, ReadHook};
pub use lock::{DirLock, LockError};
pub use meter::{IoReport, OpReport};
pub use options::{DirectIo, IoEngine, IoOptions, SyncMethod};
pub(crate) use seam::{read_patiently, write_all};
pub use seam::{Bufs, Device, DeviceError, DeviceErrorKind, DeviceOp, Done, Feed, Rest, Transfer};
pub use shelf::{Shelf, ShelfNumber};
pub use shelf_files::FileShelf;
pub use shelf_sim::{ShelfHook, SimShelf};
pub use sim::{Fault, FaultRates, SimDevice};
