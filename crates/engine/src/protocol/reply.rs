//! Replies, written straight to the connection's output buffer in RESP2 or RESP3.

use std::collections::VecDeque;

use stillframe_store::rdb::LongPayload;
use stillframe_store::{Given, OpError, Sending, StrRef};

use crate::protocol::need::Need;
use crate::text::double;

/// A large value that is sent from where it lies.
#[derive(Debug)]
struct Sent {
    value: Sending,
    /// It is part of a payload whose footer depends on its bytes, and follows them.
    payload: Option<LongPayload>,
}

/// Bytes on their way to a client, within a bound: what would pass it is not appended, nor is anything after it.
///
/// ```text
///   Open -- an append that would pass the bound --> Over (for good: the client is closed)
/// ```
#[derive(Debug)]
pub struct ReplyBuf {
    bytes: Vec<u8>,
    /// Large values that are sent from where they lie, and the places in `bytes` where they belong.
    values: VecDeque<(usize, Sent)>,
    /// Large values may be sent like that.
    sends_values: bool,
    /// Most bytes that there may be; 0 once it is over.
    max_bytes: usize,
    is_over: bool,
    /// Values that have been written, less those that headers have announced: a whole reply adds one.
    balance: i64,
}

impl Default for ReplyBuf {
    fn default() -> Self {
        ReplyBuf::within(usize::MAX)
    }
}

impl ReplyBuf {
    /// An empty buffer that takes at most so much.
    pub fn within(max_bytes: usize) -> ReplyBuf {
        let values = VecDeque::new();
        ReplyBuf { bytes: Vec::new(), values, sends_values: false, max_bytes, is_over: false, balance: 0 }
    }

    /// Sets the bound for what is appended from now on.
    #[inline]
    pub fn set_max_bytes(&mut self, max_bytes: usize) {
        if !self.is_over {
            self.max_bytes = max_bytes;
        }
    }

    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Whether something did not fit: what is there is not a reply any more.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether `more` bytes fit. If they do not, nothing fits from then on.
    #[inline]
    fn has_room(&mut self, more: usize) -> bool {
        let has_room = self.total_bytes().saturating_add(more) <= self.max_bytes;
        if !has_room {
            self.give_up();
        }
        has_room
    }

    /// A value has been written, or is going to be in this place.
    #[inline(always)]
    pub fn note_value(&mut self) {
        self.balance = self.balance.wrapping_add(1);
    }

    /// So many values come later in this place.
    pub fn note_values(&mut self, value_count: u64) {
        self.balance = self.balance.wrapping_add(value_count as i64);
    }

    /// So many values are to follow.
    #[inline]
    fn announce(&mut self, value_count: usize) {
        self.balance = self.balance.wrapping_sub(value_count as i64);
    }

    /// Whether what has been appended since is one whole reply: as many elements as its headers announce.
    #[inline]
    pub fn is_whole_since(&self, mark: &Mark) -> bool {
        self.balance == mark.balance.wrapping_add(1)
    }

    /// Takes nothing more: a part of the reply is too large.
    pub fn give_up(&mut self) {
        self.is_over = true;
        self.max_bytes = 0;
    }

    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.has_room(bytes.len()) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Whether large values may be sent from where they lie, from now on. Returns what held before.
    pub fn send_values(&mut self, may: bool) -> bool {
        std::mem::replace(&mut self.sends_values, may)
    }

    pub fn sends_values(&self) -> bool {
        self.sends_values
    }

    /// The first of the large values, the place in the buffer where it belongs, and the payload that is to be told of the bytes
    /// that have been sent of it.
    pub fn first_value(&mut self) -> Option<(usize, &Sending, Option<&mut LongPayload>)> {
        self.values.front_mut().map(|(at, sent)| (*at, &sent.value, sent.payload.as_mut()))
    }

    /// The first of the large values has been sent.
    pub fn drop_first_value(&mut self) {
        if let Some((at, Sent { payload: Some(payload), .. })) = self.values.pop_front() {
            self.bytes[at..at + LongPayload::FOOTER_BYTES].copy_from_slice(&payload.footer());
        }
    }

    /// With the large values.
    #[inline]
    pub fn total_bytes(&self) -> usize {
        let values = if self.values.is_empty() { 0 } else { self.value_bytes() };
        self.bytes.len() + values
    }

    #[cold]
    fn value_bytes(&self) -> usize {
        self.values.iter().map(|(_, sent)| sent.value.len_bytes() as usize).sum()
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The present state, to come [`ReplyBuf::back_to`].
    pub fn mark(&self) -> Mark {
        Mark {
            len: self.bytes.len(),
            value_count: self.values.len(),
            max_bytes: self.max_bytes,
            is_over: self.is_over,
            balance: self.balance,
        }
    }

    /// Takes back what has been appended since.
    pub fn back_to(&mut self, mark: Mark) {
        self.bytes.truncate(mark.len);
        self.values.truncate(mark.value_count);
        (self.max_bytes, self.is_over) = (mark.max_bytes, mark.is_over);
        self.balance = mark.balance;
    }

    /// Takes everything from byte `at` on out; there are no large values.
    pub fn split_off(&mut self, at: usize) -> Vec<u8> {
        self.bytes.split_off(at.min(self.bytes.len()))
    }

    /// Takes all bytes out, and keeps no memory.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Takes all bytes out, with copies of the large values.
    ///
    /// # Errors
    /// A page of one cannot be read: half of what is there has been taken.
    pub fn take_copied(&mut self) -> Result<Vec<u8>, OpError> {
        if self.values.is_empty() {
            return Ok(self.take());
        }
        let mut copied = Vec::with_capacity(self.total_bytes());
        let (bytes, mut from) = (self.take(), 0);
        for (at, Sent { value, mut payload }) in std::mem::take(&mut self.values) {
            copied.extend_from_slice(&bytes[from..at]);
            from = at;
            value.for_each(|part| {
                payload.iter_mut().for_each(|payload| payload.update(part));
                copied.extend_from_slice(part);
            })?;
            if let Some(payload) = payload {
                copied.extend_from_slice(&payload.footer());
                from += LongPayload::FOOTER_BYTES;
            }
        }
        copied.extend_from_slice(&bytes[from..]);
        Ok(copied)
    }

    /// Makes room for so many bytes at once.
    pub fn reserve(&mut self, byte_count: usize) {
        self.bytes.reserve_exact(byte_count);
    }

    /// Puts bytes before what is there from byte `at` on.
    pub fn insert(&mut self, at: usize, bytes: &[u8]) {
        if self.has_room(bytes.len()) {
            self.bytes.splice(at..at, bytes.iter().copied());
            let moved = self.values.iter_mut().filter(|(place, _)| *place >= at);
            moved.for_each(|(place, _)| *place += bytes.len());
        }
    }

    /// The same with the large values.
    pub fn split_off_all(&mut self, at: usize) -> Replies {
        let at = at.min(self.bytes.len());
        let first = self.values.partition_point(|(place, _)| *place < at);
        let values = self.values.split_off(first).into_iter().map(|(place, sent)| (place - at, sent));
        Replies { values: values.collect(), bytes: self.bytes.split_off(at), need: Need::default() }
    }

    /// Appends replies that were written elsewhere, all of them or none.
    pub fn append(&mut self, replies: Replies) {
        if !self.has_room(replies.total_bytes()) {
            return;
        }
        let start = self.bytes.len();
        self.values.extend(replies.values.into_iter().map(|(place, sent)| (start + place, sent)));
        self.bytes.extend_from_slice(&replies.bytes);
    }

    /// Takes the first `count` bytes out.
    pub fn drop_front(&mut self, count: usize) {
        self.bytes.drain(..count);
        self.values.iter_mut().for_each(|(at, _)| *at -= count);
    }

    /// Empties the buffer, large values and all.
    pub fn discard(&mut self) {
        self.values.clear();
        self.clear(0);
    }

    /// Empties the buffer and gives its memory back if it has grown beyond `keep_bytes`.
    #[inline]
    pub fn clear(&mut self, keep_bytes: usize) {
        self.bytes.clear();
        if self.bytes.capacity() > keep_bytes {
            self.bytes = Vec::new();
        }
    }
}

/// Replies on their way from one buffer to another, perhaps of another worker.
#[derive(Debug, Default)]
pub struct Replies {
    bytes: Vec<u8>,
    values: Vec<(usize, Sent)>,
    need: Need,
}

impl Replies {
    /// The same with what has to be durable before they leave.
    pub fn with_need(mut self, need: Need) -> Replies {
        self.need.join(&need);
        self
    }

    pub fn need(&self) -> &Need {
        &self.need
    }

    fn total_bytes(&self) -> usize {
        let values = self.values.iter().map(|(_, sent)| sent.value.len_bytes() as usize);
        self.bytes.len() + values.sum::<usize>()
    }

    /// All but the large values.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends others.
    pub fn append(&mut self, others: Replies) {
        let start = self.bytes.len();
        self.values.extend(others.values.into_iter().map(|(place, sent)| (start + place, sent)));
        self.bytes.extend_from_slice(&others.bytes);
        self.need.join(&others.need);
    }

    /// Takes everything from byte `at` on out.
    pub fn split_off(&mut self, at: usize) -> Replies {
        let at = at.min(self.bytes.len());
        let first = self.values.partition_point(|(place, _)| *place < at);
        let values = self.values.drain(first..).map(|(place, sent)| (place - at, sent)).collect();
        Replies { values, bytes: self.bytes.split_off(at), need: self.need.clone() }
    }
}

impl From<Vec<u8>> for Replies {
    fn from(bytes: Vec<u8>) -> Replies {
        Replies { bytes, ..Replies::default() }
    }
}

/// How full a [`ReplyBuf`] was.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pub len: usize,
    value_count: usize,
    max_bytes: usize,
    is_over: bool,
    balance: i64,
}

/// Appends replies to a buffer that lives as long as its connection.
pub struct Reply<'a> {
    pub out: &'a mut ReplyBuf,
    /// RESP3 (`HELLO 3`); otherwise RESP2.
    pub resp3: bool,
}

/// The first bytes of unsent output, which output limits do not count, as in Redis.
pub const UNCOUNTED_OUTPUT_BYTES: usize = 16 * 1024;

/// Most bytes of a type, a number and a line break.
const HEADER_BYTES: usize = 1 + 20 + 2;
/// What comes with the bytes of a bulk string.
const BULK_EXTRA_BYTES: usize = HEADER_BYTES + 2;

impl Reply<'_> {
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.note_value();
        if self.out.has_room(text.len() + 3) {
            let bytes = &mut self.out.bytes;
            bytes.push(kind);
            bytes.extend_from_slice(text);
            bytes.extend_from_slice(b"\r\n");
        }
    }

    fn header(&mut self, kind: u8, number: i64) {
        self.out.note_value();
        if self.out.has_room(HEADER_BYTES) {
            self.header_within(kind, number);
        }
    }

    /// [`HEADER_BYTES`] at most, for which there is room.
    #[inline]
    fn header_within(&mut self, kind: u8, number: i64) {
        let bytes = &mut self.out.bytes;
        let digit = |unit: i64| b'0' + (number / unit % 10) as u8;
        // The lengths of most elements, in one piece.
        match number {
            0..10 => bytes.extend_from_slice(&[kind, digit(1), b'\r', b'\n']),
            10..100 => bytes.extend_from_slice(&[kind, digit(10), digit(1), b'\r', b'\n']),
            100..1000 => bytes.extend_from_slice(&[kind, digit(100), digit(10), digit(1), b'\r', b'\n']),
            _ => {
                bytes.push(kind);
                push_decimal(bytes, number);
                bytes.extend_from_slice(b"\r\n");
            }
        }
    }

    pub fn ok(&mut self) {
        self.short(b"+OK\r\n");
    }

    /// A whole value.
    #[inline]
    fn short(&mut self, value: &[u8]) {
        self.out.note_value();
        self.out.extend(value);
    }

    /// A simple string; `text` has no line break.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error, code first. Line breaks become spaces.
    pub fn error(&mut self, text: &[u8]) {
        self.out.note_value();
        if self.out.has_room(text.len() + 3) {
            let bytes = &mut self.out.bytes;
            bytes.push(b'-');
            bytes.extend(text.iter().map(|&b| if b == b'\r' || b == b'\n' { b' ' } else { b }));
            bytes.extend_from_slice(b"\r\n");
        }
    }

    pub fn int(&mut self, number: i64) {
        match number {
            0 => self.short(b":0\r\n"),
            1 => self.short(b":1\r\n"),
            _ => self.header(b':', number),
        }
    }

    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.note_value();
        if self.out.has_room(bytes.len() + BULK_EXTRA_BYTES) {
            self.out.bytes.reserve(bytes.len() + BULK_EXTRA_BYTES);
            self.header_within(b'$', bytes.len() as i64);
            self.out.bytes.extend_from_slice(bytes);
            self.out.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// What comes before the bytes of a bulk string that are appended part by part, and CRLF behind them.
    pub fn bulk_head(&mut self, len_bytes: u64) {
        self.header(b'$', len_bytes as i64);
    }

    /// A bulk string that holds a decimal number.
    pub fn bulk_int(&mut self, number: i64) {
        self.bulk(Decimal::of(number).as_ref());
    }

    /// A large value as a bulk string, sent from where it lies.
    pub fn bulk_sending(&mut self, value: Sending) {
        self.out.note_value();
        let len = value.len_bytes();
        if self.out.has_room(len as usize + BULK_EXTRA_BYTES) {
            self.header_within(b'$', len as i64);
            self.out.values.push_back((self.out.bytes.len(), Sent { value, payload: None }));
            self.out.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// An element as a bulk string; a large one is sent from where it lies, if that may be.
    #[inline]
    pub fn bulk_given(&mut self, given: Given<'_>) {
        match given {
            Given::Here(bytes) => self.bulk(bytes),
            Given::Large(value) if self.out.sends_values => self.bulk_sending(value),
            Given::Large(value) => self.bulk_copied(&value),
        }
    }

    /// A large value as a bulk string, copied past memory.
    #[cold]
    fn bulk_copied(&mut self, value: &Sending) {
        self.out.note_value();
        let len = value.len_bytes();
        if self.out.has_room(len as usize + BULK_EXTRA_BYTES) {
            self.header_within(b'$', len as i64);
            let bytes = &mut self.out.bytes;
            let copied = value.for_each(|part| bytes.extend_from_slice(part));
            bytes.extend_from_slice(b"\r\n");
            if copied.is_err() {
                // Its length is announced: half an answer is none.
                self.out.give_up();
            }
        }
    }

    /// The payload of a large value as a bulk string, not compressed, the value sent from where it lies.
    pub fn bulk_payload(&mut self, value: Sending) {
        self.out.note_value();
        let (payload, head) = LongPayload::begin(value.len_bytes());
        let len = head.len() + value.len_bytes() as usize + LongPayload::FOOTER_BYTES;
        if self.out.has_room(len + BULK_EXTRA_BYTES) {
            self.header_within(b'$', len as i64);
            self.out.bytes.extend_from_slice(&head);
            self.out.values.push_back((self.out.bytes.len(), Sent { value, payload: Some(payload) }));
            // Written once the value has been sent.
            self.out.bytes.extend_from_slice(&[0; LongPayload::FOOTER_BYTES]);
            self.out.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// A stored string as a bulk string, copied once.
    pub fn bulk_value(&mut self, value: &StrRef<'_>) {
        self.bulk_range(value, 0, value.len());
    }

    /// Bytes `start..end` of a stored string as a bulk string; the caller has clamped them.
    pub fn bulk_range(&mut self, value: &StrRef<'_>, start: u64, end: u64) {
        self.out.note_value();
        // All of it or nothing: a length that is announced is followed by as many bytes.
        if self.out.has_room((end - start) as usize + BULK_EXTRA_BYTES) {
            self.header_within(b'$', (end - start) as i64);
            let bytes = &mut self.out.bytes;
            value.chunks(start, end, |chunk| bytes.extend_from_slice(chunk));
            bytes.extend_from_slice(b"\r\n");
        }
    }

    /// No such value: `_` in RESP3, a bulk string of length -1 in RESP2.
    pub fn null(&mut self) {
        self.short(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// As [`Reply::null`], an array of length -1 in RESP2.
    pub fn null_array(&mut self) {
        self.short(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Header of an array; its elements follow.
    pub fn array(&mut self, element_count: usize) {
        self.out.announce(element_count);
        self.header(b'*', element_count as i64);
    }

    /// Header of what the client has not asked for just now; an array in RESP2.
    pub fn push(&mut self, element_count: usize) {
        self.out.announce(element_count);
        self.header(if self.resp3 { b'>' } else { b'*' }, element_count as i64);
    }

    /// As [`Reply::push`], of a command that has a reply beside it.
    pub fn push_beside(&mut self, element_count: usize) {
        self.out.announce(1);
        self.push(element_count);
    }

    /// Header of a map of so many pairs; a flat array in RESP2.
    pub fn map(&mut self, pair_count: usize) {
        self.out.announce(2 * pair_count);
        if self.resp3 {
            self.header(b'%', pair_count as i64);
        } else {
            self.header(b'*', 2 * pair_count as i64);
        }
    }

    /// Header of a set; an array in RESP2.
    pub fn set(&mut self, element_count: usize) {
        self.out.announce(element_count);
        self.header(if self.resp3 { b'~' } else { b'*' }, element_count as i64);
    }

    /// A floating point number; a bulk string in RESP2.
    pub fn double(&mut self, number: f64) {
        self.double_text(&double::to_text(number));
    }

    /// A floating point number, as Redis prints it (`%.17g`); a bulk string in RESP2.
    pub fn double_text(&mut self, text: &str) {
        if self.resp3 {
            self.line(b',', text.as_bytes());
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// The header of so many members of a sorted set, each of which is a [`Reply::member`].
    pub fn members(&mut self, count: usize, has_scores: bool) {
        let per_member = if has_scores && !self.resp3 { 2 } else { 1 };
        self.array(count.saturating_mul(per_member));
    }

    /// One of them, with its score if they have scores.
    pub fn member(&mut self, member: Given<'_>, score: f64, has_scores: bool) {
        match has_scores {
            true => self.scored_pair(self.resp3, member, score),
            false => self.bulk_given(member),
        }
    }

    /// A member and its score, as an array if it `is_nested`.
    pub fn scored_pair(&mut self, is_nested: bool, member: Given<'_>, score: f64) {
        if is_nested {
            self.array(2);
        }
        self.bulk_given(member);
        self.double(score);
    }

    /// A truth value; 1 or 0 in RESP2.
    pub fn boolean(&mut self, value: bool) {
        if self.resp3 {
            self.short(if value { b"#t\r\n" } else { b"#f\r\n" });
        } else {
            self.int(i64::from(value));
        }
    }

    /// A whole number of any size by its digits; a bulk string in RESP2.
    pub fn big_number(&mut self, digits: &str) {
        match self.resp3 {
            true => self.line(b'(', digits.as_bytes()),
            false => self.bulk(digits.as_bytes()),
        }
    }

    /// Header of so many pairs that say something of the reply behind them; of RESP3 alone.
    pub fn attribute(&mut self, pair_count: usize) {
        // It is no value itself, and neither are its pairs.
        self.out.announce(2 * pair_count + 1);
        self.header(b'|', pair_count as i64);
    }

    /// Text for people (`txt`); a bulk string in RESP2.
    pub fn verbatim(&mut self, text: &[u8]) {
        if self.resp3 {
            self.out.note_value();
            if self.out.has_room(text.len() + 4 + BULK_EXTRA_BYTES) {
                self.header_within(b'=', text.len() as i64 + 4);
                let bytes = &mut self.out.bytes;
                bytes.extend_from_slice(b"txt:");
                bytes.extend_from_slice(text);
                bytes.extend_from_slice(b"\r\n");
            }
        } else {
            self.bulk(text);
        }
    }

    /// The reply of a `HELP` subcommand: lines as simple strings, framed as Redis frames them.
    pub fn help(&mut self, command: &str, lines: &[&str]) {
        self.array(lines.len() + 3);
        self.simple(&format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
        for line in lines {
            self.simple(line);
        }
        self.simple("HELP");
        self.simple("    Prints this help.");
    }
}

/// Writes a number in decimal so that it ends there; returns where it begins.
pub fn put_digits(text: &mut [u8], end: usize, mut number: u64) -> usize {
    let mut start = end;
    loop {
        start -= 1;
        text[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return start;
        }
    }
}

/// Appends a number in decimal.
pub fn push_decimal(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(Decimal::of(number).as_ref());
}

/// A number in decimal.
pub struct Decimal {
    text: [u8; 20],
    start: usize,
}

impl Decimal {
    pub fn of(number: i64) -> Decimal {
        let mut text = [0; 20];
        let mut start = put_digits(&mut text, 20, number.unsigned_abs());
        if number < 0 {
            start -= 1;
            text[start] = b'-';
        }
        Decimal { text, start }
    }
}

impl AsRef<[u8]> for Decimal {
    fn as_ref(&self) -> &[u8] {
        &self.text[self.start..]
    }
}
