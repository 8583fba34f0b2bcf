//! The arguments of a command: slices of a buffer.

use std::ops::Index;

use stillframe_store::{Bytes, Incoming, Key};

/// Place of an argument in its buffer, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArgRange {
    pub start: u32,
    pub len: u32,
}

impl ArgRange {
    /// Its bytes in the buffer that it belongs to.
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        &buf[self.start as usize..(self.start + self.len) as usize]
    }
}

/// The arguments of a command, the name first; slices of the connection's input buffer.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buf: &'a [u8],
    ranges: &'a [ArgRange],
    /// A key that an earlier stage has hashed (and prefetched), with its index.
    hashed: Option<(u32, Key<'static>)>,
    /// Values of which only the first bytes are in `buf`, with their indices.
    incoming: &'a [(usize, Incoming)],
}

impl<'a> Args<'a> {
    #[inline]
    pub fn new(buf: &'a [u8], ranges: &'a [ArgRange]) -> Args<'a> {
        Args { buf, ranges, hashed: None, incoming: &[] }
    }

    #[inline]
    pub fn with_hashed(mut self, index: usize, key: Key<'static>) -> Args<'a> {
        self.hashed = Some((index as u32, key));
        self
    }

    /// These values, with their indices, are all there.
    #[inline]
    pub fn with_incoming(mut self, values: &'a [(usize, Incoming)]) -> Args<'a> {
        self.incoming = values;
        self
    }

    /// A value that is in its place already. Of such an argument the buffer has the first bytes only.
    pub fn incoming(&self, index: usize) -> Option<&'a Incoming> {
        self.incoming.iter().find(|(at, _)| *at == index).map(|(_, value)| value)
    }

    /// Bytes of an argument.
    pub fn len_of(&self, index: usize) -> usize {
        self.incoming(index).map_or(self.ranges[index].len as usize, |value| value.len_bytes() as usize)
    }

    /// An argument, wherever it lies.
    #[inline]
    pub fn bytes(&self, index: usize) -> Bytes<'a> {
        if self.incoming.is_empty() {
            return Bytes::Here(self.at(index));
        }
        self.incoming(index).map_or(Bytes::Here(self.at(index)), Bytes::Incoming)
    }

    /// The arguments from `start` on, wherever they lie.
    pub fn bytes_from(&self, start: usize) -> impl Iterator<Item = Bytes<'a>> + Clone + '_ {
        (start..self.len()).map(|index| self.bytes(index))
    }

    pub(crate) fn hashed_key(&self, index: usize) -> Option<Key<'a>> {
        match self.hashed {
            Some((at, key)) if at as usize == index => Some(key.attach(self.at(index))),
            _ => None,
        }
    }

    #[inline]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Bytes from the first argument's start to the last one's end.
    pub fn buffer_span(&self) -> usize {
        let first = self.ranges.first().map_or(0, |r| r.start);
        self.ranges.last().map_or(0, |r| (r.start - first) as usize + r.len as usize)
    }

    /// An argument with the lifetime of the buffer, which outlives `Args` itself. Of one that is in its place already, the first
    /// bytes.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        let ArgRange { start, len } = self.ranges[index];
        &self.buf[start as usize..start as usize + len as usize]
    }

    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        (index < self.len()).then(|| self.at(index))
    }

    /// The arguments from `start` on, as arguments of their own.
    pub fn tail(&self, start: usize) -> Args<'a> {
        Args::new(self.buf, &self.ranges[start.min(self.ranges.len())..])
    }

    /// The arguments from `start` on.
    pub fn from(&self, start: usize) -> impl Iterator<Item = &'a [u8]> + Clone + '_ {
        (start..self.len()).map(|i| self.at(i))
    }

    /// Whether an argument is this word, in any case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.at(index).eq_ignore_ascii_case(word.as_bytes())
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        self.at(index)
    }
}
