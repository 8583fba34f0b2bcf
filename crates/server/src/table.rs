//! The command table: one row a command; lookup, `COMMAND`, ACL categories and docs come from it.

mod bitmap;
mod connection;
pub mod docs;
mod keys;
mod server;
mod string;
mod transaction;

use std::sync::LazyLock;

use crate::command::Command;

/// The rows, group by group. A container is followed by its subcommands.
static GROUPS: &[&[Command]] = &[
    string::COMMANDS,
    bitmap::COMMANDS,
    keys::COMMANDS,
    connection::COMMANDS,
    transaction::COMMANDS,
    server::COMMANDS,
];

/// Number of a row, the index of its statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId(pub u16);

/// A command with its row number.
#[derive(Clone, Copy)]
pub struct Found {
    pub id: CommandId,
    pub command: &'static Command,
}

const SLOT_COUNT: usize = 1024;

/// Open addressing over a cheap hash of the lower-cased name; read-only after the start.
pub struct Table {
    rows: Vec<&'static Command>,
    slots: Box<[Slot; SLOT_COUNT]>,
    /// For a container, the numbers of its subcommands.
    subcommands: Vec<std::ops::Range<u16>>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    name: Folded,
    /// Row number plus one; 0 is free.
    number: u16,
    /// The folded name says all: it is made of letters, which fold onto nothing else.
    is_exact: bool,
}

/// The first and last eight bytes of a name with the bit set that tells cases apart, and its length.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Folded {
    head: u64,
    tail: u64,
    len: usize,
}

impl Folded {
    #[inline]
    fn new(name: &[u8]) -> Folded {
        const CASE: u64 = 0x2020_2020_2020_2020;
        let len = name.len();
        let (head, tail) = if let (Some(head), Some(tail)) = (name.first_chunk::<8>(), name.last_chunk::<8>())
        {
            (u64::from_le_bytes(*head), u64::from_le_bytes(*tail))
        } else if let (Some(head), Some(tail)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            (u64::from(u32::from_le_bytes(*head)), u64::from(u32::from_le_bytes(*tail)))
        } else {
            (name.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0)
        };
        Folded { head: head | CASE, tail: tail | CASE, len }
    }

    #[inline]
    fn slot(self) -> usize {
        let mixed = self.head ^ self.tail.rotate_left(23) ^ self.len as u64;
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize
    }
}

pub static TABLE: LazyLock<Table> = LazyLock::new(Table::build);

impl Table {
    fn build() -> Table {
        let rows: Vec<&'static Command> = GROUPS.iter().copied().flatten().collect();
        let slots = Box::new([Slot::default(); SLOT_COUNT]);
        let mut table = Table { rows: rows.clone(), slots, subcommands: Vec::new() };
        for (number, row) in rows.iter().enumerate() {
            let prefix = format!("{}|", row.name);
            let sub_count = rows[number + 1..].iter().take_while(|r| r.name.starts_with(&prefix)).count();
            table.subcommands.push(number as u16 + 1..(number + 1 + sub_count) as u16);
            if row.name.contains('|') {
                continue;
            }
            let name = Folded::new(row.name.as_bytes());
            let mut slot = name.slot();
            while table.slots[slot].number != 0 {
                slot = (slot + 1) % SLOT_COUNT;
            }
            let is_exact = row.name.len() <= 16 && row.name.bytes().all(|b| b.is_ascii_lowercase());
            table.slots[slot] = Slot { name, number: number as u16 + 1, is_exact };
        }
        table
    }

    /// All rows; the index is the [`CommandId`].
    pub fn rows(&self) -> &[&'static Command] {
        &self.rows
    }

    /// A command by its name, in any case; containers included, subcommands not.
    #[inline]
    pub fn lookup(&self, name: &[u8]) -> Option<Found> {
        let folded = Folded::new(name);
        let mut at = folded.slot();
        loop {
            let slot = &self.slots[at];
            let number = slot.number.checked_sub(1)?;
            if slot.name == folded {
                let command = self.rows[number as usize];
                if slot.is_exact || command.name.as_bytes().eq_ignore_ascii_case(name) {
                    return Some(Found { id: CommandId(number), command });
                }
            }
            at = (at + 1) % SLOT_COUNT;
        }
    }

    /// The rows of a container's subcommands.
    pub fn subcommands(&self, container: CommandId) -> impl Iterator<Item = Found> + '_ {
        self.subcommands[container.0 as usize]
            .clone()
            .map(|n| Found { id: CommandId(n), command: self.rows[n as usize] })
    }

    /// A command, or with `|` a subcommand, by its full name.
    pub fn find(&self, name: &[u8]) -> Option<Found> {
        let mut parts = name.splitn(2, |&b| b == b'|');
        let container = self.lookup(parts.next()?)?;
        match parts.next() {
            None => Some(container),
            Some(sub) => self.subcommand(container, sub),
        }
    }

    /// A subcommand by its name without the container's.
    pub fn subcommand(&self, container: Found, name: &[u8]) -> Option<Found> {
        let skip = container.command.name.len() + 1;
        self.subcommands(container.id).find(|f| f.command.name.as_bytes()[skip..].eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for row in TABLE.rows() {
            let found = TABLE.find(row.name.as_bytes()).expect(row.name);
            assert_eq!(found.command.name, row.name);
            assert!(std::ptr::eq(TABLE.rows()[found.id.0 as usize], found.command));
            assert_eq!(TABLE.find(row.name.to_ascii_uppercase().as_bytes()).map(|f| f.id), Some(found.id));
        }
    }

    #[test]
    fn other_names_are_not() {
        for name in [
            "",
            "ge",
            "gett",
            "g\x05t",
            "restore\rasking",
            "sort\x7fro",
            "get\0",
            "a long name of no command",
        ] {
            assert!(TABLE.lookup(name.as_bytes()).is_none(), "{name:?}");
        }
        // Every byte in the place of every letter.
        for at in 0..6 {
            for byte in 0..=255 {
                let mut name = *b"append";
                name[at] = byte;
                assert_eq!(TABLE.lookup(&name).is_some(), name.eq_ignore_ascii_case(b"append"), "{name:?}");
            }
        }
    }
}
