//! The end of the stream: units are put behind it under one short lock, and the writer takes them from there.

use std::sync::Arc;
use std::time::Duration;

use crate::block::NO_DATABASE;
use crate::bytes::now_unix_ms;
use crate::chunk::{Chunk, Large, Link, Part};
use crate::names::Offset;
use crate::options::SyncPolicy;
use crate::seams::Piece;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A unit of at most so many bytes is copied under the lock.
const COPIED_BYTES: u64 = 64 << 10;
/// Empty chunks that are kept for what comes.
const FREE_CHUNKS: usize = 4;

/// How the writer is to end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stop {
    No,
    /// When everything is durable.
    Close,
    /// At once.
    Abandon,
}

/// What the writer sees.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Bytes that it has not taken.
    pub waiting_bytes: u64,
    /// Somebody waits until everything before this is durable.
    pub wanted: Offset,
    pub policy: SyncPolicy,
    pub stop: Stop,
}

/// What the writer sleeps for.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// So many bytes wait.
    pub waiting_bytes: u64,
    /// Somebody wants more than this to be durable.
    pub wanted_beyond: Offset,
    pub timeout: Option<Duration>,
}

/// Units on their way to the writer.
///
/// ```text
///            append                 take                   give back
///  (bytes) ──────────▶ open chunk ────────▶ (the writer's) ──────────▶ free chunks ──▶ open chunk
///                          │ full, or a link comes           ▲
///                          └──────▶ parts, in order ─────────┘
/// ```
/// Between two appends only whole units are there.
pub struct Tail {
    state: Mutex<State>,
    work: Condvar,
    /// Copy of the state's.
    end: AtomicU64,
    is_full: AtomicBool,
    block_bytes: usize,
    memory_bytes: u64,
    select: fn(u32, &mut Vec<u8>),
}

struct State {
    end: Offset,
    /// The database that the stream has selected; none: not known.
    database: Option<u32>,
    open: Option<Chunk>,
    parts: Vec<Part>,
    free: Vec<Chunk>,
    select: Vec<u8>,
    waiting_bytes: u64,
    /// Waiting, and taken but not yet written.
    buffered_bytes: u64,
    unit_count: u64,
    /// What the writer sleeps for, as long as it sleeps.
    wish: Option<Wish>,
    is_rung: bool,
    wanted: Offset,
    policy: SyncPolicy,
    stop: Stop,
    /// The log has failed: what is appended is only counted.
    is_dead: bool,
}

impl Tail {
    pub fn new(
        at: Offset,
        block_bytes: usize,
        memory_bytes: u64,
        policy: SyncPolicy,
        select: fn(u32, &mut Vec<u8>),
    ) -> Tail {
        let state = State {
            end: at,
            database: None,
            open: None,
            parts: Vec::new(),
            free: Vec::new(),
            select: Vec::new(),
            waiting_bytes: 0,
            buffered_bytes: 0,
            unit_count: 0,
            wish: None,
            is_rung: false,
            wanted: Offset(0),
            policy,
            stop: Stop::No,
            is_dead: false,
        };
        Tail {
            state: Mutex::new(state),
            work: Condvar::new(),
            end: AtomicU64::new(at.0),
            is_full: AtomicBool::new(false),
            block_bytes,
            memory_bytes,
            select,
        }
    }

    /// Appends a unit. Returns its end, and whether there is no room for more since then.
    pub fn append(
        &self,
        databases: Option<(u32, u32)>,
        pieces: &mut dyn Iterator<Item = Piece<'_>>,
        len_bytes: u64,
    ) -> (Offset, bool) {
        // What takes long, or memory, is done before the lock is taken.
        let gathered = (len_bytes > COPIED_BYTES).then(|| gather(pieces));
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let begin = state.end;
        let mut unit = Unit { state, block_bytes: self.block_bytes, is_begun: false };
        unit.select(databases.map(|(first, _)| first), self.select);
        match gathered {
            Some(parts) => parts.into_iter().for_each(|part| unit.put_large(part)),
            None => {
                for piece in pieces {
                    match piece {
                        Piece::Bytes(bytes) => unit.put(bytes),
                        Piece::Body(body) => unit.put_large(Large::Body(body.clone())),
                    }
                }
            }
        }
        unit.end();
        if let Some((_, last)) = databases {
            state.database = Some(last);
        }
        let end = state.end;
        let byte_count = end.since(begin);
        state.waiting_bytes += if state.is_dead { 0 } else { byte_count };
        state.buffered_bytes += if state.is_dead { 0 } else { byte_count };
        self.end.store(end.0, Ordering::Release);
        let is_full_now = state.buffered_bytes > self.memory_bytes;
        let became_full = is_full_now && !self.is_full.swap(true, Ordering::AcqRel);
        let is_woken = state.wish.is_some_and(|wish| state.waiting_bytes >= wish.waiting_bytes);
        self.wake_if(guard, is_woken);
        (end, became_full)
    }

    /// The next unit has a SELECT. `act` sees the end under the lock.
    pub fn cut<T>(&self, act: impl FnOnce(Offset) -> T) -> T {
        let mut state = self.state.lock();
        state.database = None;
        act(state.end)
    }

    pub fn end(&self) -> Offset {
        Offset(self.end.load(Ordering::Acquire))
    }

    /// Whether more waits than may, by the last count.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Bytes that have not been written, and units so far.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.buffered_bytes, state.unit_count)
    }

    pub fn policy(&self) -> SyncPolicy {
        self.state.lock().policy
    }

    pub fn stop(&self) -> Stop {
        self.state.lock().stop
    }

    pub fn set_policy(&self, policy: SyncPolicy) {
        let mut state = self.state.lock();
        state.policy = policy;
        self.ring_locked(state);
    }

    /// Everything before `to` is to be made durable.
    pub fn want(&self, to: Offset) {
        let mut state = self.state.lock();
        state.wanted = state.wanted.max(to);
        let is_woken = state.wish.is_some_and(|wish| state.wanted > wish.wanted_beyond);
        self.wake_if(state, is_woken);
    }

    /// The writer is to end; what has been said before is not taken back.
    pub fn end_with(&self, stop: Stop) {
        let mut state = self.state.lock();
        state.stop = state.stop.max(stop);
        self.ring_locked(state);
    }

    /// The writer looks once more.
    pub fn ring(&self) {
        let state = self.state.lock();
        self.ring_locked(state);
    }

    /// The log has failed: what waits is dropped, and what comes too.
    pub fn die(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.is_dead = true;
            state.waiting_bytes = 0;
            state.buffered_bytes = 0;
            self.is_full.store(false, Ordering::Release);
            let dropped = (state.open.take(), std::mem::take(&mut state.parts));
            self.ring_locked(state);
            dropped
        };
        drop(dropped);
    }

    /// Sleeps until there is something to do, by `wish`, or somebody rings. For the writer alone.
    pub fn wait(&self, wish: Wish) -> View {
        let mut state = self.state.lock();
        let is_due = |state: &State| {
            state.is_rung || state.waiting_bytes >= wish.waiting_bytes || state.wanted > wish.wanted_beyond
        };
        if !is_due(&state) {
            state.wish = Some(wish);
            match wish.timeout {
                Some(timeout) => {
                    self.work.wait_for(&mut state, timeout);
                }
                None => self.work.wait(&mut state),
            }
            state.wish = None;
        }
        state.is_rung = false;
        state.view()
    }

    /// Takes all that waits, into the empty `parts`; returns where it ends. For the writer alone.
    pub fn take(&self, parts: &mut Vec<Part>) -> Offset {
        debug_assert!(parts.is_empty());
        let mut state = self.state.lock();
        let open = state.open.take();
        state.parts.extend(open.map(Part::Chunk));
        std::mem::swap(&mut state.parts, parts);
        state.waiting_bytes = 0;
        state.end
    }

    /// So many bytes have been written, and their chunks are free. Returns whether there is room again.
    pub fn give_back(&self, byte_count: u64, chunks: &mut Vec<Chunk>) -> bool {
        let mut state = self.state.lock();
        while state.free.len() < FREE_CHUNKS {
            let Some(chunk) = chunks.pop() else { break };
            state.free.push(chunk);
        }
        state.buffered_bytes = state.buffered_bytes.saturating_sub(byte_count);
        let has_room = state.buffered_bytes <= self.memory_bytes / 4 * 3;
        let got_room = has_room && self.is_full.swap(false, Ordering::AcqRel);
        drop(state);
        chunks.clear();
        got_room
    }

    fn ring_locked(&self, mut state: MutexGuard<'_, State>) {
        state.is_rung = true;
        let is_asleep = state.wish.is_some();
        self.wake_if(state, is_asleep);
    }

    fn wake_if(&self, mut state: MutexGuard<'_, State>, is_woken: bool) {
        if is_woken {
            // Once is enough.
            state.wish = None;
            drop(state);
            self.work.notify_all();
        }
    }
}

impl State {
    fn view(&self) -> View {
        View { waiting_bytes: self.waiting_bytes, wanted: self.wanted, policy: self.policy, stop: self.stop }
    }

    /// The chunk that bytes go to, with room for one at least.
    fn open_chunk(&mut self, block_bytes: usize) -> &mut Chunk {
        if self.open.as_ref().is_some_and(|chunk| chunk.room_bytes() == 0) {
            self.close_chunk();
        }
        if self.open.is_none() {
            let mut chunk = self.free.pop().unwrap_or_else(|| Chunk::new(block_bytes));
            chunk.reset(self.end, self.database.unwrap_or(NO_DATABASE));
            self.open = Some(chunk);
        }
        self.open.as_mut().expect("there is one now")
    }

    fn close_chunk(&mut self) {
        let open = self.open.take();
        self.parts.extend(open.map(Part::Chunk));
    }
}

/// A unit that is being appended.
struct Unit<'s> {
    state: &'s mut State,
    block_bytes: usize,
    is_begun: bool,
}

impl Unit<'_> {
    /// A SELECT in front, where the stream's database is another.
    fn select(&mut self, database: Option<u32>, write: fn(u32, &mut Vec<u8>)) {
        let Some(database) = database.filter(|database| self.state.database != Some(*database)) else {
            return;
        };
        let mut command = std::mem::take(&mut self.state.select);
        command.clear();
        write(database, &mut command);
        self.put(&command);
        self.state.select = command;
        self.state.database = Some(database);
    }

    fn put(&mut self, mut bytes: &[u8]) {
        if self.state.is_dead {
            self.state.end = self.state.end.plus(bytes.len() as u64);
            return;
        }
        while !bytes.is_empty() {
            let is_begun = std::mem::replace(&mut self.is_begun, true);
            let chunk = self.state.open_chunk(self.block_bytes);
            if !is_begun {
                chunk.begin_unit(now_unix_ms);
            }
            let byte_count = chunk.put(bytes);
            bytes = &bytes[byte_count..];
            self.state.end = self.state.end.plus(byte_count as u64);
        }
    }

    fn put_large(&mut self, large: Large) {
        let byte_count = large.len_bytes();
        if let Large::Bytes(bytes) = &large {
            if byte_count <= COPIED_BYTES {
                return self.put(bytes);
            }
        }
        let state = &mut *self.state;
        if !state.is_dead && byte_count > 0 {
            state.close_chunk();
            state.parts.push(Part::Link(Link {
                large,
                offset: state.end,
                is_begin: !std::mem::replace(&mut self.is_begun, true),
                is_end: false,
                unix_ms: now_unix_ms(),
                database: state.database.unwrap_or(NO_DATABASE),
            }));
        }
        state.end = state.end.plus(byte_count);
    }

    fn end(&mut self) {
        let state = &mut *self.state;
        if !self.is_begun {
            return;
        }
        state.unit_count += 1;
        match (&mut state.open, state.parts.last_mut()) {
            (Some(chunk), _) => chunk.end_unit(),
            (None, Some(Part::Link(link))) => link.is_end = true,
            _ => unreachable!("a unit that has begun has bytes in the open chunk, or behind the last link"),
        }
    }
}

/// Large parts by themselves, and what lies between them in buffers of its own.
fn gather(pieces: &mut dyn Iterator<Item = Piece<'_>>) -> Vec<Large> {
    let mut parts = Vec::new();
    let mut between = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => between.extend_from_slice(bytes),
            Piece::Body(body) => {
                if !between.is_empty() {
                    parts.push(Large::Bytes(Arc::new(std::mem::take(&mut between))));
                }
                parts.push(Large::Body(body.clone()));
            }
        }
    }
    if !between.is_empty() {
        parts.push(Large::Bytes(Arc::new(between)));
    }
    parts
}
