//! Classes of keyspace events, as `notify-keyspace-events` names them.

/// A set of classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events(pub u32);

/// The letters that a value may have, in Redis's order.
pub const LETTERS: &str = "Ag$lshzxeKEtmdn";

/// Shown as `A` if all of them are there.
const ALL: &[u8] = b"g$lshzxetd";
/// The others, in the order in which they are shown. Redis does not show `n` beside `A`, and forgets it when the file is
/// rewritten.
const MORE: &[u8] = b"nKEm";

impl Events {
    pub const GENERIC: Events = Events::class(b'g');
    pub const STRING: Events = Events::class(b'$');
    pub const LIST: Events = Events::class(b'l');
    pub const SET: Events = Events::class(b's');
    pub const HASH: Events = Events::class(b'h');
    pub const SORTED_SET: Events = Events::class(b'z');
    pub const STREAM: Events = Events::class(b't');
    pub const EXPIRED: Events = Events::class(b'x');
    pub const EVICTED: Events = Events::class(b'e');
    pub const NEW: Events = Events::class(b'n');
    pub const MISS: Events = Events::class(b'm');
    /// To `__keyspace@<db>__:<key>`.
    pub const KEYSPACE: Events = Events::class(b'K');
    /// To `__keyevent@<db>__:<event>`.
    pub const KEYEVENT: Events = Events::class(b'E');

    const fn class(letter: u8) -> Events {
        let letters = LETTERS.as_bytes();
        let mut at = 0;
        while letters[at] != letter {
            at += 1;
        }
        Events(1 << at)
    }

    /// Those of a value; others than those of `LETTERS` mean nothing.
    pub fn of(text: &[u8]) -> Events {
        let bits = |letters: &[u8]| letters.iter().fold(0, |bits, letter| bits | Events::class(*letter).0);
        let known = text.iter().filter(|letter| LETTERS.as_bytes().contains(letter));
        Events(known.fold(0, |all, letter| all | if *letter == b'A' { bits(ALL) } else { bits(&[*letter]) }))
    }

    pub fn has(self, class: Events) -> bool {
        self.0 & class.0 != 0
    }

    /// Whether anybody is told of anything.
    pub fn is_any(self) -> bool {
        let destinations = Events::KEYSPACE.0 | Events::KEYEVENT.0;
        self.0 & destinations != 0 && self.0 & !destinations != 0
    }

    /// As `CONFIG GET` shows them.
    pub fn letters(self) -> Vec<u8> {
        let has = |letter: &u8| self.has(Events::class(*letter));
        let mut shown = match ALL.iter().all(has) {
            true => vec![b'A'],
            false => ALL.iter().copied().filter(|letter| has(letter)).collect(),
        };
        shown.extend(MORE.iter().filter(|letter| has(letter)));
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::Events;

    /// As redis-server 7.0.15 does.
    #[test]
    fn letters_are_shown_in_their_order() {
        for (set, shown) in [
            ("KEA", "AKE"),
            ("Kn", "nK"),
            ("Kg$x", "g$xK"),
            ("KEgm", "gKEm"),
            ("KEAnm", "AnKEm"),
            ("nKE", "nKE"),
            ("", ""),
            ("xm", "xm"),
        ] {
            assert_eq!(Events::of(set.as_bytes()).letters(), shown.as_bytes(), "{set}");
        }
        assert!(Events::of(b"KEA").is_any());
        assert!(!Events::of(b"KE").is_any() && !Events::of(b"A").is_any());
    }
}
