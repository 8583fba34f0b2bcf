//! The clients of all workers, as `CLIENT LIST` shows them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::clock::unix_ms;
use crate::state::door::DoorKind;
use crate::state::token::Token;

/// What a client says of itself.
#[derive(Default, Debug, Clone)]
pub struct Names {
    /// `CLIENT SETNAME`
    pub name: Vec<u8>,
    /// `CLIENT SETINFO LIB-NAME`
    pub lib_name: Vec<u8>,
    /// `CLIENT SETINFO LIB-VER`
    pub lib_version: Vec<u8>,
}

/// Bits of [`Published::flags`].
pub mod client_flag {
    pub const MULTI: u32 = 1 << 0;
    pub const WATCH_RAISED: u32 = 1 << 1;
    pub const CLOSING: u32 = 1 << 2;
    pub const MONITOR: u32 = 1 << 3;
    pub const BLOCKED: u32 = 1 << 4;
    pub const NO_EVICT: u32 = 1 << 5;
    pub const PUBSUB: u32 = 1 << 6;
    pub const NO_TOUCH: u32 = 1 << 7;
}

/// What is known of a client when it comes in.
#[derive(Debug)]
pub struct Arrival {
    pub door: DoorKind,
    pub addr: String,
    pub laddr: String,
    pub is_local: bool,
    pub fd: i32,
}

/// What others may know of a client. Its worker publishes the changing part after each batch.
#[derive(Debug)]
pub struct ClientInfo {
    pub id: u64,
    /// `ip:port`, or the path of the unix socket with `:0`.
    pub addr: String,
    pub laddr: String,
    pub fd: i32,
    /// Where it has come in.
    pub door: DoorKind,
    /// Connected over a unix socket or the loopback interface.
    pub is_local: bool,
    pub worker: usize,
    pub connected_at: Instant,
    pub names: Mutex<Names>,
    /// In its worker; set once the worker has it.
    token: AtomicU64,
    /// Asked to close.
    pub is_killed: AtomicBool,
    pub published: Published,
}

/// Written by the client's worker alone.
#[derive(Default, Debug)]
pub struct Published {
    /// When the last command came.
    pub last_active_unix_ms: AtomicI64,
    pub flags: AtomicU32,
    pub db: AtomicU32,
    pub resp3: AtomicBool,
    /// Subscriptions, by [`crate::state::subscription::Kind`].
    pub subscription_counts: [AtomicU32; 3],
    /// Queued commands of a transaction; -1 outside of one.
    pub multi_count: AtomicI64,
    pub multi_bytes: AtomicUsize,
    /// Row number of the last command plus one; 0 is none.
    pub last_command: AtomicU32,
    pub input_bytes: AtomicUsize,
    pub input_free_bytes: AtomicUsize,
    pub output_bytes: AtomicUsize,
    pub output_capacity_bytes: AtomicUsize,
    /// Arguments of the command that runs.
    pub argv_bytes: AtomicUsize,
    /// Everything that the client holds, as it is counted in [`Clients::memory_bytes`].
    pub total_bytes: AtomicUsize,
}

impl ClientInfo {
    pub fn new(id: u64, arrival: Arrival, worker: usize) -> ClientInfo {
        let Arrival { door, addr, laddr, is_local, fd } = arrival;
        let published = Published {
            multi_count: AtomicI64::new(-1),
            last_active_unix_ms: AtomicI64::new(unix_ms()),
            ..Published::default()
        };
        ClientInfo {
            id,
            addr,
            laddr,
            fd,
            door,
            is_local,
            worker,
            connected_at: Instant::now(),
            names: Mutex::default(),
            token: AtomicU64::new(0),
            is_killed: AtomicBool::new(false),
            published,
        }
    }

    #[inline]
    pub fn token(&self) -> Token {
        Token(self.token.load(Ordering::Acquire))
    }

    pub fn set_token(&self, token: Token) {
        self.token.store(token.0, Ordering::Release);
    }
}

/// All connected clients by id.
#[derive(Default, Debug)]
pub struct Clients {
    by_id: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    next_id: AtomicU64,
    count: AtomicUsize,
    /// What all clients hold together.
    memory_bytes: AtomicUsize,
}

impl Clients {
    /// An id that no client has had before; the first is 1.
    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn add(&self, info: Arc<ClientInfo>) {
        if self.by_id.lock().insert(info.id, info).is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn remove(&self, id: u64) {
        if let Some(info) = self.by_id.lock().remove(&id) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.set_memory(&info, 0);
        }
    }

    /// Says what a client holds; called by its worker.
    #[inline]
    pub fn set_memory(&self, info: &ClientInfo, bytes: usize) {
        let before = info.published.total_bytes.load(Ordering::Relaxed);
        if before != bytes {
            info.published.total_bytes.store(bytes, Ordering::Relaxed);
            self.memory_bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed) as u64
    }

    /// The clients to close so that the others hold no more than `limit_bytes`: the largest ones first, but those of
    /// `CLIENT NO-EVICT`. They are marked, and counted as gone from then on.
    pub fn to_evict(&self, limit_bytes: u64) -> Vec<Arc<ClientInfo>> {
        let size = |info: &ClientInfo| info.published.total_bytes.load(Ordering::Relaxed) as u64;
        let mut clients = self.all();
        clients.retain(|info| !info.is_killed.load(Ordering::Acquire));
        let mut total: u64 = clients.iter().map(|info| size(info)).sum();
        let is_spared =
            |info: &ClientInfo| info.published.flags.load(Ordering::Relaxed) & client_flag::NO_EVICT != 0;
        clients.retain(|info| !is_spared(info));
        clients.sort_by_key(|info| std::cmp::Reverse(size(info)));
        let mut evicted = Vec::new();
        for info in clients {
            if total <= limit_bytes {
                break;
            }
            total = total.saturating_sub(size(&info));
            if !info.is_killed.swap(true, Ordering::AcqRel) {
                evicted.push(info);
            }
        }
        evicted
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub fn get(&self, id: u64) -> Option<Arc<ClientInfo>> {
        self.by_id.lock().get(&id).cloned()
    }

    /// All of them, by id.
    pub fn all(&self) -> Vec<Arc<ClientInfo>> {
        self.by_id.lock().values().cloned().collect()
    }
}
