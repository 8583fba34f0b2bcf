//! Writing a collection, element by element.
//!
//! ```text
//!            it may be small                          the last has come: written as one container
//! begin ──────────────────────▶ Gathering ──────────────────────────────────────────────────────▶ done
//!   │                               │ it is too large: what has come is written
//!   │ large                         ▼
//!   ├───────────────────────────▶ Plain ─── the last has come ──▶ done
//!   │ list
//!   └───────────────────────────▶ Nodes ─── the last has come ──▶ done
//! ```
//!
//! What is gathered has as many elements as the limits allow and takes no more than 1 MB, however high they are: a
//! server that reads the plain form chooses by limits of its own anyway.

use super::encode::parse_canonical;
use super::error::WriteError;
use super::format::{collection_type, quicklist_node, SmallLimits, StringRef, MAX_FIELD_DEADLINE_MS};
use super::intset::intset_of;
use super::kind::{Announced, CollectionKind, Counted, Element, Parts};
use super::listpack::{entry_bytes, ListpackBuilder, HEADER_BYTES};
use super::output::Output;
use super::score::{append_score, whole};
use super::stream::StreamWriter;
use std::io::Write;
use std::ops::Range;

type Result<T> = std::result::Result<T, WriteError>;

/// No more is gathered.
const GATHERED_BYTES: usize = 1 << 20;

/// Longer items of a list are nodes of their own, as they are.
const PLAIN_ITEM_BYTES: usize = 1 << 20;

/// Where an item of a list goes.
enum NodePlace {
    /// It is a node.
    Plain,
    /// It begins a node.
    Begins,
    /// It goes to the node before.
    Follows,
}

/// Items to nodes, by Redis's rule.
#[derive(Clone, Copy, Debug)]
struct Split {
    max_size: i64,
    /// Of the node that has been begun; 0 items if there is none.
    node_bytes: usize,
    node_items: u64,
}

impl Split {
    /// Nodes of a number of items have no more bytes.
    const SAFE_BYTES: usize = 8 << 10;
    /// What an item is taken to need beside its text.
    const OVERHEAD_BYTES: usize = 8;
    const EMPTY_BYTES: usize = HEADER_BYTES + 1;

    fn new(limits: &SmallLimits) -> Split {
        Split { max_size: limits.list_max_listpack_size, node_bytes: Self::EMPTY_BYTES, node_items: 0 }
    }

    fn place(&mut self, item: &[u8]) -> NodePlace {
        if item.len() > PLAIN_ITEM_BYTES {
            (self.node_bytes, self.node_items) = (Self::EMPTY_BYTES, 0);
            return NodePlace::Plain;
        }
        let bytes = self.node_bytes + item.len() + Self::OVERHEAD_BYTES;
        let fits = match self.max_size {
            0.. => bytes <= Self::SAFE_BYTES && self.node_items < self.max_size.unsigned_abs().max(1),
            _ => bytes <= 2048 << self.max_size.unsigned_abs().min(5),
        };
        let follows = fits && self.node_items > 0;
        if !follows {
            (self.node_bytes, self.node_items) = (Self::EMPTY_BYTES, 0);
        }
        self.node_bytes += entry_bytes(item);
        self.node_items += 1;
        if follows {
            NodePlace::Follows
        } else {
            NodePlace::Begins
        }
    }
}

/// Counts the nodes that a list is written as, which precede it in a dump: a first round over its items.
#[derive(Clone, Copy, Debug)]
pub struct ListNodes {
    split: Split,
    item_count: u64,
    node_count: u64,
}

impl ListNodes {
    pub fn new(limits: &SmallLimits) -> ListNodes {
        ListNodes { split: Split::new(limits), item_count: 0, node_count: 0 }
    }

    pub fn add(&mut self, item: &[u8]) {
        self.item_count += 1;
        self.node_count += u64::from(!matches!(self.split.place(item), NodePlace::Follows));
    }

    /// The list, as it is to be announced.
    pub fn announced(&self) -> Announced {
        Announced::List { item_count: self.item_count, node_count: self.node_count }
    }
}

/// Counts a collection before it is written, whatever its kind: a first round over its elements.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    kind: CollectionKind,
    is_small: bool,
    nodes: ListNodes,
    element_count: u64,
    least_deadline_ms: Option<i64>,
}

impl Tally {
    /// Of a collection that is to be written in a small form, if it `is_small` and the limits allow.
    pub fn new(kind: CollectionKind, is_small: bool, limits: &SmallLimits) -> Tally {
        let nodes = ListNodes::new(limits);
        Tally { kind, is_small, nodes, element_count: 0, least_deadline_ms: None }
    }

    pub fn add(&mut self, element: &Element<'_>) {
        let Parts { name, deadline, .. } = element.parts();
        if self.kind.has_nodes() {
            self.nodes.add(name);
        }
        self.element_count += 1;
        self.least_deadline_ms = self.least_deadline_ms.into_iter().chain(deadline).min();
    }

    /// Without a round: a collection without nodes ([`CollectionKind::has_nodes`]) and deadlines, by its elements' number.
    pub fn of_count(kind: CollectionKind, is_small: bool, element_count: u64) -> Announced {
        Announced::of(kind, Counted { element_count, node_count: 0, is_small, least_deadline_ms: None })
    }

    /// The collection, as it is to be announced.
    pub fn announced(&self) -> Announced {
        let Tally { kind, is_small, nodes, element_count, least_deadline_ms } = *self;
        let node_count = nodes.node_count;
        Announced::of(kind, Counted { element_count, node_count, is_small, least_deadline_ms })
    }
}

/// What precedes a value: in a dump what is known of its key, in a payload nothing.
#[derive(Default)]
pub(super) struct Head {
    /// Before the type.
    pub before: Vec<u8>,
    pub key: Option<Vec<u8>>,
}

/// An element that has been gathered; its strings lie in `Gathered::bytes`.
struct Held {
    name: Range<usize>,
    value: Range<usize>,
    score: f64,
    deadline: Option<i64>,
}

#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    elements: Vec<Held>,
}

enum Form {
    Gathering(Gathered),
    Plain,
    Nodes {
        split: Split,
        node: ListpackBuilder,
        left_count: u64,
    },
    /// `None` before the first record.
    Stream {
        has_active_times: bool,
        writer: Option<StreamWriter>,
    },
}

/// A collection that is being written.
pub(super) struct CollectionWriter {
    announced: Announced,
    limits: SmallLimits,
    head: Head,
    missing_count: u64,
    form: Form,
}

impl CollectionWriter {
    /// Of a version of the format that has forms for deadlines of fields, if it does.
    pub fn begin<W: Write>(
        output: &mut Output<W>,
        announced: Announced,
        head: Head,
        limits: SmallLimits,
        has_deadlines: bool,
    ) -> Result<CollectionWriter> {
        let missing_count = announced.element_count();
        if missing_count == 0 {
            return Err(WriteError::EmptyCollection);
        }
        let mut writer = CollectionWriter { announced, limits, head, missing_count, form: Form::Plain };
        if announced.least_deadline_ms().is_some() && !has_deadlines {
            return Err(WriteError::FieldDeadlines { key: writer.head.key.unwrap_or_default() });
        }
        match announced.node_count() {
            _ if announced.kind() == CollectionKind::Stream => {
                let code = if has_deadlines { collection_type::STREAM_3 } else { collection_type::STREAM_2 };
                writer.put_head(output, code)?;
                writer.form = Form::Stream { has_active_times: has_deadlines, writer: None };
            }
            Some(node_count) => {
                writer.put_head(output, collection_type::LIST_QUICKLIST_2)?;
                output.put_length(node_count);
                let (split, node) = (Split::new(&limits), ListpackBuilder::new());
                writer.form = Form::Nodes { split, node, left_count: node_count };
            }
            None if announced.may_be_small(&limits) => writer.form = Form::Gathering(Gathered::default()),
            None => writer.begin_plain(output)?,
        }
        Ok(writer)
    }

    /// The error of one that is given up, as it is.
    pub fn too_few(&self) -> WriteError {
        let announced_count = self.announced.element_count();
        WriteError::TooFewElements { announced_count, missing_count: self.missing_count }
    }

    /// Takes the next element; true if it was the last.
    pub fn element<W: Write>(&mut self, output: &mut Output<W>, element: Element<'_>) -> Result<bool> {
        let Some(missing_count) = self.missing_count.checked_sub(1) else {
            return Err(WriteError::TooManyElements { announced_count: self.announced.element_count() });
        };
        self.check(element)?;
        self.missing_count = missing_count;
        match &mut self.form {
            Form::Plain => self.put_plain(output, element)?,
            Form::Nodes { split, node, left_count } => {
                put_item(output, split, node, left_count, element.parts().name)?;
            }
            Form::Stream { has_active_times, writer: writer @ None } => {
                *writer = Some(StreamWriter::begin(output, element.parts().value, *has_active_times)?);
            }
            Form::Stream { writer: Some(writer), .. } => {
                let Parts { name, value, .. } = element.parts();
                writer.record(output, (name, value))?;
            }
            Form::Gathering(gathered) => {
                if gathered.takes(&element.parts(), self.announced.kind(), &self.limits) {
                    gathered.push(element.parts());
                } else {
                    self.spill(output)?;
                    self.put_plain(output, element)?;
                }
            }
        }
        if missing_count == 0 {
            self.end(output)?;
        }
        Ok(missing_count == 0)
    }

    fn check(&self, element: Element<'_>) -> Result<()> {
        let Parts { score, deadline, .. } = element.parts();
        let least = self.announced.least_deadline_ms();
        let is_announced = |deadline: i64| least.is_some_and(|least| least <= deadline);
        let is_right =
            element.kind() == self.announced.kind() && !score.is_nan() && deadline.is_none_or(is_announced);
        match is_right {
            true => Ok(()),
            false => Err(WriteError::WrongElement),
        }
    }

    fn put_head<W: Write>(&mut self, output: &mut Output<W>, code: u8) -> Result<()> {
        output.put_bytes(&self.head.before)?;
        output.put_byte(code);
        match &self.head.key {
            Some(key) => output.put_string(StringRef::Bytes(key)),
            None => Ok(()),
        }
    }

    /// Least deadline as it is written.
    fn least_deadline_ms(&self) -> Option<u64> {
        self.announced.least_deadline_ms().map(written_deadline_ms)
    }

    fn begin_plain<W: Write>(&mut self, output: &mut Output<W>) -> Result<()> {
        let least_ms = self.least_deadline_ms();
        self.put_head(output, self.announced.kind().plain_code(least_ms.is_some()))?;
        if let Some(least_ms) = least_ms {
            output.put_bytes(&least_ms.to_le_bytes())?;
        }
        output.put_length(self.announced.element_count());
        Ok(())
    }

    fn put_plain<W: Write>(&self, output: &mut Output<W>, element: Element<'_>) -> Result<()> {
        let (kind, Parts { name, value, score, deadline }) = (self.announced.kind(), element.parts());
        if let Some(least_ms) = self.least_deadline_ms() {
            let later_ms = |deadline| written_deadline_ms(deadline) - least_ms;
            output.put_length(deadline.map_or(0, |deadline| 1 + later_ms(deadline)));
        }
        output.put_string(StringRef::Bytes(name))?;
        if kind.has_values() {
            output.put_string(StringRef::Bytes(value))?;
        }
        if kind.has_scores() {
            output.put_bytes(&score.to_le_bytes())?;
        }
        Ok(())
    }

    /// Goes over to the plain form.
    fn spill<W: Write>(&mut self, output: &mut Output<W>) -> Result<()> {
        self.begin_plain(output)?;
        if let Form::Gathering(gathered) = std::mem::replace(&mut self.form, Form::Plain) {
            for held in &gathered.elements {
                self.put_plain(output, self.announced.kind().element(gathered.parts(held)))?;
            }
        }
        Ok(())
    }

    fn end<W: Write>(&mut self, output: &mut Output<W>) -> Result<()> {
        match std::mem::replace(&mut self.form, Form::Plain) {
            Form::Plain | Form::Stream { writer: None, .. } => Ok(()),
            Form::Stream { writer: Some(mut writer), .. } => writer.end(output),
            Form::Nodes { mut node, mut left_count, .. } => {
                put_node(output, &mut node, &mut left_count)?;
                match left_count {
                    0 => Ok(()),
                    _ => Err(WriteError::WrongElement),
                }
            }
            Form::Gathering(mut gathered) => self.put_small(output, &mut gathered),
        }
    }

    fn put_small<W: Write>(&mut self, output: &mut Output<W>, gathered: &mut Gathered) -> Result<()> {
        let (kind, least_ms) = (self.announced.kind(), self.least_deadline_ms());
        let code = kind.small_code(least_ms.is_some());
        self.put_head(output, code)?;
        if code == collection_type::SET_INTSET {
            return output.put_string(StringRef::Bytes(&gathered.intset()));
        }
        if let Some(least_ms) = least_ms {
            output.put_bytes(&least_ms.to_le_bytes())?;
        }
        let has_scores = kind.has_scores();
        gathered.sort(has_scores);
        let mut builder = ListpackBuilder::new();
        for held in &gathered.elements {
            builder.push(&gathered.bytes[held.name.clone()]);
            if has_scores {
                push_score(&mut builder, held.score);
                continue;
            }
            builder.push(&gathered.bytes[held.value.clone()]);
            if least_ms.is_some() {
                let deadline_ms = held.deadline.map_or(0, written_deadline_ms);
                builder.push_integer(i64::try_from(deadline_ms).unwrap_or(i64::MAX));
            }
        }
        builder.take(|listpack| output.put_string(StringRef::Bytes(listpack)))
    }
}

impl Gathered {
    /// Whether the collection may still be small with an element of these parts.
    fn takes(&self, parts: &Parts<'_>, kind: CollectionKind, limits: &SmallLimits) -> bool {
        let bytes = parts.name.len() + parts.value.len();
        kind.is_small_element(parts, limits) && self.bytes.len() + bytes <= GATHERED_BYTES
    }

    fn push(&mut self, parts: Parts<'_>) {
        let mut put = |text: &[u8]| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(text);
            start..self.bytes.len()
        };
        let (name, value) = (put(parts.name), put(parts.value));
        self.elements.push(Held { name, value, score: parts.score, deadline: parts.deadline });
    }

    fn parts<'g>(&'g self, held: &Held) -> Parts<'g> {
        let (name, value) = (&self.bytes[held.name.clone()], &self.bytes[held.value.clone()]);
        Parts { name, value, score: held.score, deadline: held.deadline }
    }

    /// Members by score, and fields by deadline, those without one last: the order that Redis keeps them in.
    fn sort(&mut self, has_scores: bool) {
        let Gathered { bytes, elements } = self;
        if has_scores {
            elements.sort_by(|a, b| {
                let by_member = || bytes[a.name.clone()].cmp(&bytes[b.name.clone()]);
                a.score.partial_cmp(&b.score).unwrap_or(std::cmp::Ordering::Equal).then_with(by_member)
            });
        } else {
            elements.sort_by_key(|held| held.deadline.unwrap_or(i64::MAX));
        }
    }

    fn intset(&self) -> Vec<u8> {
        let number = |held: &Held| parse_canonical(&self.bytes[held.name.clone()]);
        let mut numbers: Vec<i64> = self.elements.iter().filter_map(number).collect();
        numbers.sort_unstable();
        intset_of(&numbers)
    }
}

/// A deadline in the range of Redis, where 0 is none: the start of 1970, which Valkey's form has, is as past one later.
fn written_deadline_ms(deadline: i64) -> u64 {
    deadline.clamp(1, MAX_FIELD_DEADLINE_MS).unsigned_abs()
}

fn push_score(builder: &mut ListpackBuilder, score: f64) {
    match whole(score) {
        Some(value) => builder.push_integer(value),
        None => {
            let mut text = String::new();
            append_score(&mut text, score);
            builder.push(text.as_bytes());
        }
    }
}

fn put_item<W: Write>(
    output: &mut Output<W>,
    split: &mut Split,
    node: &mut ListpackBuilder,
    left_count: &mut u64,
    item: &[u8],
) -> Result<()> {
    match split.place(item) {
        NodePlace::Follows => node.push(item),
        NodePlace::Begins => {
            put_node(output, node, left_count)?;
            node.push(item);
        }
        NodePlace::Plain => {
            put_node(output, node, left_count)?;
            count_node(left_count)?;
            output.put_length(quicklist_node::PLAIN);
            output.put_string(StringRef::Bytes(item))?;
        }
    }
    Ok(())
}

/// Writes the node that has been begun, if there is one.
fn put_node<W: Write>(
    output: &mut Output<W>,
    node: &mut ListpackBuilder,
    left_count: &mut u64,
) -> Result<()> {
    if node.entry_count() == 0 {
        return Ok(());
    }
    count_node(left_count)?;
    output.put_length(quicklist_node::PACKED);
    node.take(|listpack| output.put_string(StringRef::Bytes(listpack)))
}

/// One node less than were announced: more are other items than were counted.
fn count_node(left_count: &mut u64) -> Result<()> {
    *left_count = left_count.checked_sub(1).ok_or(WriteError::WrongElement)?;
    Ok(())
}
