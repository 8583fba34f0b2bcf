//! What the server remembers of a client between two commands.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use stillframe_store::{DbId, Duplicate, ElementCopies, Incoming, Sending, UnixMillis};

use crate::command::CommandId;
use crate::config::{OutputLimit, Settings};
use crate::protocol::args::{ArgRange, Args};
use crate::protocol::collected::Collected;
use crate::protocol::need::Need;
use crate::protocol::reply::Replies;
use crate::state::clients::ClientInfo;
use crate::state::combination::Combination;
use crate::state::drawing::Drawing;
use crate::state::elements::Batch;
use crate::state::listener::Listener;
use crate::state::patience::Patience;
use crate::state::restoring::Restoring;
use crate::state::subscription::Subscriptions;

/// Memory of the tables around an entry, about.
const TABLE_BYTES: usize = 64;

/// `CLIENT REPLY`: whether the client is answered.
///
/// ```text
///   any --- OFF ---> silent until ON
///   answered --- SKIP ---> skips the next --- that command ends ---> skips this --- the next command ends ---> answered
/// ```
/// A `SKIP` that is skipped itself skips the next one, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplyMode(u8);

impl ReplyMode {
    const OFF: u8 = 1;
    const SKIPS_THIS: u8 = 2;
    const SKIPS_NEXT: u8 = 4;

    /// Nothing is held back, now or later.
    #[inline]
    pub fn is_plain(self) -> bool {
        self.0 == 0
    }

    /// What is written now does not go to the client.
    pub fn is_silent(self) -> bool {
        self.0 & (ReplyMode::OFF | ReplyMode::SKIPS_THIS) != 0
    }

    pub fn on(&mut self) {
        self.0 &= !(ReplyMode::OFF | ReplyMode::SKIPS_THIS);
    }

    pub fn off(&mut self) {
        self.0 |= ReplyMode::OFF;
    }

    pub fn skip(&mut self) {
        if self.0 & ReplyMode::OFF == 0 {
            self.0 |= ReplyMode::SKIPS_NEXT;
        }
    }

    /// `RESET`, which may be skipped itself.
    pub fn reset(&mut self) {
        self.0 &= ReplyMode::SKIPS_THIS;
    }

    #[inline]
    pub fn end_command(&mut self) {
        let is_next = self.0 & ReplyMode::SKIPS_NEXT != 0;
        self.0 = self.0 & ReplyMode::OFF | if is_next { ReplyMode::SKIPS_THIS } else { 0 };
    }
}

/// Whether a connection goes on. Commands that follow in the input are not executed once it ends.
///
/// ```text
///   Open --- QUIT, CLIENT KILL of itself, protocol error; the peer sends no more and all is executed ---> AfterReply
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
    /// What its random choices begin with, each time that it begins anew.
    pub seed: Option<u64>,
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

impl Watched {
    /// Memory that it takes, with its entry in the table of all that are watched.
    pub fn byte_count(&self) -> usize {
        2 * (self.key.len() + size_of::<Watched>()) + TABLE_BYTES
    }
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
    replies: Vec<Promised>,
    /// Output of the command from the first of these places on.
    held: Replies,
    /// A part of the reply is in the output, and nothing else may come between it and the rest.
    is_begun: bool,
    /// Memory that the client takes as one that waits for a key.
    pub waiting_bytes: usize,
}

#[derive(Debug)]
struct Promised {
    /// Where it belongs, in bytes of output.
    at: usize,
    /// Once it is there.
    reply: Option<Replies>,
    /// Not if the client does not want to be answered (`CLIENT REPLY`).
    is_wanted: bool,
}

impl LateReplies {
    pub fn is_awaited(&self) -> bool {
        !self.replies.is_empty()
    }

    /// A reply that belongs at byte `at` of the output comes later.
    pub fn promise(&mut self, at: usize) -> LateReply {
        self.replies.push(Promised { at, reply: None, is_wanted: true });
        LateReply(self.replies.len() - 1)
    }

    pub fn begin(&mut self) {
        self.is_begun = true;
    }

    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// So many bytes have come into the output at byte `at`.
    pub fn move_from(&mut self, at: usize, count: usize) {
        self.replies
            .iter_mut()
            .filter(|promised| promised.at >= at)
            .for_each(|promised| promised.at += count);
    }

    /// Output from byte `start` on is not wanted.
    pub fn drop_from(&mut self, start: usize) {
        for promised in self.replies.iter_mut().filter(|promised| promised.at >= start) {
            (promised.at, promised.is_wanted) = (start, false);
        }
    }

    /// Where the output has to be cut off until the first reply is there.
    #[inline]
    pub fn first_place(&self) -> Option<usize> {
        self.replies.first().map(|promised| promised.at)
    }

    /// The command has ended; `held` is its output from [`LateReplies::first_place`] on.
    pub fn hold(&mut self, held: Replies) {
        self.held = held;
    }

    /// A reply is there. Returns all output that was held if it was the last.
    pub fn take(&mut self, which: LateReply, reply: Replies) -> Option<Replies> {
        self.replies.get_mut(which.0)?.reply = Some(reply);
        if self.replies.iter().any(|promised| promised.reply.is_none()) {
            return None;
        }
        let all = std::mem::take(self);
        let first = all.first_place().unwrap_or(0);
        let (mut out, mut held, mut done) = (Replies::default(), all.held, 0);
        for Promised { at, reply, is_wanted } in all.replies {
            let rest = held.split_off((at - first).saturating_sub(done));
            done += held.bytes().len();
            out.append(std::mem::replace(&mut held, rest));
            out.append(reply.filter(|_| is_wanted).unwrap_or_default());
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

/// Within what a command runs: what else there is beside it says what it may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Within {
    /// It is a client's, by itself: it may wait, pause, promise a reply, and turn the connection into something else.
    #[default]
    Client,
    /// One of a transaction: it is carried out now, and answers now.
    Transaction,
    /// One of a transaction that is only looked at, and stopped at its first change: what it finds is not counted.
    Look,
    /// One that a script calls: it is carried out now, answers the script, and no monitor takes it for the client's.
    Script,
    /// It has waited and runs in the place of its client, to take something from the key at this index of its arguments.
    Served { index: usize },
    /// It has found nothing there.
    ServedInVain,
}

impl Within {
    /// Whether it has to come to its end at once, whatever that takes.
    pub fn is_transaction(self) -> bool {
        matches!(self, Within::Transaction | Within::Look | Within::Script)
    }

    /// Whether it is called anew for a client that has waited.
    pub fn is_served(self) -> bool {
        matches!(self, Within::Served { .. })
    }
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
    /// Memory that the watched keys take, here and in the table of all.
    pub watched_bytes: usize,
    pub watch_flag: Arc<WatchFlag>,
    pub ending: Ending,
    /// What its output tells of so far. It only rises.
    pub need: Need,
    /// The running command's.
    pub within: Within,
    pub late: LateReplies,
    /// The command that has just run waits for a key.
    pub is_waiting: bool,
    pub is_monitor: bool,
    pub subscriptions: Subscriptions,
    /// What it is told by others, as long as it listens to something or monitors.
    pub listener: Option<Arc<Listener>>,
    /// The byte of output before which nothing of that goes, while a command runs.
    pub hears_from: usize,
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
    /// What the running command has waited for, if it has begun anew.
    pub patience: Option<Box<Patience>>,
    /// The rest of a reply that is written as the client takes it.
    pub drawing: Option<Box<Drawing>>,
}

impl Session {
    /// Whether a part of a reply is in the output, so that nothing else may come before the rest.
    #[inline]
    pub fn has_begun_reply(&self) -> bool {
        self.late.is_begun() || self.drawing.is_some()
    }

    /// Bytes that have been told to it and wait for the end of a reply.
    #[inline]
    pub fn heard_bytes(&self) -> usize {
        self.listener.as_ref().map_or(0, |listener| listener.waiting_bytes())
    }

    /// Memory that it holds beside the connection's buffers.
    pub fn byte_count(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, |transaction| transaction.bytes as usize);
        let drawing = self.drawing.as_ref().map_or(0, |drawing| drawing.byte_count());
        let walk = self.keys_walk.as_ref().map_or(0, |walk| walk.found.held_bytes());
        queued + drawing + walk + self.subscriptions.byte_count + self.watched_bytes + self.late.waiting_bytes
    }

    /// What it may leave unread.
    #[inline]
    pub fn output_limit(&self, settings: &Settings) -> OutputLimit {
        settings.output_limits[usize::from(!self.subscriptions.is_empty())]
    }

    /// Its inbox; a new one if it has listened to nothing so far.
    pub fn listen(&mut self, client: &Arc<ClientInfo>) -> Arc<Listener> {
        self.listener.get_or_insert_with(|| Arc::new(Listener::new(client.clone()))).clone()
    }

    /// Nobody tells it anything any more, and it has taken what it was told.
    pub fn drop_silent_listener(&mut self) {
        if self.subscriptions.is_empty() && !self.is_monitor {
            self.listener = None;
        }
    }

    /// Whether the running command goes on where it was when it begins anew: it need not have all its pages together.
    pub fn goes_on(&self) -> bool {
        self.ahead.is_some() || self.value_walk.is_some() || self.keys_walk.is_some()
    }

    /// Commands that wait for `EXEC`.
    #[inline]
    pub fn queued_count(&self) -> usize {
        self.transaction.as_ref().map_or(0, |transaction| transaction.queued.len())
    }

    /// The last of them, if it was not there when there were so many.
    #[inline]
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
            reply_mode: ReplyMode::default(),
            transaction: None,
            watched: HashSet::new(),
            watched_bytes: 0,
            watch_flag: Arc::default(),
            ending: Ending::Open,
            need: Need::default(),
            within: Within::Client,
            late: LateReplies::default(),
            is_waiting: false,
            is_monitor: false,
            subscriptions: Subscriptions::default(),
            listener: None,
            hears_from: 0,
            has_pushed: false,
            no_evict: false,
            no_touch: false,
            last_command: None,
            value_walk: None,
            ahead: None,
            keys_walk: None,
            patience: None,
            drawing: None,
        }
    }
}
