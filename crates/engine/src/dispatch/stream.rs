//! Replies with a large collection: written by a thread of their own from a picture of the data, part by part, as the
//! client takes them. Neither the worker nor the memory is held up by how many elements there are.
//!
//! ```text
//!   command ── promise ──▶ thread: view, header, elements ──▶ part ──▶ worker: output ──▶ socket
//!                            ▲                                              │ written
//!                            └──────────────────────────────────────────────┘
//! ```
//! The reply shows the data as of the picture, which is taken between the command and the reply. Further commands of the
//! client wait until the last part has been handed over.
//!
//! There may be as many as there are clients, and each holds no more than a part, so a client that takes nothing is in nobody's way. But
//! only so many write at a time: a thread that waits for its client lets others have its turn.

use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

use stillframe_store::rdb::WriteError;
use stillframe_store::{
    CollectionView, DbId, Element, Given, OwnedRange, RangeLimit, SaveError, UnixMillis, Value, ValueType,
    ViewEntry,
};

use crate::dispatch::ctx::Ctx;
use crate::log;
use crate::persistence::collections::{held, CollectionError, PayloadForm};
use crate::protocol::errors;
use crate::protocol::need::Need;
use crate::protocol::reply::{Replies, Reply, ReplyBuf};
use crate::server::Server;
use crate::state::clients::ClientInfo;
use crate::state::mailbox::{Message, Part};
use crate::state::session::LateReply;

/// From so many elements on a reply is written by a thread of its own: taking a picture and starting one take as long as
/// some thousands of elements.
pub const STREAMED_MIN_ELEMENTS: u64 = 20_000;
/// A thread needs no more.
const STACK_BYTES: usize = 512 << 10;
const PART_BYTES: usize = 256 << 10;
/// With a usual element above that.
const PART_CAPACITY_BYTES: usize = PART_BYTES + (16 << 10);
/// A client that takes nothing for so long is closed: what has changed since the picture is kept for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is written of each element.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// A map of fields and values.
    Pairs,
    Fields,
    Values,
    /// A set of members.
    Members,
    /// An array of so many items from this index on.
    Items {
        start: u64,
        count: u64,
    },
    /// An array of members of a sorted set.
    Scored(ScoredPart),
    /// The payload of `DUMP`, of any collection.
    Payload(PayloadForm),
}

/// Which members of a sorted set are written, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct ScoredPart {
    pub range: OwnedRange,
    pub is_downwards: bool,
    pub limit: RangeLimit,
    pub has_scores: bool,
}

impl Shape {
    fn is_of(&self, value_type: ValueType) -> bool {
        match self {
            Shape::Pairs | Shape::Fields | Shape::Values => value_type == ValueType::Hash,
            Shape::Members => value_type == ValueType::Set,
            Shape::Items { .. } => value_type == ValueType::List,
            Shape::Scored(_) => value_type == ValueType::SortedSet,
            Shape::Payload(_) => value_type != ValueType::String,
        }
    }

    /// The indices of the elements that are written.
    fn indices(&self, collection: &CollectionView<'_>, now: UnixMillis) -> Result<Range<u64>, SaveError> {
        match self {
            Shape::Items { start, count } => {
                let len = collection.element_count()?;
                Ok((*start).min(len)..start.saturating_add(*count).min(len))
            }
            Shape::Scored(part) => {
                collection.scored_ranks(&part.range.as_range(), part.is_downwards, part.limit)
            }
            _ => Ok(0..count_at(collection, now)?),
        }
    }

    fn begin(&self, reply: &mut Reply<'_>, element_count: u64) {
        let element_count = element_count as usize;
        match self {
            Shape::Pairs => reply.map(element_count),
            Shape::Fields | Shape::Values | Shape::Items { .. } => reply.array(element_count),
            Shape::Members => reply.set(element_count),
            Shape::Scored(part) => reply.members(element_count, part.has_scores),
            // Without elements there is no collection.
            Shape::Payload(_) => reply.null(),
        }
    }

    fn write(&self, reply: &mut Reply<'_>, element: &Element<'_>) {
        match (self, *element) {
            (Shape::Pairs, Element::Field { field, value, .. }) => {
                reply.bulk(field);
                reply.bulk(value);
            }
            (Shape::Fields, Element::Field { field, .. }) => reply.bulk(field),
            (Shape::Values, Element::Field { value, .. }) => reply.bulk(value),
            (Shape::Members, Element::Member(member)) => reply.bulk(member),
            (Shape::Items { .. }, Element::Item(item)) => reply.bulk(item),
            (Shape::Scored(part), Element::Scored { member, score }) => {
                reply.member(Given::Here(member), score, part.has_scores);
            }
            _ => {}
        }
    }
}

/// Elements that are there still.
fn count_at(collection: &CollectionView<'_>, now: UnixMillis) -> Result<u64, SaveError> {
    if !collection.is_timed() {
        return collection.element_count();
    }
    let mut count = 0;
    collection.for_each(&mut |element| {
        count += u64::from(element.is_live(now));
        Ok(())
    })?;
    Ok(count)
}

/// A reply that is being written.
struct Stream {
    server: Arc<Server>,
    client: Arc<ClientInfo>,
    reply: LateReply,
    resp3: bool,
    db: DbId,
    key: Vec<u8>,
    shape: Shape,
    now: UnixMillis,
    part: ReplyBuf,
    hash: u64,
    /// Of the picture.
    need: Need,
}

/// Whether two indices, which count from the end if they are below 0, enclose few elements whatever their collection has.
pub fn is_short(start: i64, stop: i64) -> bool {
    (start < 0) == (stop < 0) && stop.saturating_sub(start) < STREAMED_MIN_ELEMENTS as i64 - 1
}

/// Whether the running command has waited for so many pages that it may never have all of them together.
fn misses_much(ctx: &Ctx<'_>) -> bool {
    let most = ctx.server.store.memory_page_count();
    most.zip(ctx.client.patience.as_deref()).is_some_and(|(most, patience)| patience.misses_much(most))
}

/// From so many elements on the running command is to have its reply written by a thread.
pub fn least_elements(ctx: &Ctx<'_>) -> u64 {
    match misses_much(ctx) {
        true => 1,
        false => STREAMED_MIN_ELEMENTS,
    }
}

/// Has the elements of a collection with so many of them written by a thread of their own, if they are many. False if the
/// command is to write them itself.
pub fn begin(ctx: &mut Ctx<'_>, key: &[u8], element_count: u64, shape: Shape) -> bool {
    element_count >= least_elements(ctx) && begin_any(ctx, key, shape)
}

/// The same however many they are.
pub fn begin_any(ctx: &mut Ctx<'_>, key: &[u8], shape: Shape) -> bool {
    let is_wanted = !ctx.client.within.is_transaction()
        && !ctx.client.reply_mode.is_silent()
        && !ctx.server.store.is_warming_up();
    if !is_wanted {
        return false;
    }
    let reply = ctx.reply_later();
    let stream = Stream {
        server: ctx.server.clone(),
        client: ctx.peer.clone(),
        reply,
        resp3: ctx.client.resp3,
        db: ctx.client.db,
        key: key.to_vec(),
        shape,
        now: ctx.worker.now(),
        part: ReplyBuf::default(),
        hash: ctx.worker.key(key).hash,
        need: Need::default(),
    };
    let thread = std::thread::Builder::new().name("stream".into()).stack_size(STACK_BYTES);
    let started = thread.spawn(move || stream.run());
    if let Err(error) = started {
        // The promise is kept all the same.
        log::warning(format!("a large reply could not be written: {error}"));
        let text = b"-ERR there is no thread left for a large reply; try again\r\n".to_vec();
        ctx.server.send(ctx.peer, |token| Message::Reply(token, reply, text.into()));
    }
    true
}

/// Why a stream ends before its last element.
enum Broken {
    /// The client takes nothing, for a long time.
    Gone,
    /// Its connection has gone, or drops what is written to it.
    Dropped,
    Unreadable(CollectionError),
}

impl From<SaveError> for Broken {
    fn from(error: SaveError) -> Broken {
        Broken::Unreadable(error.into())
    }
}

impl Stream {
    fn run(mut self) {
        let (server, key) = (self.server.clone(), self.key.clone());
        server.turns.take();
        self.part.reserve(PART_CAPACITY_BYTES);
        let view = server.store.view();
        // No step was under way at the cut: all that the picture shows has been noted.
        self.need.raise(server.reply_gate.end_offset_of(self.db, self.hash));
        let written =
            view.and_then(|view| server.store.with_viewed(&view, self.db, &key, |entry| self.write(entry)));
        server.turns.give_back();
        match written.map_err(Broken::from).and_then(|written| written) {
            Ok(()) => {
                let rest = Replies::from(self.part.take()).with_need(self.need);
                self.server.send(&self.client, |token| Message::Reply(token, self.reply, rest));
            }
            Err(Broken::Gone) => self.server.send(&self.client, Message::Kill),
            // If the connection is there it has further commands to execute.
            Err(Broken::Dropped) => {
                self.server.send(&self.client, |token| Message::Reply(token, self.reply, Vec::new().into()));
            }
            // Its length is announced: half an answer is none.
            Err(Broken::Unreadable(error)) => {
                log::warning(format!("a large reply could not be written to its end: {error}"));
                self.server.send(&self.client, Message::Kill);
            }
        }
    }

    fn reply(&mut self) -> Reply<'_> {
        Reply { out: &mut self.part, resp3: self.resp3 }
    }

    fn write(&mut self, entry: Option<ViewEntry<'_>>) -> Result<(), Broken> {
        let (shape, now) = (self.shape.clone(), self.now);
        let entry = entry.filter(|entry| entry.deadline.is_none_or(|deadline| deadline > now));
        let collection = match (entry.map(|entry| entry.value), &shape) {
            (None, _) => {
                shape.begin(&mut self.reply(), 0);
                return Ok(());
            }
            (Some(Value::Collection(collection)), Shape::Payload(form)) => {
                return self.write_payload(&collection, form);
            }
            // It has come since the command.
            (Some(Value::String(value)), Shape::Payload(form)) => {
                self.reply().bulk(&form.string(held(&value).as_ref()));
                return Ok(());
            }
            (Some(Value::Collection(collection)), _) if shape.is_of(collection.value_type()) => collection,
            (Some(_), _) => {
                self.reply().error(errors::WRONG_TYPE.as_bytes());
                return Ok(());
            }
        };
        let indices = shape.indices(&collection, now)?;
        let announced_count = indices.end.saturating_sub(indices.start);
        shape.begin(&mut self.reply(), announced_count);
        let mut flow: ControlFlow<Broken> = ControlFlow::Continue(());
        let mut written_count = 0;
        let mut give = |element: Element<'_>| {
            if element.is_live(now) {
                shape.write(&mut self.reply(), &element);
                written_count += 1;
            }
            if self.part.len() >= PART_BYTES {
                flow = self.hand_over();
            }
            match &flow {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(_) => Err(SaveError::Ended),
            }
        };
        let walked = match &shape {
            Shape::Items { .. } => collection.for_each_item(indices, &mut |item| give(Element::Item(item))),
            Shape::Scored(part) => collection.for_each_scored(indices, part.is_downwards, &mut give),
            _ => collection.for_each(&mut give),
        };
        match flow {
            ControlFlow::Break(broken) => Err(broken),
            ControlFlow::Continue(()) => walked.map_err(Broken::from).and_then(|()| {
                let came = written_count == announced_count;
                came.then_some(()).ok_or_else(|| {
                    let text =
                        format!("{announced_count} elements are announced, and there are {written_count}");
                    Broken::from(SaveError::Damaged(text.into()))
                })
            }),
        }
    }

    /// Writes a payload twice: for its length, which comes first, and for its bytes.
    fn write_payload(&mut self, collection: &CollectionView<'_>, form: &PayloadForm) -> Result<(), Broken> {
        let now = self.now;
        let length_bytes = match form.write(Counted::default(), collection, now) {
            Ok(counted) => counted.bytes,
            Err(CollectionError::Write(WriteError::EmptyCollection)) => {
                self.reply().null();
                return Ok(());
            }
            Err(error) => {
                self.reply().error(format!("ERR {error}").as_bytes());
                return Ok(());
            }
        };
        self.reply().bulk_head(length_bytes);
        let mut given = GivenBytes { stream: self, bytes: 0, flow: ControlFlow::Continue(()) };
        let written = form.write(&mut given, collection, now).map(|_| ());
        let (given_bytes, flow) = (given.bytes, given.flow);
        if let ControlFlow::Break(broken) = flow {
            return Err(broken);
        }
        match written {
            Ok(()) if given_bytes == length_bytes => {
                self.part.extend(b"\r\n");
                Ok(())
            }
            Ok(()) => Err(SaveError::Damaged("a payload has another length now".into()).into()),
            Err(error) => Err(Broken::Unreadable(error)),
        }
    }

    /// Hands over what there is, and waits until it has been written to the socket. Others have its turn meanwhile.
    fn hand_over(&mut self) -> ControlFlow<Broken> {
        let bytes = self.part.take();
        match bytes.len() <= 2 * PART_BYTES {
            true => self.hand_over_some(bytes)?,
            // One long element is more than a part.
            false => {
                bytes.chunks(2 * PART_BYTES).try_for_each(|piece| self.hand_over_some(piece.to_vec()))?
            }
        }
        self.part.reserve(PART_CAPACITY_BYTES);
        ControlFlow::Continue(())
    }

    fn hand_over_some(&self, bytes: Vec<u8>) -> ControlFlow<Broken> {
        let (written, is_written) = mpsc::channel();
        let need = self.need.clone();
        self.server.send(&self.client, |token| Message::Part(token, Part { bytes, need, written }));
        self.server.turns.give_back();
        let taken = is_written.recv_timeout(PATIENCE);
        self.server.turns.take();
        match taken {
            Ok(()) => ControlFlow::Continue(()),
            Err(RecvTimeoutError::Timeout) => ControlFlow::Break(Broken::Gone),
            Err(RecvTimeoutError::Disconnected) => ControlFlow::Break(Broken::Dropped),
        }
    }
}

/// Takes bytes for their number.
#[derive(Default)]
struct Counted {
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes bytes as parts of a stream's reply.
struct GivenBytes<'s> {
    stream: &'s mut Stream,
    bytes: u64,
    flow: ControlFlow<Broken>,
}

impl Write for GivenBytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // One long element is more than a part.
        for piece in bytes.chunks(PART_BYTES) {
            self.stream.part.extend(piece);
            self.bytes += piece.len() as u64;
            if self.stream.part.len() >= PART_BYTES {
                self.flow = self.stream.hand_over();
                if self.flow.is_break() {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
