//! What the format has to know of each kind of collections, and of their elements. The rest of `rdb` asks here: a new kind is
//! another variant of the types in this file, which then does not compile until everything is said of it.

use super::encode::parse_canonical;
use super::format::{
    collection_type, is_valkey, KeyMeta, RdbString, SmallLimits, WriteVersion, MAX_READ_VERSION,
};
use crate::entries::block::Block;
use crate::entries::{base_of, Head, StreamId, HEAD_KEY};

/// What a collection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectionKind {
    List,
    Set,
    SortedSet,
    Hash,
    /// Its elements are its records: blocks of entries, and a head.
    Stream,
}

impl CollectionKind {
    /// As errors name it.
    pub fn name(self) -> &'static str {
        match self {
            CollectionKind::List => "list",
            CollectionKind::Set => "set",
            CollectionKind::SortedSet => "sorted set",
            CollectionKind::Hash => "hash",
            CollectionKind::Stream => "stream",
        }
    }

    /// The kind that an RDB type is of, in a version of the format; `None` if it is no collection.
    pub(super) fn of_code(code: u8, version: u32) -> Option<CollectionKind> {
        use collection_type::*;
        match code {
            LIST | LIST_ZIPLIST | LIST_QUICKLIST | LIST_QUICKLIST_2 => Some(CollectionKind::List),
            SET | SET_INTSET | SET_LISTPACK => Some(CollectionKind::Set),
            SORTED_SET_TEXT | SORTED_SET | SORTED_SET_ZIPLIST | SORTED_SET_LISTPACK => {
                Some(CollectionKind::SortedSet)
            }
            HASH | HASH_ZIPMAP | HASH_ZIPLIST | HASH_LISTPACK => Some(CollectionKind::Hash),
            HASH_DEADLINES_RC..=HASH_LISTPACK_DEADLINES if version == MAX_READ_VERSION => {
                Some(CollectionKind::Hash)
            }
            HASH_VALKEY if is_valkey(version) => Some(CollectionKind::Hash),
            STREAM | STREAM_2 | STREAM_3 => Some(CollectionKind::Stream),
            _ => None,
        }
    }

    /// An element of the kind, of its parts; those that it does not have are left out.
    #[inline]
    pub fn element(self, parts: Parts<'_>) -> Element<'_> {
        let Parts { name, value, score, deadline } = parts;
        match self {
            CollectionKind::List => Element::Item(name),
            CollectionKind::Set => Element::Member(name),
            CollectionKind::SortedSet => Element::Scored { member: name, score },
            CollectionKind::Hash => Element::Field { field: name, value, deadline },
            CollectionKind::Stream => Element::Record { key: name, value },
        }
    }

    /// Whether elements have names, none of which may come twice.
    pub fn has_names(self) -> bool {
        self != CollectionKind::List
    }

    /// Whether there are a value and a deadline beside a name.
    pub(super) fn has_values(self) -> bool {
        self == CollectionKind::Hash || self == CollectionKind::Stream
    }

    /// Whether there is a score beside a name.
    pub(super) fn has_scores(self) -> bool {
        self == CollectionKind::SortedSet
    }

    /// Whether it is written as nodes of many elements, which are counted first.
    pub fn has_nodes(self) -> bool {
        self == CollectionKind::List
    }

    /// A collection without elements.
    pub(super) fn empty(self) -> RdbValue {
        match self {
            CollectionKind::List => RdbValue::List(Vec::new()),
            CollectionKind::Set => RdbValue::Set(Vec::new()),
            CollectionKind::SortedSet => RdbValue::SortedSet(Vec::new()),
            CollectionKind::Hash => RdbValue::Hash(Vec::new()),
            CollectionKind::Stream => RdbValue::Stream(Vec::new()),
        }
    }

    /// The RDB type of the plain form.
    pub(super) fn plain_code(self, has_deadlines: bool) -> u8 {
        match self {
            CollectionKind::List => collection_type::LIST,
            CollectionKind::Set => collection_type::SET,
            CollectionKind::SortedSet => collection_type::SORTED_SET,
            CollectionKind::Hash if has_deadlines => collection_type::HASH_DEADLINES,
            CollectionKind::Hash => collection_type::HASH,
            CollectionKind::Stream => collection_type::STREAM_2,
        }
    }

    /// The RDB type of the form in one container.
    pub(super) fn small_code(self, has_deadlines: bool) -> u8 {
        match self {
            CollectionKind::List => collection_type::LIST_QUICKLIST_2,
            CollectionKind::Set => collection_type::SET_INTSET,
            CollectionKind::SortedSet => collection_type::SORTED_SET_LISTPACK,
            CollectionKind::Hash if has_deadlines => collection_type::HASH_LISTPACK_DEADLINES,
            CollectionKind::Hash => collection_type::HASH_LISTPACK,
            CollectionKind::Stream => collection_type::STREAM_2,
        }
    }

    /// Most elements of the form in one container.
    fn small_max_entries(self, limits: &SmallLimits) -> u64 {
        match self {
            CollectionKind::List | CollectionKind::Stream => 0,
            CollectionKind::Set => limits.set_max_intset_entries,
            CollectionKind::SortedSet => limits.zset_max_listpack_entries,
            CollectionKind::Hash => limits.hash_max_listpack_entries,
        }
    }

    /// Whether an element of these parts may be in the form in one container.
    pub(super) fn is_small_element(self, parts: &Parts<'_>, limits: &SmallLimits) -> bool {
        let are_within =
            |most_bytes: u64| [parts.name, parts.value].iter().all(|part| part.len() as u64 <= most_bytes);
        match self {
            CollectionKind::List | CollectionKind::Stream => false,
            CollectionKind::Set => parse_canonical(parts.name).is_some(),
            CollectionKind::SortedSet => are_within(limits.zset_max_listpack_value_bytes),
            CollectionKind::Hash => are_within(limits.hash_max_listpack_value_bytes),
        }
    }
}

/// One element of a collection. Numbers are their decimal text here, whatever the encoding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Element<'a> {
    /// Of a list.
    Item(&'a [u8]),
    /// Of a set.
    Member(&'a [u8]),
    /// Of a sorted set; no score is NaN.
    Scored { member: &'a [u8], score: f64 },
    /// Of a hash. The deadline is in milliseconds since the Unix epoch.
    Field { field: &'a [u8], value: &'a [u8], deadline: Option<i64> },
    /// Of a stream.
    Record { key: &'a [u8], value: &'a [u8] },
}

/// What an element consists of; what its kind does not have is empty, 0 or `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Parts<'a> {
    /// Item, member or field.
    pub name: &'a [u8],
    pub value: &'a [u8],
    pub score: f64,
    /// In milliseconds since the Unix epoch.
    pub deadline: Option<i64>,
}

impl<'a> Element<'a> {
    #[inline]
    pub fn parts(&self) -> Parts<'a> {
        let named = |name| Parts { name, ..Parts::default() };
        match *self {
            Element::Item(item) => named(item),
            Element::Member(member) => named(member),
            Element::Scored { member, score } => Parts { score, ..named(member) },
            Element::Field { field, value, deadline } => Parts { value, deadline, ..named(field) },
            Element::Record { key, value } => Parts { value, ..named(key) },
        }
    }

    /// Of which kind of collections it is.
    pub fn kind(&self) -> CollectionKind {
        match self {
            Element::Item(_) => CollectionKind::List,
            Element::Member(_) => CollectionKind::Set,
            Element::Scored { .. } => CollectionKind::SortedSet,
            Element::Field { .. } => CollectionKind::Hash,
            Element::Record { .. } => CollectionKind::Stream,
        }
    }

    /// Of a stream's record: gives its entries to `f`, each with a field, its value, a field, ... A record that has none gives none.
    pub fn for_each_entry(&self, mut f: impl FnMut(StreamId, &[&[u8]])) {
        if let Element::Record { key, value } = *self {
            let blocks = base_of(key).map(|base| Block::new(base, value).entries());
            blocks.into_iter().flatten().flatten().for_each(|entry| f(entry.id, &entry.parts));
        }
    }

    /// Of a stream's first record: the greatest ID that there has been, how many entries there have been, and the greatest ID of
    /// one that was removed by its ID.
    pub fn stream_marks(&self) -> Option<(StreamId, u64, StreamId)> {
        match *self {
            Element::Record { key: HEAD_KEY, value } => {
                Head::parse(value).map(|head| (head.last, head.added_count, head.max_deleted))
            }
            _ => None,
        }
    }

    /// Whether its time is not over.
    pub fn is_live(&self, now: i64) -> bool {
        self.parts().deadline.is_none_or(|deadline| deadline > now)
    }
}

/// The value of a key, held as a whole.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RdbValue {
    /// RDB type 0.
    String(RdbString),
    List(Vec<Vec<u8>>),
    Set(Vec<Vec<u8>>),
    SortedSet(Vec<(Vec<u8>, f64)>),
    Hash(Vec<HashField>),
    /// Keys and values of records.
    Stream(Vec<(Vec<u8>, Vec<u8>)>),
}

/// One key of a dump.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Number of the database.
    pub db: u32,
    pub key: Vec<u8>,
    pub meta: KeyMeta,
    pub value: RdbValue,
}

/// A field of a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashField {
    pub field: Vec<u8>,
    pub value: Vec<u8>,
    /// In milliseconds since the Unix epoch.
    pub deadline_ms: Option<i64>,
}

impl RdbValue {
    /// Appends an element of the value's kind.
    pub(super) fn push(&mut self, element: Element<'_>) {
        match (self, element) {
            (RdbValue::List(items), Element::Item(item)) => items.push(item.to_vec()),
            (RdbValue::Set(members), Element::Member(member)) => members.push(member.to_vec()),
            (RdbValue::SortedSet(members), Element::Scored { member, score }) => {
                members.push((member.to_vec(), score));
            }
            (RdbValue::Hash(fields), Element::Field { field, value, deadline }) => {
                let (field, value) = (field.to_vec(), value.to_vec());
                fields.push(HashField { field, value, deadline_ms: deadline });
            }
            (RdbValue::Stream(records), Element::Record { key, value }) => {
                records.push((key.to_vec(), value.to_vec()));
            }
            _ => {}
        }
    }

    /// Whether a member or a field comes twice.
    pub(super) fn has_twins(&self) -> bool {
        let mut names: Vec<&[u8]> = Vec::new();
        let gathered = self.for_each(|element| {
            names.push(element.parts().name);
            element.kind().has_names().then_some(()).ok_or(())
        });
        names.sort_unstable();
        gathered.is_ok() && names.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Calls `each` with every element; a string has none.
    pub fn for_each<'a, E>(&'a self, mut each: impl FnMut(Element<'a>) -> Result<(), E>) -> Result<(), E> {
        match self {
            RdbValue::String(_) => Ok(()),
            RdbValue::List(items) => items.iter().try_for_each(|item| each(Element::Item(item))),
            RdbValue::Set(members) => members.iter().try_for_each(|member| each(Element::Member(member))),
            RdbValue::SortedSet(members) => {
                members.iter().try_for_each(|(member, score)| each(Element::Scored { member, score: *score }))
            }
            RdbValue::Hash(fields) => {
                fields.iter().try_for_each(|HashField { field, value, deadline_ms }| {
                    each(Element::Field { field, value, deadline: *deadline_ms })
                })
            }
            RdbValue::Stream(records) => {
                records.iter().try_for_each(|(key, value)| each(Element::Record { key, value }))
            }
        }
    }
}

/// What a collection is, before its elements come. With `is_small` it is written in a small form if the limits allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announced {
    List {
        item_count: u64,
        /// As [`ListNodes`](super::ListNodes) has counted.
        node_count: u64,
    },
    Set {
        member_count: u64,
        is_small: bool,
    },
    SortedSet {
        member_count: u64,
        is_small: bool,
    },
    Hash {
        field_count: u64,
        is_small: bool,
        /// The least deadline of a field, if one has any.
        least_deadline_ms: Option<i64>,
    },
    Stream {
        record_count: u64,
    },
}

/// What has been counted of a collection before it is announced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub element_count: u64,
    /// Of a list.
    pub node_count: u64,
    pub is_small: bool,
    pub least_deadline_ms: Option<i64>,
}

impl Announced {
    pub(super) fn of(kind: CollectionKind, counted: Counted) -> Announced {
        let Counted { element_count, node_count, is_small, least_deadline_ms } = counted;
        match kind {
            CollectionKind::List => Announced::List { item_count: element_count, node_count },
            CollectionKind::Set => Announced::Set { member_count: element_count, is_small },
            CollectionKind::SortedSet => Announced::SortedSet { member_count: element_count, is_small },
            CollectionKind::Hash => {
                Announced::Hash { field_count: element_count, is_small, least_deadline_ms }
            }
            CollectionKind::Stream => Announced::Stream { record_count: element_count },
        }
    }

    pub(super) fn kind(&self) -> CollectionKind {
        match self {
            Announced::List { .. } => CollectionKind::List,
            Announced::Set { .. } => CollectionKind::Set,
            Announced::SortedSet { .. } => CollectionKind::SortedSet,
            Announced::Hash { .. } => CollectionKind::Hash,
            Announced::Stream { .. } => CollectionKind::Stream,
        }
    }

    pub(super) fn element_count(&self) -> u64 {
        match *self {
            Announced::List { item_count, .. } => item_count,
            Announced::Set { member_count, .. } | Announced::SortedSet { member_count, .. } => member_count,
            Announced::Hash { field_count, .. } => field_count,
            Announced::Stream { record_count } => record_count,
        }
    }

    /// Of a list, which is written as nodes.
    pub(super) fn node_count(&self) -> Option<u64> {
        match *self {
            Announced::List { node_count, .. } => Some(node_count),
            _ => None,
        }
    }

    /// The oldest version of the format that has a form for it.
    pub fn oldest_version(&self) -> WriteVersion {
        match self.least_deadline_ms() {
            Some(_) => WriteVersion::Redis7_4,
            None => WriteVersion::Redis7_0,
        }
    }

    /// The least deadline of an element, if one has any.
    pub(super) fn least_deadline_ms(&self) -> Option<i64> {
        match *self {
            Announced::Hash { least_deadline_ms, .. } => least_deadline_ms,
            _ => None,
        }
    }

    pub(super) fn may_be_small(&self, limits: &SmallLimits) -> bool {
        let is_small = match *self {
            Announced::List { .. } | Announced::Stream { .. } => false,
            Announced::Set { is_small, .. }
            | Announced::SortedSet { is_small, .. }
            | Announced::Hash { is_small, .. } => is_small,
        };
        is_small && self.element_count() <= self.kind().small_max_entries(limits)
    }
}
