//! The command table: lookup by name, and the rows by number. It is built from rows that are handed in.

use crate::command::id::CommandId;
use crate::command::row::Row;

/// A command with its row number.
pub struct Found<H: 'static> {
    pub id: CommandId,
    pub command: &'static Row<H>,
}

impl<H> Clone for Found<H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Found<H> {}

const SLOT_COUNT: usize = 1024;

/// Open addressing over a cheap hash of the lower-cased name; read-only after the start.
pub struct Registry<H: 'static> {
    rows: Vec<&'static Row<H>>,
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

impl<H> Registry<H> {
    /// Rows group by group; a container is followed by its subcommands.
    pub fn new(groups: &[&'static [Row<H>]]) -> Registry<H> {
        let rows: Vec<&'static Row<H>> = groups.iter().copied().flatten().collect();
        let slots = Box::new([Slot::default(); SLOT_COUNT]);
        let mut table = Registry { rows: rows.clone(), slots, subcommands: Vec::new() };
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
    pub fn rows(&self) -> &[&'static Row<H>] {
        &self.rows
    }

    /// A command by its number.
    pub fn found(&self, id: CommandId) -> Found<H> {
        Found { id, command: self.rows[id.0 as usize] }
    }

    /// A command by its name, in any case; containers included, subcommands not.
    #[inline]
    pub fn lookup(&self, name: &[u8]) -> Option<Found<H>> {
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
    pub fn subcommands(&self, container: CommandId) -> impl Iterator<Item = Found<H>> + '_ {
        self.subcommands[container.0 as usize].clone().map(|n| self.found(CommandId(n)))
    }

    /// A command, or with `|` a subcommand, by its full name.
    pub fn find(&self, name: &[u8]) -> Option<Found<H>> {
        let mut parts = name.splitn(2, |&b| b == b'|');
        let container = self.lookup(parts.next()?)?;
        match parts.next() {
            None => Some(container),
            Some(sub) => self.subcommand(container, sub),
        }
    }

    /// A subcommand by its name without the container's.
    pub fn subcommand(&self, container: Found<H>, name: &[u8]) -> Option<Found<H>> {
        let skip = container.command.name.len() + 1;
        self.subcommands(container.id).find(|f| f.command.name.as_bytes()[skip..].eq_ignore_ascii_case(name))
    }
}
