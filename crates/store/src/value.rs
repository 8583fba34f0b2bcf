//! What kinds of values there are, and strings as they are read.

use stillframe_pagepool::PAGE_SIZE;

use crate::page::Page;

/// The longest string value, in bytes (Redis's `proto-max-bulk-len` default).
pub const MAX_STRING_BYTES: u64 = 512 * 1024 * 1024;

/// What kind of value a key has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueType {
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Stream,
}

impl ValueType {
    pub const ALL: [ValueType; 6] = [
        ValueType::String,
        ValueType::List,
        ValueType::Set,
        ValueType::SortedSet,
        ValueType::Hash,
        ValueType::Stream,
    ];

    /// Its name in Redis (`TYPE`).
    pub fn name(self) -> &'static str {
        match self {
            ValueType::String => "string",
            ValueType::List => "list",
            ValueType::Set => "set",
            ValueType::SortedSet => "zset",
            ValueType::Hash => "hash",
            ValueType::Stream => "stream",
        }
    }

    /// Its number in Redis, which is part of what `DEBUG DIGEST` says.
    pub fn number(self) -> u32 {
        match self {
            ValueType::String => 0,
            ValueType::List => 1,
            ValueType::Set => 2,
            ValueType::SortedSet => 3,
            ValueType::Hash => 4,
            ValueType::Stream => 6,
        }
    }

    /// Whether an element of a large collection is looked for by its hash, in the first tree.
    #[inline(always)]
    pub(crate) fn has_hashed_elements(self) -> bool {
        matches!(self, ValueType::Hash | ValueType::Set | ValueType::SortedSet)
    }
}

/// `OBJECT ENCODING`: of a collection what Redis 7.0 would make of it within its limits, not where its elements lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    Int,
    Embstr,
    Raw,
    ListPack,
    HashTable,
    IntSet,
    QuickList,
    SkipList,
    Stream,
}

impl Encoding {
    /// Whether a collection is within the limits of Redis's small forms.
    pub fn is_small(self) -> bool {
        matches!(self, Encoding::ListPack | Encoding::IntSet)
    }

    /// Its name in Redis.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Int => "int",
            Encoding::Embstr => "embstr",
            Encoding::Raw => "raw",
            Encoding::ListPack => "listpack",
            Encoding::HashTable => "hashtable",
            Encoding::IntSet => "intset",
            Encoding::QuickList => "quicklist",
            Encoding::SkipList => "skiplist",
            Encoding::Stream => "stream",
        }
    }
}

/// A string value, read in place under the latch of its page; it may lie in several chunks.
pub struct StrRef<'a> {
    pub(crate) repr: Repr<'a>,
    pub(crate) raw: bool,
}

/// Consecutive pages that a value lies in. A page that cannot be read ends the value; the run keeps the reason, and
/// whoever made it asks for that when the reader is done, and fails: nobody answers with half a value.
pub(crate) trait PageRun {
    /// Whether `f` has been given the page.
    fn with_page(&self, index: u32, f: &mut dyn FnMut(&Page)) -> bool;
}

/// The pages of a value that is not looked at.
pub(crate) struct NoPages;

impl PageRun for NoPages {
    fn with_page(&self, _index: u32, _f: &mut dyn FnMut(&Page)) -> bool {
        false
    }
}

pub(crate) enum Repr<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    /// `len_bytes` from byte `offset` of the run on.
    Pages {
        run: &'a dyn PageRun,
        offset: u64,
        len_bytes: u64,
    },
}

impl StrRef<'_> {
    /// Bytes of the value as `STRLEN` counts them.
    pub fn len(&self) -> u64 {
        match self.repr {
            Repr::Int(i) => decimal_len(i),
            Repr::Bytes(b) => b.len() as u64,
            Repr::Pages { len_bytes, .. } => len_bytes,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn encoding(&self) -> Encoding {
        match self.repr {
            Repr::Int(_) => Encoding::Int,
            _ if self.raw || self.len() > 44 => Encoding::Raw,
            _ => Encoding::Embstr,
        }
    }

    /// The integer, if the value is stored as one.
    pub fn as_int(&self) -> Option<i64> {
        match self.repr {
            Repr::Int(i) => Some(i),
            _ => None,
        }
    }

    /// Calls `f` with the value's bytes from `start` (inclusive) to `end` (exclusive), chunk by chunk;
    /// both are clamped to the value's length. If a page cannot be read the chunks end there, and the operation that gave
    /// the value returns the error: what was made of them does not count.
    pub fn chunks(&self, start: u64, end: u64, mut f: impl FnMut(&[u8])) {
        let end = end.min(self.len());
        let start = start.min(end);
        match self.repr {
            Repr::Int(i) => f(&i.to_string().as_bytes()[start as usize..end as usize]),
            Repr::Bytes(b) => f(&b[start as usize..end as usize]),
            Repr::Pages { run, offset, .. } => {
                let (mut at, end) = (offset + start, offset + end);
                while at < end {
                    let in_page = (at % PAGE_SIZE as u64) as usize;
                    let len = (PAGE_SIZE - in_page).min((end - at) as usize);
                    let index = (at / PAGE_SIZE as u64) as u32;
                    if !run.with_page(index, &mut |page| f(&page[in_page..in_page + len])) {
                        return;
                    }
                    at += len as u64;
                }
            }
        }
    }

    /// Appends the whole value to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        self.chunks(0, u64::MAX, |chunk| out.extend_from_slice(chunk));
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len() as usize);
        self.append_to(&mut out);
        out
    }
}

fn decimal_len(value: i64) -> u64 {
    let digits = value.unsigned_abs().checked_ilog10().map_or(1, |d| d + 1);
    u64::from(digits) + u64::from(value < 0)
}
