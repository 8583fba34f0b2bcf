//! A string of the dump that is a container of elements, read from its front to its end.
//!
//! It is never held as a whole: what is held is a piece of it, and the element that is being read.

use super::error::ReadErrorKind;
use super::source::{Source, StringBody, StringHead};
use std::io::Read;

type Result<T> = std::result::Result<T, ReadErrorKind>;

/// The bytes of a container. Compressed or not, they come out plain.
pub(super) struct Blob {
    /// What an error calls the container.
    name: &'static str,
    body: StringBody,
    /// `plain[next..]` has been taken from the body and not been handed out.
    plain: Vec<u8>,
    next: usize,
    length_bytes: u64,
    /// Bytes that have been handed out.
    offset_bytes: u64,
}

impl Blob {
    /// Of the string that comes next.
    pub fn begin<R: Read>(source: &mut Source<R>, name: &'static str) -> Result<Blob> {
        let head = source.string_head()?;
        // No container is so short that it could be an integer.
        let (StringHead::Plain { length_bytes } | StringHead::Packed { length_bytes, .. }) = head else {
            return Err(ReadErrorKind::BadContainer { container: name, problem: "it is a number" });
        };
        let body = StringBody::new(head)?;
        Ok(Blob { name, body, plain: Vec::new(), next: 0, length_bytes, offset_bytes: 0 })
    }

    /// Bytes that have been handed out.
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    pub fn left_bytes(&self) -> u64 {
        self.length_bytes - self.offset_bytes
    }

    /// The error that says what is wrong with it.
    pub fn error(&self, problem: &'static str) -> ReadErrorKind {
        ReadErrorKind::BadContainer { container: self.name, problem }
    }

    /// Hands the next `count` bytes out, in one piece or more.
    fn consume<R: Read>(
        &mut self,
        source: &mut Source<R>,
        count: u64,
        mut each: impl FnMut(&[u8]),
    ) -> Result<()> {
        if count > self.left_bytes() {
            return Err(self.error("it ends inside an entry"));
        }
        self.offset_bytes += count;
        let mut left = count;
        while left > 0 {
            if self.next == self.plain.len() {
                self.refill(source)?;
            }
            let at_hand = &self.plain[self.next..];
            let step = usize::try_from(left).unwrap_or(usize::MAX).min(at_hand.len());
            each(&at_hand[..step]);
            self.next += step;
            left -= step as u64;
        }
        Ok(())
    }

    /// Takes the next bytes of the body, at least one.
    fn refill<R: Read>(&mut self, source: &mut Source<R>) -> Result<()> {
        self.plain.clear();
        self.next = 0;
        let Blob { body, plain, .. } = self;
        while plain.is_empty() {
            if body.left_bytes() == 0 {
                return Err(ReadErrorKind::BadLzf);
            }
            source.feed(body, |piece| plain.extend_from_slice(piece))?;
        }
        Ok(())
    }

    pub fn array<R: Read, const N: usize>(&mut self, source: &mut Source<R>) -> Result<[u8; N]> {
        let (mut bytes, mut at) = ([0; N], 0);
        self.consume(source, N as u64, |piece| {
            bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        })?;
        Ok(bytes)
    }

    pub fn byte<R: Read>(&mut self, source: &mut Source<R>) -> Result<u8> {
        self.array::<R, 1>(source).map(|[byte]| byte)
    }

    /// Appends the next `count` bytes to `out`.
    pub fn append_to<R: Read>(
        &mut self,
        source: &mut Source<R>,
        count: u64,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.consume(source, count, |piece| out.extend_from_slice(piece))
    }

    /// Passes over the next `count` bytes.
    pub fn skip<R: Read>(&mut self, source: &mut Source<R>, count: u64) -> Result<()> {
        self.consume(source, count, |_| ())
    }

    /// After the end mark: nothing may follow, in the container or in what it is compressed to.
    pub fn finish<R: Read>(&mut self, source: &mut Source<R>) -> Result<()> {
        if self.left_bytes() > 0 {
            return Err(self.error("it goes on after its end mark"));
        }
        while self.body.left_bytes() > 0 {
            source.feed(&mut self.body, |_| ())?;
        }
        Ok(())
    }
}
