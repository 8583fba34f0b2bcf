//! What a worker's loop consists of.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use rustix::event::epoll;
use stillframe_engine::chores::Chores;
use stillframe_engine::config::Config;
use stillframe_engine::dispatch::ctx::Registry;
use stillframe_engine::server::Server;
use stillframe_engine::state::local::Local;
use stillframe_engine::state::mailbox::Message;
use stillframe_engine::state::stats::WorkerStats;
use stillframe_store::Worker;

use crate::desk::Desk;
use crate::event_loop::batch::Batch;
use crate::event_loop::held_queue::HeldQueue;
use crate::event_loop::lent::Lent;
use crate::event_loop::spin::Spin;
use crate::net::conn::{LISTEN_TOKEN, WAKE_TOKEN};
use crate::net::listen::Doors;
use crate::net::slots::{SlotId, Slots};
use crate::net::spare::SpareBuffers;

/// Events taken from epoll at once.
pub const EVENT_COUNT: usize = 1024;
pub struct EventLoop {
    pub(super) server: Arc<Server>,
    pub(super) doors: Arc<Doors>,
    pub(super) stats: Arc<WorkerStats>,
    pub(super) index: usize,
    pub(super) registry: &'static Registry,
    pub(super) worker: Worker,
    pub(super) config: Arc<Config>,
    pub(super) config_version: u64,
    pub(super) epoll: Arc<OwnedFd>,
    pub(super) events: Vec<epoll::Event>,
    pub(super) slots: Slots,
    /// Where the connections are while the loop does not have them.
    pub(super) lent: Rc<Lent>,
    /// Connections to be served in the next round, and whether their socket is to be read.
    pub(super) ready: Vec<(SlotId, bool)>,
    pub(super) batch: Batch,
    pub(super) spare: SpareBuffers,
    pub(super) local: Local,
    pub(super) messages: Vec<Message>,
    pub(super) has_messages: bool,
    /// A pause holds a connection, or one that has gone since.
    pub(super) has_paused: bool,
    /// Connections for which messages of channels have come.
    pub(super) listening: Vec<SlotId>,
    /// Connections that have room for the next part of random elements.
    pub(super) drawing: Vec<SlotId>,
    /// Connections whose output is held.
    pub(super) held: HeldQueue,
    pub(super) chores: Chores,
    /// The slot whose client is visited next.
    pub(super) visited_slot: u32,
    pub(super) spin: Spin,
    pub(super) is_stopping: bool,
}

impl EventLoop {
    /// # Errors
    /// epoll could not be set up.
    pub fn new(
        server: Arc<Server>,
        doors: Arc<Doors>,
        desk: Arc<Desk>,
        index: usize,
        registry: &'static Registry,
    ) -> std::io::Result<EventLoop> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let wake = server.workers[index].mailbox.wake_fd();
        epoll::add(&epoll, wake, epoll::EventData::new_u64(WAKE_TOKEN), epoll::EventFlags::IN)?;
        if index == 0 {
            let data = epoll::EventData::new_u64(LISTEN_TOKEN);
            epoll::add(&epoll, doors.fd(), data, epoll::EventFlags::IN)?;
        }
        let stats = server.workers[index].stats.clone();
        let worker = server.store.nonblocking_worker().map_err(std::io::Error::other)?;
        let config = server.config();
        let lent = Rc::new(Lent::new(desk, index, epoll.clone()));
        let hands_over = lent.clone();
        let mut local = Local::new(index, stats.clone());
        local.hands_over = Some(Box::new(move || hands_over.hand_over()));
        let mut event_loop = EventLoop {
            index,
            registry,
            worker,
            config_version: 0,
            config,
            epoll,
            events: Vec::with_capacity(EVENT_COUNT),
            slots: Slots::default(),
            lent,
            ready: Vec::new(),
            batch: Batch::default(),
            spare: SpareBuffers::default(),
            local,
            stats,
            messages: Vec::new(),
            has_messages: false,
            has_paused: false,
            listening: Vec::new(),
            drawing: Vec::new(),
            held: HeldQueue::default(),
            chores: Chores::new(index),
            visited_slot: 0,
            spin: Spin::default(),
            is_stopping: false,
            server,
            doors,
        };
        event_loop.refresh_config();
        Ok(event_loop)
    }
}
