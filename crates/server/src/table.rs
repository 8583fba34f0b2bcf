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
    /// Row number plus one; 0 is free.
    slots: Box<[u16; SLOT_COUNT]>,
    /// For a container, the numbers of its subcommands.
    subcommands: Vec<std::ops::Range<u16>>,
}

pub static TABLE: LazyLock<Table> = LazyLock::new(Table::build);

/// Mixes the first and last eight bytes and the length, ignoring case.
fn slot_of(name: &[u8]) -> usize {
    const CASE: u64 = 0x2020_2020_2020_2020;
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word) | CASE
    };
    let head = match name.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk) | CASE,
        None => word(name),
    };
    let tail = name.last_chunk::<8>().map_or(0, |chunk| u64::from_le_bytes(*chunk) | CASE);
    let mixed = (head ^ tail.rotate_left(23) ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 54) as usize
}

impl Table {
    fn build() -> Table {
        let rows: Vec<&'static Command> = GROUPS.iter().copied().flatten().collect();
        let mut table =
            Table { rows: rows.clone(), slots: Box::new([0; SLOT_COUNT]), subcommands: Vec::new() };
        for (number, row) in rows.iter().enumerate() {
            let prefix = format!("{}|", row.name);
            let sub_count = rows[number + 1..].iter().take_while(|r| r.name.starts_with(&prefix)).count();
            table.subcommands.push(number as u16 + 1..(number + 1 + sub_count) as u16);
            if row.name.contains('|') {
                continue;
            }
            let mut slot = slot_of(row.name.as_bytes());
            while table.slots[slot] != 0 {
                slot = (slot + 1) % SLOT_COUNT;
            }
            table.slots[slot] = number as u16 + 1;
        }
        table
    }

    /// All rows; the index is the [`CommandId`].
    pub fn rows(&self) -> &[&'static Command] {
        &self.rows
    }

    /// A command by its name, in any case; containers included, subcommands not.
    pub fn lookup(&self, name: &[u8]) -> Option<Found> {
        let mut slot = slot_of(name);
        loop {
            let number = self.slots[slot].checked_sub(1)?;
            let command = self.rows[number as usize];
            if command.name.len() == name.len() && command.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(Found { id: CommandId(number), command });
            }
            slot = (slot + 1) % SLOT_COUNT;
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
