//! Virtual snapshots of a row store with transactions: CALC, CPR, and vHG and vPB as corrected here. A cut asks for no instant at which
//! no transaction is under way: it says of each transaction whether the image has it.
//!
//! It is not a database: rows have numbers and are all there from the beginning, nothing is durable, and there is no log.
//! The server does not use it; it is for the comparison of algorithms.
//!
//! From the ground up: `probe`; `row` and `cut`, each with its state machines; `image`; `stalls`, `wait`, `writes`; `seam`;
//! `captures` and `sides`, what two algorithms each have in common; the algorithms `calc`, `cpr`, `vhg`, `vpb`; `core`; `session`
//! and `snapshot`; `store`; `kind` and `driver`, for benchmarks. `docs/internals/transactional.md` has the protocols.
#![forbid(unsafe_code)]

mod calc;
mod captures;
mod core;
mod cpr;
mod cut;
pub mod driver;
mod image;
mod kind;
mod probe;
mod row;
mod seam;
mod session;
mod sides;
mod snapshot;
mod stalls;
mod store;
mod vhg;
mod vpb;
mod wait;
mod writes;

/// What protocols between threads are made of; the model checker puts its own in the place of these.
mod sync {
    pub use std::sync::atomic;

    /// Another thread is copying a row; it may have lost its processor.
    pub fn pause() {
        std::thread::yield_now();
    }
}

pub use crate::calc::Calc;
pub use crate::cpr::Cpr;
pub use crate::cut::{CommitSeq, Phase, SessionSeq, Stage};
pub use crate::image::{CutInfo, Image, MemoryImage, Prefix, SessionId};
pub use crate::kind::{Kind, UnknownKind};
pub use crate::probe::Probe;
#[cfg(feature = "mutations")]
pub use crate::probe::{AtPoint, Mutation, Point};
pub use crate::row::{Change, RowId, Shape, ShapeError};
pub use crate::seam::{Algorithm, RestartCause, Step};
pub use crate::session::{Committed, Session, Txn, TxnError, ELDER_AFTER};
pub use crate::snapshot::{Cut, CutReport, Progress};
pub use crate::stalls::{CutTimes, SessionStats, Stalls};
pub use crate::store::Store;
pub use crate::vhg::VirtualHourglass;
pub use crate::vpb::VirtualPiggyback;
