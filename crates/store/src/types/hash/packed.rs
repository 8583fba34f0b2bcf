//! A packed hash: fields and values in turn, in the order in which the fields came. If any field has a deadline, each is
//! followed by a third element: the deadline as 8 bytes, or nothing.

use std::ops::Range;

use crate::types::packed::{elements, is_same, push as push_element, splice};
use crate::{Deadline, UnixMillis};

const DEADLINE_BYTES: usize = 8;
/// Bytes that a deadline takes, with its length.
const PACKED_DEADLINE_BYTES: usize = 1 + DEADLINE_BYTES;

/// A field with its value, and where both lie.
#[derive(Clone, Debug)]
pub(super) struct Pair<'a> {
    pub field: &'a [u8],
    pub value: &'a [u8],
    pub deadline: Option<UnixMillis>,
    /// From the field's first byte to the last of the value or of the deadline.
    range: Range<usize>,
    value_range: Range<usize>,
}

impl Pair<'_> {
    pub fn has_expired(&self, now: UnixMillis) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// What a field was before a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Was {
    Absent,
    Expired,
    There,
}

fn pairs(run: &[u8], is_timed: bool) -> impl Iterator<Item = Pair<'_>> {
    let mut elements = elements(run);
    std::iter::from_fn(move || {
        let (field, value) = (elements.next()?, elements.next()?);
        let (mut end, mut deadline) = (value.range.end, None);
        if is_timed {
            let third = elements.next()?;
            (end, deadline) = (third.range.end, third.bytes.try_into().ok().map(i64::from_le_bytes));
        }
        let range = field.range.start..end;
        Some(Pair { field: field.bytes, value: value.bytes, deadline, range, value_range: value.range })
    })
}

/// The pairs of a run, whose bytes an operation has copied out of their page.
pub(super) struct Fields<'r> {
    pub run: &'r mut Vec<u8>,
    pub is_timed: bool,
}

impl Fields<'_> {
    pub fn pairs(&self) -> impl Iterator<Item = Pair<'_>> {
        pairs(self.run, self.is_timed)
    }

    pub fn len(&self) -> u64 {
        self.pairs().count() as u64
    }

    /// Whether there are more: a pair takes two bytes at least, so they are rarely counted.
    pub fn are_more_than(&self, count: usize) -> bool {
        self.run.len() / 2 > count && self.len() > count as u64
    }

    #[inline]
    pub fn find(&self, field: &[u8]) -> Option<Pair<'_>> {
        self.pairs().find(|pair| is_same(pair.field, field))
    }

    /// The same, if its time is not over.
    #[inline]
    pub fn find_live(&self, field: &[u8], now: UnixMillis) -> Option<Pair<'_>> {
        self.find(field).filter(|pair| !pair.has_expired(now))
    }

    /// Bytes of the run at most, once so many fields have been given deadlines.
    pub fn timed_bytes(&self, deadline_count: usize) -> usize {
        let thirds = if self.is_timed { 0 } else { self.pairs().count() };
        self.run.len() + thirds + deadline_count * PACKED_DEADLINE_BYTES
    }

    /// Sets a field, if it is absent or `overwrites`.
    pub fn set(
        &mut self,
        (field, value): (&[u8], &[u8]),
        deadline: Deadline,
        now: UnixMillis,
        overwrites: bool,
    ) -> Was {
        if matches!(deadline, Deadline::At(_)) {
            self.make_timed();
        }
        let Some(found) = self.find(field) else {
            push_element(self.run, field);
            push_element(self.run, value);
            if self.is_timed {
                push_element(self.run, encoded(given(deadline, None)).as_slice());
            }
            return Was::Absent;
        };
        let was = if found.has_expired(now) { Was::Expired } else { Was::There };
        if was == Was::There && !overwrites {
            return was;
        }
        let kept = found.deadline.filter(|_| was == Was::There);
        let (place, end, len) = (found.value_range, found.range.end, found.value.len());
        if self.is_timed {
            splice(self.run, place.start..end, &[value, encoded(given(deadline, kept)).as_slice()]);
        } else if len == value.len() {
            self.run[place.end - len..place.end].copy_from_slice(value);
        } else {
            splice(self.run, place, &[value]);
        }
        was
    }

    /// Gives a field a deadline, or takes it away; whether it is there, its time not over.
    pub fn set_deadline(&mut self, field: &[u8], deadline: Option<UnixMillis>, now: UnixMillis) -> bool {
        let Some(found) = self.find_live(field, now) else { return false };
        if found.deadline != deadline {
            self.make_timed();
            // It may lie elsewhere now.
            if let Some(place) = self.find(field).map(|pair| pair.value_range.end..pair.range.end) {
                splice(self.run, place, &[encoded(deadline).as_slice()]);
            }
        }
        true
    }

    /// Removes a field.
    pub fn remove(&mut self, field: &[u8], now: UnixMillis) -> Was {
        let found = self.find(field).map(|pair| (pair.has_expired(now), pair.range));
        let Some((has_expired, place)) = found else { return Was::Absent };
        self.run.drain(place);
        match has_expired {
            true => Was::Expired,
            false => Was::There,
        }
    }

    /// The earliest deadline. If there is none, the third elements go.
    pub fn settle(&mut self) -> Option<UnixMillis> {
        let earliest = self.pairs().filter_map(|pair| pair.deadline).min();
        if self.is_timed && earliest.is_none() {
            self.rewrite(false);
        }
        earliest
    }

    fn make_timed(&mut self) {
        if !self.is_timed {
            self.rewrite(true);
        }
    }

    fn rewrite(&mut self, is_timed: bool) {
        let mut rewritten = Vec::with_capacity(self.run.len() + self.pairs().count());
        for pair in self.pairs() {
            rewritten.extend_from_slice(&self.run[pair.range.start..pair.value_range.end]);
            if is_timed {
                push_element(&mut rewritten, encoded(pair.deadline).as_slice());
            }
        }
        std::mem::swap(self.run, &mut rewritten);
        self.is_timed = is_timed;
    }
}

/// A deadline as the third element of a field.
struct Encoded {
    bytes: [u8; DEADLINE_BYTES],
    len: usize,
}

impl Encoded {
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn encoded(deadline: Option<UnixMillis>) -> Encoded {
    let len = if deadline.is_some() { DEADLINE_BYTES } else { 0 };
    Encoded { bytes: deadline.unwrap_or(0).to_le_bytes(), len }
}

/// The deadline that a write leaves.
fn given(deadline: Deadline, before: Option<UnixMillis>) -> Option<UnixMillis> {
    match deadline {
        Deadline::Keep => before,
        Deadline::Clear => None,
        Deadline::At(at) => Some(at),
    }
}

/// Fields with values and deadlines, those that have one.
pub(super) fn packed_fields(
    run: &[u8],
    is_timed: bool,
) -> impl Iterator<Item = (&[u8], &[u8], Option<UnixMillis>)> {
    pairs(run, is_timed).map(|pair| (pair.field, pair.value, pair.deadline))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_and_go_with_a_third_element() {
        let (mut run, now) = (Vec::new(), 100);
        let mut fields = Fields { run: &mut run, is_timed: false };
        assert_eq!(fields.set((b"a", b"1"), Deadline::Clear, now, true), Was::Absent);
        assert_eq!(fields.set((b"b", b"22"), Deadline::Keep, now, true), Was::Absent);
        assert_eq!(fields.set((b"a", b"3"), Deadline::Clear, now, true), Was::There);
        assert_eq!(fields.set((b"a", b"4"), Deadline::Clear, now, false), Was::There);
        assert_eq!(fields.run.as_slice(), b"\x01a\x013\x01b\x0222");
        assert!(fields.set_deadline(b"b", Some(200), now) && !fields.set_deadline(b"c", Some(200), now));
        assert!(fields.is_timed);
        assert_eq!((fields.len(), fields.settle()), (2, Some(200)));
        assert_eq!(fields.run.len(), 4 + 1 + 5 + 9);
        // Kept by a write that says so, gone with one that does not; and with its time the field counts as absent.
        fields.set((b"b", b"longer"), Deadline::Keep, now, true);
        assert_eq!(fields.find(b"b").and_then(|pair| pair.deadline), Some(200));
        assert_eq!(fields.find_live(b"b", 199).map(|pair| pair.value), Some(&b"longer"[..]));
        assert!(fields.find_live(b"b", 200).is_none() && !fields.set_deadline(b"b", None, 200));
        assert_eq!(fields.set((b"b", b"new"), Deadline::Keep, 200, false), Was::Expired);
        assert_eq!(fields.settle(), None);
        assert!(!fields.is_timed);
        assert_eq!(fields.run.as_slice(), b"\x01a\x013\x01b\x03new");
        assert_eq!(fields.set((b"c", b""), Deadline::At(300), now, true), Was::Absent);
        assert_eq!(fields.remove(b"c", 300), Was::Expired);
        assert_eq!(fields.remove(b"a", 300), Was::There);
        assert_eq!((fields.remove(b"a", 300), fields.settle(), fields.len()), (Was::Absent, None, 1));
    }
}
