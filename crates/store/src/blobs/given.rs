//! Bytes of elements: as they come to the store, and as they are given to a caller. Short ones are slices. Long ones lie
//! in pages, which need not be in memory: nobody holds all of them.

use super::blob::Blob;
use super::incoming::Incoming;
use super::sending::Sending;
use crate::error::OpError;

/// A field, a value, an item or a member, to be stored or looked for.
#[derive(Clone, Copy)]
pub enum Bytes<'a> {
    Here(&'a [u8]),
    /// They have come into pages that nothing refers to yet, all of them.
    Incoming(&'a Incoming),
    /// They are being read in parts where they lie.
    Stored(&'a Sending),
}

impl<'a> Bytes<'a> {
    /// How many.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        match self {
            Bytes::Here(bytes) => bytes.len() as u64,
            Bytes::Incoming(incoming) => incoming.len_bytes(),
            Bytes::Stored(sending) => sending.len_bytes(),
        }
    }

    /// The bytes, unless they lie in pages: then they are more than any packed element or key in a leaf has.
    #[inline]
    pub fn here(&self) -> Option<&'a [u8]> {
        match self {
            Bytes::Here(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// All of them. Those in pages are read past memory, which waits for the device.
    ///
    /// # Errors
    /// [`OpError::Damaged`].
    pub fn to_vec(&self) -> Result<Vec<u8>, OpError> {
        let mut bytes = Vec::new();
        self.for_each(|part| bytes.extend_from_slice(part))?;
        Ok(bytes)
    }

    /// Gives all of them to `f`, part by part.
    ///
    /// # Errors
    /// As of [`Bytes::to_vec`].
    pub(crate) fn for_each(&self, mut f: impl FnMut(&[u8])) -> Result<(), OpError> {
        match self {
            Bytes::Here(bytes) => f(bytes),
            Bytes::Incoming(incoming) => incoming.read(f)?,
            Bytes::Stored(sending) => sending.for_each(f)?,
        }
        Ok(())
    }

    /// Keeps 256 KB or more in pages as they are for a reader, while the key that refers to them is locked.
    pub(crate) fn hold(&self) -> Option<Sending> {
        match self {
            Bytes::Here(_) => None,
            Bytes::Incoming(incoming) => incoming.hold(),
            Bytes::Stored(sending) => sending.hold(),
        }
    }

    /// How many of them are still to be stored: none of those that have come into their pages.
    pub(crate) fn unstored_bytes(&self) -> usize {
        match self {
            Bytes::Incoming(_) => 0,
            other => usize::try_from(other.len()).unwrap_or(usize::MAX),
        }
    }

    /// The pages that they lie in.
    pub(crate) fn blob(&self) -> Option<Blob> {
        match self {
            Bytes::Here(_) => None,
            Bytes::Incoming(incoming) => Some(incoming.blob()),
            Bytes::Stored(sending) => Some(sending.blob()),
        }
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Bytes<'a> {
    #[inline]
    fn from(bytes: &'a T) -> Bytes<'a> {
        Bytes::Here(bytes.as_ref())
    }
}

/// Bytes in pages are the same if the pages are.
impl PartialEq for Bytes<'_> {
    fn eq(&self, other: &Bytes<'_>) -> bool {
        (self.here(), self.blob()) == (other.here(), other.blob())
    }
}

impl std::fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bytes::Here(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Bytes::Incoming(incoming) => incoming.fmt(f),
            Bytes::Stored(sending) => sending.fmt(f),
        }
    }
}

/// An element, or a part of one, as it is given to a caller.
#[derive(Debug)]
pub enum Given<'a> {
    Here(&'a [u8]),
    /// Many bytes, to be read in parts where they lie, for as long as this lives.
    Large(Sending),
}

impl<'a> Given<'a> {
    /// The bytes, for a caller that does not take large ones by reference, and so is given none.
    pub(crate) fn held(self) -> &'a [u8] {
        let here = match &self {
            Given::Here(bytes) => Some(*bytes),
            Given::Large(_) => None,
        };
        assert!(here.is_some(), "a large element was given by reference to a reader of bytes");
        here.unwrap_or_default()
    }

    /// How many bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        match self {
            Given::Here(bytes) => bytes.len() as u64,
            Given::Large(sending) => sending.len_bytes(),
        }
    }

    pub fn as_bytes(&self) -> Bytes<'_> {
        match self {
            Given::Here(bytes) => Bytes::Here(bytes),
            Given::Large(sending) => Bytes::Stored(sending),
        }
    }
}

/// Whether the caller takes large elements by reference ([`Given::Large`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Taking {
    /// No: they are read past memory into a buffer.
    #[default]
    Bytes,
    Large,
}
