//! The parts of `COMMAND DOCS` that are trees: arguments and history.
//!
//! `docs.txt` has one block a command: `@name field_count`, then the fields as lines of RESP3, where bulk strings
//! are written `$text`.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::protocol::reply::Reply;

static TEXT: &str = include_str!("docs.txt");

/// Number of fields and their lines, by command.
static BLOCKS: LazyLock<HashMap<&str, (usize, &str)>> = LazyLock::new(|| {
    let block = |text: &'static str| {
        let (head, lines) = text.split_once('\n')?;
        let (name, count) = head.split_once(' ')?;
        Some((name, (count.parse().ok()?, lines)))
    };
    TEXT.split('@').filter_map(block).collect()
});

/// Number of fields that [`write`] adds.
pub fn field_count(command: &str) -> usize {
    BLOCKS.get(command).map_or(0, |(count, _)| *count)
}

/// Appends the fields of a command.
pub fn write(reply: &mut Reply<'_>, command: &str) {
    let lines = BLOCKS.get(command).map_or("", |(_, lines)| lines);
    for line in lines.lines() {
        let Some((kind, text)) = line.split_at_checked(1) else { continue };
        let count = || text.parse().unwrap_or(0);
        match kind {
            "$" => reply.bulk(text.as_bytes()),
            "+" => reply.simple(text),
            ":" => reply.int(text.parse().unwrap_or(0)),
            "*" => reply.array(count()),
            "%" => reply.map(count()),
            _ => reply.set(count()),
        }
    }
}
