//! What the server remembers of a client between two commands.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use stillframe_store::{DbId, Duplicate, ElementCopies, Fault, Incoming, Sending, UnixMillis};

use crate::command::CommandId;
use crate::config::{OutputLimit, Settings};
use crate::protocol::args::{ArgRange, Args};
use crate::protocol::collected::Collected;
use crate::protocol::reply::Replies;
use crate::state::combination::Combination;
use crate::state::elements::Batch;
use crate::state::restoring::Restoring;
use crate::state::subscription::Subscriptions;

/// `CLIENT REPLY`.
///
/// ```text
///   On <--- ON --- Off <--- OFF --- any
///   On --- SKIP ---> SkipNext --- next command begins ---> Skip --- it ends ---> On
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyMode {
    On,
    Off,
    /// The reply of the next command is dropped.
    SkipNext,
    /// The command that runs is the one that is not answered.
    Skip,
}

/// Whether a connection goes on. Commands that follow in the input are not executed once it ends.
///
/// ```text
///   Open --- QUIT, CLIENT KILL of itself, protocol error ---> AfterReply
///   Open, AfterReply --- HTTP, output beyond the hard limit ---> AtOnce
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Open,
    /// Close once the replies so far are sent.
    AfterReply,
    /// Close without sending anything more.
    AtOnce,
}

/// A queued command of a transaction.
pub struct Queued {
    pub id: CommandId,
    pub buf: Vec<u8>,
    pub ranges: Vec<ArgRange>,
    /// What it has made of large values before `EXEC` runs it. It may be reading `incoming`, which is dropped after it.
    pub ahead: Option<Box<Ahead>>,
    /// Large arguments, by their indices; `buf` has their first bytes.
    pub incoming: Vec<(usize, Incoming)>,
}

impl Queued {
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.buf, &self.ranges).with_incoming(&self.incoming)
    }
}

/// Between `MULTI` and `EXEC`.
#[derive(Default)]
pub struct Transaction {
    pub queued: Vec<Queued>,
    /// Flags of all queued commands together.
    pub flags: u32,
    /// Bytes held by the queue, for `CLIENT LIST`.
    pub bytes: u64,
    /// A command could not be queued: `EXEC` must abort.
    pub is_broken: bool,
}

/// Raised when a watched key changes; shared by a client's watches.
#[derive(Default, Debug)]
pub struct WatchFlag(AtomicBool);

impl WatchFlag {
    pub fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A key named in `WATCH`; the same one as any other of its name in its database.
pub struct Watched {
    pub db: DbId,
    pub key: Vec<u8>,
    pub hash: u64,
    /// Whether it was there; if not, nothing is lost when what has expired under its name is removed.
    pub was_there: bool,
    /// Its deadline at that time: expiry between `WATCH` and `EXEC` counts as a change.
    pub deadline: Option<UnixMillis>,
}

impl PartialEq for Watched {
    fn eq(&self, other: &Watched) -> bool {
        (self.db, &self.key) == (other.db, &other.key)
    }
}

impl Eq for Watched {}

impl Hash for Watched {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// Which of the replies of a command that come later: of the queued commands of an `EXEC` there can be several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LateReply(usize);

/// Replies that come later, in their places among those that are there.
///
/// ```text
///   None --- a command says that its reply comes later --> Running --- the command ends --> Awaited --- all there --> None
/// ```
#[derive(Default, Debug)]
pub struct LateReplies {
    /// Where each belongs, in bytes of output, and the reply once it is there.
    replies: Vec<(usize, Option<Replies>)>,
    /// Output of the command from the first of these places on.
    held: Replies,
    /// The client does not want to be answered (`CLIENT REPLY`).
    is_unwanted: bool,
}

impl LateReplies {
    pub fn is_awaited(&self) -> bool {
        !self.replies.is_empty()
    }

    /// A reply that belongs at byte `at` of the output comes later.
    pub fn promise(&mut self, at: usize) -> LateReply {
        self.replies.push((at, None));
        LateReply(self.replies.len() - 1)
    }

    /// The command's output is not wanted.
    pub fn drop_all(&mut self) {
        self.is_unwanted = self.is_awaited();
    }

    /// Where the output has to be cut off until the first reply is there.
    pub fn first_place(&self) -> Option<usize> {
        self.replies.first().map(|(at, _)| *at)
    }

    /// The command has ended; `held` is its output from [`LateReplies::first_place`] on.
    pub fn hold(&mut self, held: Replies) {
        self.held = held;
    }

    /// A reply is there. Returns all output that was held if it was the last.
    pub fn take(&mut self, which: LateReply, reply: Replies) -> Option<Replies> {
        self.replies.get_mut(which.0)?.1 = Some(reply);
        if self.replies.iter().any(|(_, reply)| reply.is_none()) {
            return None;
        }
        let all = std::mem::take(self);
        if all.is_unwanted {
            return Some(Replies::default());
        }
        let first = all.first_place().unwrap_or(0);
        let (mut out, mut held, mut done) = (Replies::default(), all.held, 0);
        for (at, reply) in all.replies {
            let rest = held.split_off((at - first).saturating_sub(done));
            done += held.bytes().len();
            out.append(std::mem::replace(&mut held, rest));
            out.append(reply.unwrap_or_default());
        }
        out.append(held);
        Some(out)
    }
}

/// A `KEYS` that waits for pages, and how far it has come. It goes on from there, or it would not end where the keys do not
/// fit into memory. So it is no picture of one instant then: it has each key that was there throughout.
#[derive(Debug)]
pub struct KeysWalk {
    pub found: Collected,
    pub cursor: u64,
}

/// What a command makes of large values, part by part, before it runs.
#[derive(Debug)]
pub enum Ahead {
    Copy(Duplicate),
    /// Long elements of a collection that is to be copied.
    Elements(ElementCopies),
    /// A collection that is to be restored, its long elements in pages.
    Gathered(Batch),
    Combination(Combination),
    Restored(Restoring),
}

/// How far a command has got through a large value, which stays as it was when the command began.
#[derive(Debug)]
pub struct ValueWalk {
    pub value: Sending,
    pub done_bytes: u64,
    /// What it counts.
    pub count: u64,
}

/// A command that has waited is called anew, in the place of its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// To take something from the key at this index of its arguments.
    For { index: usize },
    /// It has found nothing there.
    InVain,
}

/// State of a client that its commands change.
pub struct Session {
    pub id: u64,
    pub db: DbId,
    /// RESP3, chosen by `HELLO 3`.
    pub resp3: bool,
    pub is_authenticated: bool,
    pub reply_mode: ReplyMode,
    pub transaction: Option<Box<Transaction>>,
    pub watched: HashSet<Watched>,
    pub watch_flag: Arc<WatchFlag>,
    pub ending: Ending,
    /// `EXEC` runs the command: it must not wait, nor turn the connection into something else.
    pub is_in_exec: bool,
    pub late: LateReplies,
    pub woken: Option<Woken>,
    pub is_monitor: bool,
    pub subscriptions: Subscriptions,
    /// The command that runs has written what `CLIENT REPLY` does not hold back.
    pub has_pushed: bool,
    pub no_evict: bool,
    /// `CLIENT NO-TOUCH`: reads do not count as accesses.
    pub no_touch: bool,
    /// The command that is running or has run last.
    pub last_command: Option<CommandId>,
    /// A command over a large value that goes on where it paused. Of this and the next two, no other command of the client
    /// runs before the one that they belong to has been answered.
    pub value_walk: Option<Box<ValueWalk>>,
    /// What a command makes of large values before it runs.
    pub ahead: Option<Box<Ahead>>,
    /// A `KEYS` that waits for pages.
    pub keys_walk: Option<Box<KeysWalk>>,
    /// Pages that the running command has waited for, all its beginnings together.
    pub missed_page_count: u64,
}

impl Session {
    /// What it may leave unread.
    pub fn output_limit(&self, settings: &Settings) -> OutputLimit {
        settings.output_limits[usize::from(!self.subscriptions.is_empty())]
    }

    /// The running command has met pages that are missing and begins anew when they are there. So many it has waited for since it
    /// last got on.
    pub fn note_missed(&mut self, fault: &Fault) -> u64 {
        let goes_on = fault.is_pause()
            || self.ahead.is_some()
            || self.value_walk.is_some()
            || self.keys_walk.is_some()
            || self.transaction.is_some();
        self.missed_page_count = if goes_on { 0 } else { self.missed_page_count + fault.page_count() };
        self.missed_page_count
    }

    /// Commands that wait for `EXEC`.
    pub fn queued_count(&self) -> usize {
        self.transaction.as_ref().map_or(0, |transaction| transaction.queued.len())
    }

    /// The last of them, if it was not there when there were so many.
    pub fn queued_since(&mut self, count: usize) -> Option<&mut Queued> {
        let is_new = self.queued_count() > count;
        self.transaction.as_mut().filter(|_| is_new)?.queued.last_mut()
    }

    /// A command has been answered: what it paused with is not for the next one.
    pub fn end_walks(&mut self) {
        (self.value_walk, self.ahead, self.keys_walk) = (None, None, None);
    }

    pub fn new(id: u64, is_authenticated: bool) -> Session {
        Session {
            id,
            db: DbId(0),
            resp3: false,
            is_authenticated,
            reply_mode: ReplyMode::On,
            transaction: None,
            watched: HashSet::new(),
            watch_flag: Arc::default(),
            ending: Ending::Open,
            is_in_exec: false,
            late: LateReplies::default(),
            woken: None,
            is_monitor: false,
            subscriptions: Subscriptions::default(),
            has_pushed: false,
            no_evict: false,
            no_touch: false,
            last_command: None,
            value_walk: None,
            ahead: None,
            keys_walk: None,
            missed_page_count: 0,
        }
    }
}
