//! A packed set: members one after the other. Integers alone are in ascending order, as Redis gives them.

use std::ops::Range;

use crate::types::packed::{elements, push as push_element, splice};

/// The integer that a member is the usual text of.
pub(crate) fn integer(member: &[u8]) -> Option<i64> {
    // The longest has 20 bytes.
    let text = std::str::from_utf8(member).ok().filter(|text| (1..=20).contains(&text.len()))?;
    let number: i64 = text.parse().ok()?;
    let is_usual = match text.as_bytes() {
        [b'0'] => true,
        [b'-', b'1'..=b'9', ..] | [b'1'..=b'9', ..] => true,
        _ => false,
    };
    is_usual.then_some(number)
}

pub(super) fn len(run: &[u8]) -> u64 {
    elements(run).count() as u64
}

pub(super) fn contains(run: &[u8], member: &[u8]) -> bool {
    elements(run).any(|element| element.bytes == member)
}

fn place_of(run: &[u8], member: &[u8]) -> Option<Range<usize>> {
    elements(run).find(|element| element.bytes == member).map(|element| element.range)
}

/// Adds a member, unless it is there; whether it was not. `is_sorted`: all members are integers, and so is this one.
pub(super) fn add(run: &mut Vec<u8>, member: &[u8], is_sorted: bool) -> bool {
    if contains(run, member) {
        return false;
    }
    let number = if is_sorted { integer(member) } else { None };
    let next = number.and_then(|number| {
        elements(run).find(|element| integer(element.bytes).is_some_and(|other| other > number))
    });
    match next.map(|element| element.range.start) {
        Some(at) => splice(run, at..at, &[member]),
        None => push_element(run, member),
    }
    true
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
