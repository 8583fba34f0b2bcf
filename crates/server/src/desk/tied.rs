//! What goes to the desk and back.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use stillframe_engine::dispatch::while_busy::Called;

use crate::net::slots::Slots;

/// What a worker lends: its connections, and what tells of them. The one that the running script is of is not among them.
pub struct Tied {
    /// The number of the worker.
    pub worker: usize,
    pub slots: Slots,
    pub epoll: Arc<OwnedFd>,
    /// What was called at the desk; `None`: it has not come there.
    pub called: Option<Called>,
}
