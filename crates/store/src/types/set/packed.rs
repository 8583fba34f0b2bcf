//! A packed set: members one after the other. Integers alone are in ascending order, as Redis gives them.

use std::cmp::Ordering;
use std::ops::Range;

use crate::types::packed::{elements, is_same, push as push_element, splice, Element};

/// The integer that a member is the usual text of.
pub(crate) fn integer(member: &[u8]) -> Option<i64> {
    // The longest has 20 bytes.
    let text = std::str::from_utf8(member).ok().filter(|text| (1..=20).contains(&text.len()))?;
    let number: i64 = text.parse().ok()?;
    let is_usual = matches!(text.as_bytes(), [b'0'] | [b'-', b'1'..=b'9', ..] | [b'1'..=b'9', ..]);
    is_usual.then_some(number)
}

pub(super) fn len(run: &[u8]) -> u64 {
    elements(run).count() as u64
}

pub(super) fn contains(run: &[u8], member: &[u8]) -> bool {
    elements(run).any(|element| is_same(element.bytes, member))
}

fn place_of(run: &[u8], member: &[u8]) -> Option<Range<usize>> {
    elements(run).find(|element| is_same(element.bytes, member)).map(|element| element.range)
}

/// Adds a member, unless it is there; whether it was not. `is_sorted`: all members are integers, and so is this one.
pub(super) fn add(run: &mut Vec<u8>, member: &[u8], is_sorted: bool) -> bool {
    if !is_sorted {
        let is_new = !contains(run, member);
        if is_new {
            push_element(run, member);
        }
        return is_new;
    }
    match elements(run).find(|element| compare(element.bytes, member).is_ge()) {
        Some(next) if next.bytes == member => return false,
        Some(Element { range, .. }) => splice(run, range.start..range.start, &[member]),
        None => push_element(run, member),
    }
    true
}

/// Adds integers, none of which is there, to a run that is sorted.
pub(super) fn add_integers(run: &mut Vec<u8>, members: &[&[u8]]) {
    for member in members {
        add(run, member, true);
    }
}

/// Which of two integers is greater, by their usual texts.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match (a.first() == Some(&b'-'), b.first() == Some(&b'-')) {
        (false, false) => (a.len(), a).cmp(&(b.len(), b)),
        (true, true) => (b.len(), b).cmp(&(a.len(), a)),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    }
}

/// A choice of some of the members that a walk comes by: all choices of so many are equally likely.
pub(super) struct Choice {
    wanted: u64,
    left: u64,
}

impl Choice {
    pub fn new(count: u64, len: u64) -> Choice {
        Choice { wanted: count, left: len }
    }

    pub fn takes_next(&mut self) -> bool {
        let is_taken = fastrand::u64(..self.left.max(1)) < self.wanted;
        self.left = self.left.saturating_sub(1);
        self.wanted -= u64::from(is_taken);
        is_taken
    }

    pub fn is_made(&self) -> bool {
        self.wanted == 0
    }
}

/// Draws `count` of `len` members evenly, and puts them behind all others. Bytes of those others, which stay in their order.
pub(super) fn part(run: &mut Vec<u8>, count: u64, len: u64) -> usize {
    if count == 1 {
        let nth = fastrand::usize(..len.max(1) as usize);
        let Some(Element { range, .. }) = elements(run).nth(nth) else { return run.len() };
        let bytes = range.len();
        run[range.start..].rotate_left(bytes);
        return run.len() - bytes;
    }
    let (mut kept, mut drawn) = (Vec::with_capacity(run.len()), Vec::new());
    let mut choice = Choice::new(count, len);
    for Element { range, .. } in elements(run) {
        let part = if choice.takes_next() { &mut drawn } else { &mut kept };
        part.extend_from_slice(&run[range]);
    }
    let kept_bytes = kept.len();
    kept.extend_from_slice(&drawn);
    *run = kept;
    kept_bytes
}

/// Removes a member; whether it was there.
pub(super) fn remove(run: &mut Vec<u8>, member: &[u8]) -> bool {
    place_of(run, member).map(|place| run.drain(place)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_usual_text_is_an_integer() {
        let integers = ["0", "-1", "9223372036854775807", "-9223372036854775808"];
        assert!(integers
            .iter()
            .all(|text| integer(text.as_bytes()).map(|n| n.to_string()).as_deref() == Some(text)));
        for text in ["", "-", "-0", "00", "+1", " 1", "1 ", "01", "9223372036854775808", "1.0", "a"] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn integers_compare_as_numbers() {
        let mut texts: Vec<String> = [i64::MIN, i64::MAX, 0, 1, -1].iter().map(i64::to_string).collect();
        texts.extend((0..200).map(|_| (fastrand::i64(..) >> fastrand::u32(..63)).to_string()));
        for (a, b) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
            let expected = integer(a.as_bytes()).cmp(&integer(b.as_bytes()));
            assert_eq!(compare(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
        }
    }

    #[test]
    fn each_member_is_drawn_as_often_as_any_other() {
        let (members, mut times) = (["a", "bb", "", "dddd", "e"], [0; 5]);
        for round in 0..10_000 {
            let mut run = Vec::new();
            members.iter().for_each(|member| push_element(&mut run, member.as_bytes()));
            let count = round % 5 + 1;
            let kept_bytes = part(&mut run, count, 5);
            assert_eq!(elements(&run[kept_bytes..]).count() as u64, count);
            assert_eq!(elements(&run[..kept_bytes]).count() as u64, 5 - count);
            for drawn in elements(&run[kept_bytes..]) {
                let index = members.iter().position(|member| member.as_bytes() == drawn.bytes);
                times[index.expect("a member")] += 1;
            }
        }
        // 6000 times each, with a deviation below 45.
        assert!(times.iter().all(|times| (5600..6400).contains(times)), "{times:?}");
    }

    #[test]
    fn integers_stay_sorted() {
        let mut run = Vec::new();
        for member in ["5", "-3", "100", "20", "0", "5"] {
            add(&mut run, member.as_bytes(), true);
        }
        assert!(elements(&run).map(|element| element.bytes).eq([&b"-3"[..], b"0", b"5", b"20", b"100"]));
        assert!(remove(&mut run, b"5") && !remove(&mut run, b"5"));
        assert_eq!(len(&run), 4);
    }
}
