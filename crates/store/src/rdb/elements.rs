//! The elements of a collection, one after the other, whatever it is encoded as.
//!
//! ```text
//!        the first is read           advance          advance, there is one          there is none
//! begin ───────────────────▶ Waiting ─────────▶ Reading ─────────────────────▶ Reading ─────────────▶ Ended
//!   └── there is none: the collection is empty
//! ```
//!
//! One element is held at a time, in two buffers that are used again: a field and its value have up to 512 MB each, and
//! the buffers grow with what has been read of them.

use super::error::ReadErrorKind;
use super::format::{collection_type, is_valkey, quicklist_node, MAX_FIELD_DEADLINE_MS};
use super::intset::Intset;
use super::kind::{CollectionKind, Element, Parts, RdbValue};
use super::listpack::Listpack;
use super::source::Source;
use super::stream::{self, StreamReader};
use super::ziplist::Ziplist;
use super::zipmap::Zipmap;
use std::io::Read;

type Result<T> = std::result::Result<T, ReadErrorKind>;

/// Buffers that have grown beyond this are not kept for the next element.
const KEPT_BYTES: usize = 1 << 20;

/// A container of which the entries are the elements, or two or three make an element.
enum Packed {
    Ziplist(Ziplist),
    Listpack(Listpack),
    Intset(Intset),
    Zipmap(Zipmap),
}

impl Packed {
    fn count(&self) -> Option<u64> {
        match self {
            Packed::Ziplist(ziplist) => ziplist.count(),
            Packed::Listpack(listpack) => listpack.count(),
            Packed::Intset(intset) => Some(intset.count()),
            Packed::Zipmap(zipmap) => zipmap.count(),
        }
    }

    /// Appends the next entry to `out`; false after the last.
    fn next<R: Read>(&mut self, source: &mut Source<R>, out: &mut Vec<u8>) -> Result<bool> {
        match self {
            Packed::Ziplist(ziplist) => ziplist.next(source, out),
            Packed::Listpack(listpack) => listpack.next(source, out),
            Packed::Intset(intset) => intset.next(source, out),
            Packed::Zipmap(zipmap) => zipmap.next(source, out),
        }
    }
}

/// What the strings of an element stand among.
#[derive(Clone, Copy)]
enum Beside {
    Nothing,
    /// Up to RDB version 7: a length and decimal text.
    TextScore,
    BinaryScore,
    /// Before the field, absolute; 0 is none.
    DeadlineBefore,
    /// Before the field, 1 for this moment and later ones likewise; 0 is none.
    DeadlineAfterLeast(i64),
    /// After the value, 8 bytes; -1 is none.
    DeadlineBehind,
}

enum Form {
    /// Strings, for so many elements.
    Plain {
        left_count: u64,
        beside: Beside,
    },
    Packed {
        packed: Packed,
        has_deadlines: bool,
    },
    /// Nodes of a list: each a container, or in version 2 also a plain element.
    Nodes {
        left_count: u64,
        node: Option<Packed>,
        is_version_2: bool,
    },
    Stream(Box<StreamReader>),
}

/// A collection that is being read.
pub(super) struct Elements {
    kind: CollectionKind,
    form: Form,
    count_hint: Option<u64>,
    /// Item, member or field.
    name: Vec<u8>,
    value: Vec<u8>,
    score: f64,
    deadline: Option<i64>,
    /// The element in the buffers has not been taken.
    is_waiting: bool,
    is_ended: bool,
}

impl Elements {
    /// Of a value whose type is a collection's ([`CollectionKind::of_code`]): `None` if it is empty. Its key has been read.
    pub fn begin<R: Read>(
        source: &mut Source<R>,
        (kind, code): (CollectionKind, u8),
        version: u32,
    ) -> Result<Option<Box<Elements>>> {
        let form = Form::begin(source, code, version)?;
        let mut elements = Box::new(Elements {
            kind,
            count_hint: form.count_hint(kind),
            form,
            name: Vec::new(),
            value: Vec::new(),
            score: 0.0,
            deadline: None,
            is_waiting: false,
            is_ended: false,
        });
        elements.is_waiting = elements.read(source)?;
        Ok(elements.is_waiting.then_some(elements))
    }

    pub fn kind(&self) -> CollectionKind {
        self.kind
    }

    /// Whether they lie in a listpack or the like, which Redis takes over as it is.
    pub fn is_packed(&self) -> bool {
        matches!(self.form, Form::Packed { .. })
    }

    /// How many elements there are, if the dump says so at the beginning; damage may make it wrong.
    pub fn count_hint(&self) -> Option<u64> {
        self.count_hint
    }

    /// Goes on to the next element; false after the last.
    pub fn advance<R: Read>(&mut self, source: &mut Source<R>) -> Result<bool> {
        if !std::mem::take(&mut self.is_waiting) && !self.is_ended {
            self.is_ended = !self.read(source)?;
        }
        Ok(!self.is_ended)
    }

    /// The element that it has come to.
    pub fn current(&self) -> Element<'_> {
        let Elements { name, value, score, deadline, .. } = self;
        self.kind.element(Parts { name, value, score: *score, deadline: *deadline })
    }

    /// All elements, in memory; none may come twice.
    pub fn collect<R: Read>(mut self, source: &mut Source<R>) -> Result<RdbValue> {
        let mut value = self.kind.empty();
        while self.advance(source)? {
            value.push(self.current());
        }
        if let RdbValue::Stream(records) = &mut value {
            // In the order of their keys: as they are written.
            records.sort();
        }
        match value.has_twins() {
            true => Err(ReadErrorKind::DuplicateElement),
            false => Ok(value),
        }
    }

    /// Reads an element into the buffers; false if there is none.
    fn read<R: Read>(&mut self, source: &mut Source<R>) -> Result<bool> {
        clear(&mut self.name);
        clear(&mut self.value);
        match &mut self.form {
            Form::Plain { left_count, beside } => {
                let Some(left) = left_count.checked_sub(1) else { return Ok(false) };
                *left_count = left;
                let beside = *beside;
                self.read_plain(source, beside).map(|()| true)
            }
            Form::Packed { .. } => self.read_packed(source),
            Form::Nodes { .. } => self.read_node(source),
            Form::Stream(stream) => stream.next(source, &mut self.name, &mut self.value),
        }
    }

    fn read_plain<R: Read>(&mut self, source: &mut Source<R>, beside: Beside) -> Result<()> {
        self.deadline = match beside {
            Beside::DeadlineBefore => field_deadline(i64::try_from(source.count()?).ok())?,
            Beside::DeadlineAfterLeast(least_ms) => match source.count()? {
                0 => None,
                later => field_deadline(least_ms.checked_add_unsigned(later - 1))?,
            },
            _ => None,
        };
        source.string_into(&mut self.name)?;
        if self.kind.has_values() {
            source.string_into(&mut self.value)?;
        }
        match beside {
            Beside::TextScore => self.score = text_score(source)?,
            Beside::BinaryScore => self.score = checked_score(f64::from_le_bytes(source.array()?))?,
            Beside::DeadlineBehind => match i64::from_le_bytes(source.array()?) {
                -1 => {}
                deadline @ 0.. => self.deadline = Some(deadline),
                _ => return Err(BAD_DEADLINE),
            },
            Beside::Nothing | Beside::DeadlineBefore | Beside::DeadlineAfterLeast(_) => {}
        }
        Ok(())
    }

    fn read_packed<R: Read>(&mut self, source: &mut Source<R>) -> Result<bool> {
        let Form::Packed { packed, has_deadlines } = &mut self.form else { return Ok(false) };
        if !packed.next(source, &mut self.name)? {
            return Ok(false);
        }
        let has_second = self.kind.has_values() || self.kind.has_scores();
        if has_second && !packed.next(source, &mut self.value)? {
            return Err(ReadErrorKind::BadElement("the last element lacks its second part"));
        }
        if self.kind.has_scores() {
            self.score = score_of(&self.value)?;
        }
        if *has_deadlines {
            let mut text = Vec::new();
            if !packed.next(source, &mut text)? {
                return Err(ReadErrorKind::BadElement("the last field lacks its deadline"));
            }
            let text = std::str::from_utf8(&text).map_err(|_| BAD_DEADLINE)?;
            self.deadline = field_deadline(text.parse().ok())?;
        }
        Ok(true)
    }

    fn read_node<R: Read>(&mut self, source: &mut Source<R>) -> Result<bool> {
        let Form::Nodes { left_count, node, is_version_2 } = &mut self.form else { return Ok(false) };
        loop {
            if let Some(packed) = node {
                if packed.next(source, &mut self.name)? {
                    return Ok(true);
                }
                // As in Redis an empty node is no error.
                *node = None;
            }
            let Some(left) = left_count.checked_sub(1) else { return Ok(false) };
            *left_count = left;
            let container = if *is_version_2 { source.count()? } else { quicklist_node::PACKED };
            match container {
                quicklist_node::PACKED if *is_version_2 => {
                    *node = Some(Packed::Listpack(Listpack::begin(source)?));
                }
                quicklist_node::PACKED => *node = Some(Packed::Ziplist(Ziplist::begin(source)?)),
                quicklist_node::PLAIN => {
                    source.string_into(&mut self.name)?;
                    if self.name.is_empty() {
                        return Err(ReadErrorKind::BadElement("a plain node of a list is empty"));
                    }
                    return Ok(true);
                }
                _ => return Err(ReadErrorKind::BadElement("a node of a list has an unknown kind")),
            }
        }
    }
}

impl Form {
    fn begin<R: Read>(source: &mut Source<R>, code: u8, version: u32) -> Result<Form> {
        use collection_type::*;
        if let Some(revision) = stream::revision_of(code) {
            return Ok(Form::Stream(Box::new(StreamReader::begin(source, revision)?)));
        }
        let packed = |packed| Form::Packed { packed, has_deadlines: false };
        Ok(match code {
            SORTED_SET_TEXT => Form::plain(source, Beside::TextScore)?,
            SORTED_SET => Form::plain(source, Beside::BinaryScore)?,
            HASH_ZIPMAP => packed(Packed::Zipmap(Zipmap::begin(source)?)),
            LIST_ZIPLIST | SORTED_SET_ZIPLIST | HASH_ZIPLIST => {
                packed(Packed::Ziplist(Ziplist::begin(source)?))
            }
            SET_INTSET => packed(Packed::Intset(Intset::begin(source)?)),
            HASH_LISTPACK | SORTED_SET_LISTPACK | SET_LISTPACK => {
                packed(Packed::Listpack(Listpack::begin(source)?))
            }
            LIST_QUICKLIST | LIST_QUICKLIST_2 => {
                let (left_count, is_version_2) = (source.count()?, code == LIST_QUICKLIST_2);
                Form::Nodes { left_count, node: None, is_version_2 }
            }
            HASH_VALKEY if is_valkey(version) => Form::plain(source, Beside::DeadlineBehind)?,
            HASH_DEADLINES_RC => Form::plain(source, Beside::DeadlineBefore)?,
            HASH_DEADLINES => {
                // Beyond what is taken, no deadline is reckoned from it.
                let least_ms = i64::try_from(u64::from_le_bytes(source.array()?)).unwrap_or(i64::MAX);
                Form::plain(source, Beside::DeadlineAfterLeast(least_ms))?
            }
            HASH_LISTPACK_DEADLINES_RC | HASH_LISTPACK_DEADLINES => {
                if code == HASH_LISTPACK_DEADLINES {
                    // The least deadline, which is in the listpack as well.
                    source.skip(8)?;
                }
                Form::Packed { packed: Packed::Listpack(Listpack::begin(source)?), has_deadlines: true }
            }
            _ => Form::plain(source, Beside::Nothing)?,
        })
    }

    fn plain<R: Read>(source: &mut Source<R>, beside: Beside) -> Result<Form> {
        Ok(Form::Plain { left_count: source.count()?, beside })
    }

    fn count_hint(&self, kind: CollectionKind) -> Option<u64> {
        match self {
            Form::Plain { left_count, .. } => Some(*left_count),
            Form::Packed { packed, has_deadlines } => {
                let beside = [kind.has_values(), kind.has_scores(), *has_deadlines];
                let entries_per_element = 1 + beside.into_iter().map(u64::from).sum::<u64>();
                packed.count().map(|count| count / entries_per_element)
            }
            Form::Nodes { .. } | Form::Stream(_) => None,
        }
    }
}

fn clear(buffer: &mut Vec<u8>) {
    match buffer.capacity() {
        0..=KEPT_BYTES => buffer.clear(),
        _ => *buffer = Vec::new(),
    }
}

const BAD_DEADLINE: ReadErrorKind = ReadErrorKind::BadElement("a field has a deadline outside the range");
const BAD_SCORE: ReadErrorKind = ReadErrorKind::BadElement("a score is not a number");

/// A deadline of Redis, where 0 is none; `None` is beyond all numbers.
fn field_deadline(deadline: Option<i64>) -> Result<Option<i64>> {
    match deadline {
        Some(0) => Ok(None),
        Some(deadline @ 1..=MAX_FIELD_DEADLINE_MS) => Ok(Some(deadline)),
        _ => Err(BAD_DEADLINE),
    }
}

/// A score up to RDB version 7: NaN and the infinities are lengths without text.
fn text_score<R: Read>(source: &mut Source<R>) -> Result<f64> {
    match source.byte()? {
        253 => Err(BAD_SCORE),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        length_bytes => {
            let mut text = [0; 252];
            let text = &mut text[..usize::from(length_bytes)];
            source.fill(text)?;
            score_of(text)
        }
    }
}

fn score_of(text: &[u8]) -> Result<f64> {
    let text = std::str::from_utf8(text).map_err(|_| BAD_SCORE)?;
    checked_score(text.parse().map_err(|_| BAD_SCORE)?)
}

fn checked_score(score: f64) -> Result<f64> {
    match score.is_nan() {
        true => Err(BAD_SCORE),
        false => Ok(score),
    }
}
