//! From bytes to commands: the closed set that units are made of, all of a unit read and checked before any is run.

use std::ops::Range;

use smallvec::SmallVec;

use crate::effect::End;
use crate::entry::Deadline;
use crate::library::library_name;
use crate::value::MAX_STRING_BYTES;
use crate::{DbId, StreamId, UnixMillis};

/// A command has no more words; Redis's own limit.
const WORDS_MAX: u64 = 1 << 20;
/// A head of `*` or `$`, its number and the end of its line.
const HEAD_BYTES_MAX: usize = 32;

/// Why bytes are not commands.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum Malformed {
    #[error("byte {offset} of the unit: {expected} was expected: the bytes are not those of a stream, or have been changed")]
    Bytes { offset: usize, expected: &'static str },
    #[error("the unit ends at byte {offset}, within a command or before EXEC: give all of it")]
    Unfinished { offset: usize },
    #[error(
        "byte {offset} of the unit: {name} is no command of a stream: a program that knows more has made it"
    )]
    Unknown { offset: usize, name: String },
    #[error("byte {offset} of the unit: {name} has {what}: a program that knows more has made it")]
    Words { offset: usize, name: String, what: &'static str },
    #[error("byte {offset} of the unit: no database has been selected: begin where a cut was")]
    NoDatabase { offset: usize },
}

/// The words of a command, and which bytes it takes.
pub(crate) struct Words<'a> {
    pub words: SmallVec<[&'a [u8]; 8]>,
    pub place: Range<usize>,
}

/// The command at `at`; `None` if not all of it is there.
pub(crate) fn next(bytes: &[u8], at: usize) -> Result<Option<Words<'_>>, Malformed> {
    let Some((count, mut end)) = head(bytes, at, b'*', WORDS_MAX)? else { return Ok(None) };
    if count == 0 {
        return Err(Malformed::Bytes { offset: at, expected: "a command with words" });
    }
    let mut words = SmallVec::new();
    for _ in 0..count {
        let Some((len, start)) = head(bytes, end, b'$', MAX_STRING_BYTES)? else { return Ok(None) };
        let word_end = start + len as usize;
        let Some(line_end) = bytes.get(word_end..word_end + 2) else { return Ok(None) };
        if line_end != b"\r\n" {
            return Err(Malformed::Bytes { offset: word_end, expected: "the end of a line" });
        }
        words.push(&bytes[start..word_end]);
        end = word_end + 2;
    }
    Ok(Some(Words { words, place: at..end }))
}

/// The number of a head, and where the head ends.
fn head(bytes: &[u8], at: usize, tag: u8, most: u64) -> Result<Option<(u64, usize)>, Malformed> {
    let rest = &bytes[at.min(bytes.len())..];
    let bad = |expected| Err(Malformed::Bytes { offset: at, expected });
    match rest.first() {
        None => return Ok(None),
        Some(found) if *found != tag => {
            return bad(if tag == b'*' { "a command" } else { "a word" });
        }
        Some(_) => {}
    }
    let Some(len) = rest.iter().take(HEAD_BYTES_MAX).position(|byte| *byte == b'\r') else {
        return if rest.len() < HEAD_BYTES_MAX { Ok(None) } else { bad("the end of a line") };
    };
    match rest.get(len + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return bad("the end of a line"),
    }
    match digits(&rest[1..len]) {
        Some(number) if number <= most => Ok(Some((number, at + len + 2))),
        _ => bad("a length"),
    }
}

/// A whole number as it is written here: digits, with a minus if it is below 0.
pub(crate) fn number(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        None => i64::try_from(digits(word)?).ok(),
        Some(word) => 0i64.checked_sub_unsigned(digits(word)?),
    }
}

fn digits(word: &[u8]) -> Option<u64> {
    let mut number: u64 = 0;
    for byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (!word.is_empty()).then_some(number)
}

/// A command's name in capitals. No name of a stream is longer.
pub(super) fn upper(name: &[u8]) -> SmallVec<[u8; 16]> {
    name.iter().map(u8::to_ascii_uppercase).collect()
}

/// A command that changes something.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Command<'a> {
    Set { key: &'a [u8], value: &'a [u8], deadline: Deadline },
    WriteRange { key: &'a [u8], offset: u64, bytes: &'a [u8] },
    SetDeadline { key: &'a [u8], deadline: Option<UnixMillis> },
    Delete { keys: Many<'a> },
    Rename { from: &'a [u8], to: &'a [u8] },
    Move { key: &'a [u8], to: DbId },
    Copy { from: &'a [u8], to: &'a [u8], to_db: DbId },
    Flush,
    Swap { a: DbId, b: DbId },
    Elements { key: &'a [u8], change: OfElements<'a> },
    List { key: &'a [u8], change: OfList<'a> },
    Stream { key: &'a [u8], change: OfStream<'a> },
    SetLibrary { name: String, source: &'a [u8] },
    RemoveLibrary { name: &'a str },
    RemoveLibraries,
}

impl<'a> Command<'a> {
    /// The key that is looked up before all else; `None` of what names several, or none.
    pub fn first_key(&self) -> Option<&'a [u8]> {
        match *self {
            Command::Set { key, .. } | Command::WriteRange { key, .. } | Command::SetDeadline { key, .. } => {
                Some(key)
            }
            Command::Elements { key, .. } | Command::List { key, .. } | Command::Stream { key, .. } => {
                Some(key)
            }
            _ => None,
        }
    }

    /// Whether it is the same in whatever database.
    fn is_anywhere(&self) -> bool {
        matches!(
            self,
            Command::Swap { .. }
                | Command::SetLibrary { .. }
                | Command::RemoveLibrary { .. }
                | Command::RemoveLibraries
        )
    }
}

/// What becomes of elements that are found by their names.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum OfElements<'a> {
    SetFields(Vec<(&'a [u8], &'a [u8])>),
    RemoveFields(Many<'a>),
    SetDeadline { deadline: Option<UnixMillis>, fields: Many<'a> },
    AddMembers(Many<'a>),
    RemoveMembers(Many<'a>),
    PutScored(Vec<(f64, &'a [u8])>),
    RemoveScored(Many<'a>),
}

/// What becomes of a list.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum OfList<'a> {
    Push { end: End, items: Many<'a> },
    Pop { end: End },
    Trim { first: i64, last: i64 },
    SetItem { index: i64, item: &'a [u8] },
    Insert { is_before: bool, pivot: &'a [u8], item: &'a [u8] },
    RemoveItems { count: i64, item: &'a [u8] },
}

/// What becomes of a stream.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum OfStream<'a> {
    Add {
        id: StreamId,
        parts: Many<'a>,
    },
    Remove(Vec<StreamId>),
    /// `None`: all entries go.
    TrimTo(Option<StreamId>),
    Mark {
        last: StreamId,
        added_count: u64,
        max_deleted: StreamId,
    },
    SetGroup {
        group: &'a [u8],
        last: StreamId,
        read_count: Option<u64>,
        is_new: bool,
    },
    RemoveGroup {
        group: &'a [u8],
    },
    AddConsumer {
        group: &'a [u8],
        consumer: &'a [u8],
    },
    RemoveConsumer {
        group: &'a [u8],
        consumer: &'a [u8],
    },
    Own {
        group: &'a [u8],
        consumer: &'a [u8],
        id: StreamId,
        time: UnixMillis,
        count: u64,
    },
    Acknowledge {
        group: &'a [u8],
        id: StreamId,
    },
}

type Many<'a> = Vec<&'a [u8]>;

/// A command of a unit, and where it is.
pub(crate) struct Placed<'a> {
    pub offset: usize,
    pub name: &'a [u8],
    /// `None` of what depends on no database.
    pub db: Option<DbId>,
    pub command: Command<'a>,
}

/// What a unit changes, in order.
pub(crate) struct Script<'a> {
    pub commands: SmallVec<[Placed<'a>; 1]>,
    /// The database that is selected behind it.
    pub db: Option<DbId>,
    /// Bytes of the unit.
    pub len: usize,
}

/// Reads all of a unit, before which `db` is selected.
///
/// # Errors
/// [`Malformed`]; there is nothing to be run then.
pub(crate) fn script(unit: &[u8], db: Option<DbId>) -> Result<Script<'_>, Malformed> {
    let script = first(unit, db)?;
    match script.len == unit.len() {
        true => Ok(script),
        false => Err(Malformed::Bytes { offset: script.len, expected: "the end of the unit" }),
    }
}

/// Reads the first unit of `units`, before which `db` is selected.
///
/// # Errors
/// [`Malformed`].
pub(crate) fn first(units: &[u8], mut db: Option<DbId>) -> Result<Script<'_>, Malformed> {
    let (mut at, mut commands, mut is_inside, mut is_over) = (0, SmallVec::new(), false, false);
    while !is_over {
        let read = next(units, at)?.ok_or(Malformed::Unfinished { offset: units.len() })?;
        let (name, words) = (read.words[0], &read.words[1..]);
        match (&upper(name)[..], words) {
            (b"SELECT", [index]) => db = Some(database(index).ok_or_else(|| bad(at, name, "no database"))?),
            (b"MULTI", []) if !is_inside => is_inside = true,
            (b"EXEC", []) if is_inside => (is_inside, is_over) = (false, true),
            // What replicas are told beside the data.
            (b"PING" | b"PUBLISH" | b"SPUBLISH" | b"REPLCONF", _) => is_over = !is_inside,
            (upper, words) => {
                let command = command(upper, words).map_err(|what| match what {
                    Some(what) => bad(at, name, what),
                    None => Malformed::Unknown { offset: at, name: text(name) },
                })?;
                let is_anywhere = command.is_anywhere();
                if db.is_none() && !is_anywhere {
                    return Err(Malformed::NoDatabase { offset: at });
                }
                let db = if is_anywhere { None } else { db };
                commands.push(Placed { offset: at, name, db, command });
                is_over = !is_inside;
            }
        }
        at = read.place.end;
    }
    Ok(Script { commands, db, len: at })
}

pub(crate) fn text(name: &[u8]) -> String {
    name.iter().take(64).flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect()
}

fn bad(offset: usize, name: &[u8], what: &'static str) -> Malformed {
    Malformed::Words { offset, name: text(name), what }
}

fn database(word: &[u8]) -> Option<DbId> {
    Some(DbId(u32::try_from(number(word)?).ok()?))
}

/// What is wrong with a command's words; `None`: there is no such command.
type Wrong = Option<&'static str>;
const COUNT: Wrong = Some("other words than it has in a stream");
const NUMBER: Wrong = Some("a word that is no number of its kind");
const LIBRARY: Wrong = Some("a library whose first line does not say its name, or which is too long");
const LIBRARY_NAME: Wrong = Some("a word that is no library's name");

fn numbered(word: &[u8]) -> Result<i64, Wrong> {
    number(word).ok_or(NUMBER)
}

fn command<'a>(name: &[u8], words: &[&'a [u8]]) -> Result<Command<'a>, Wrong> {
    match (name, words) {
        (b"SET", _) => set(words),
        (b"SETRANGE", &[key, offset, bytes]) => {
            let offset = u64::try_from(numbered(offset)?).map_err(|_| NUMBER)?;
            Ok(Command::WriteRange { key, offset, bytes })
        }
        (b"PEXPIREAT", &[key, deadline]) => {
            Ok(Command::SetDeadline { key, deadline: Some(numbered(deadline)?) })
        }
        (b"PERSIST", &[key]) => Ok(Command::SetDeadline { key, deadline: None }),
        (b"DEL", [_, ..]) => Ok(Command::Delete { keys: words.to_vec() }),
        (b"RENAME", &[from, to]) => Ok(Command::Rename { from, to }),
        (b"MOVE", &[key, to]) => Ok(Command::Move { key, to: database(to).ok_or(NUMBER)? }),
        (b"COPY", &[from, to, b"DB", db, b"REPLACE"]) => {
            Ok(Command::Copy { from, to, to_db: database(db).ok_or(NUMBER)? })
        }
        (b"FLUSHDB", []) => Ok(Command::Flush),
        (b"SWAPDB", &[a, b]) => {
            Ok(Command::Swap { a: database(a).ok_or(NUMBER)?, b: database(b).ok_or(NUMBER)? })
        }
        (b"FUNCTION", _) => function(words),
        (b"XGROUP", [verb, key, rest @ ..]) => Ok(Command::Stream { key, change: of_groups(verb, rest)? }),
        (b"SETRANGE" | b"PEXPIREAT" | b"PERSIST" | b"DEL" | b"RENAME", _) => Err(COUNT),
        (b"MOVE" | b"COPY" | b"FLUSHDB" | b"SWAPDB", _) => Err(COUNT),
        (name, &[key, ref rest @ ..]) => match of_elements(name, rest)? {
            Some(change) => Ok(Command::Elements { key, change }),
            None if name.starts_with(b"X") => Ok(Command::Stream { key, change: of_stream(name, rest)? }),
            None => Ok(Command::List { key, change: of_list(name, rest)? }),
        },
        _ => Err(None),
    }
}

fn function<'a>(words: &[&'a [u8]]) -> Result<Command<'a>, Wrong> {
    match *words {
        [b"LOAD", b"REPLACE", source] => {
            let name = library_name(source).map_err(|_| LIBRARY)?;
            Ok(Command::SetLibrary { name, source })
        }
        [b"DELETE", name] => {
            let name = std::str::from_utf8(name).map_err(|_| LIBRARY_NAME)?;
            Ok(Command::RemoveLibrary { name })
        }
        [b"FLUSH"] => Ok(Command::RemoveLibraries),
        _ => Err(COUNT),
    }
}

fn set<'a>(words: &[&'a [u8]]) -> Result<Command<'a>, Wrong> {
    match *words {
        [key, value] => Ok(Command::Set { key, value, deadline: Deadline::Clear }),
        [key, value, b"KEEPTTL"] => Ok(Command::Set { key, value, deadline: Deadline::Keep }),
        [key, value, b"PXAT", deadline] => {
            Ok(Command::Set { key, value, deadline: Deadline::At(numbered(deadline)?) })
        }
        _ => Err(COUNT),
    }
}

/// `None` if it is no command of elements.
fn of_elements<'a>(name: &[u8], words: &[&'a [u8]]) -> Result<Option<OfElements<'a>>, Wrong> {
    let many = || if words.is_empty() { Err(COUNT) } else { Ok(words.to_vec()) };
    let pairs = || match words.len() {
        1.. if words.len() % 2 == 0 => Ok(words.chunks_exact(2).map(|pair| (pair[0], pair[1]))),
        _ => Err(COUNT),
    };
    Ok(Some(match name {
        b"HSET" => OfElements::SetFields(pairs()?.collect()),
        b"HDEL" => OfElements::RemoveFields(many()?),
        b"HPEXPIREAT" => {
            let (deadline, fields) = words.split_first().ok_or(COUNT)?;
            OfElements::SetDeadline { deadline: Some(numbered(deadline)?), fields: fields_of(fields)? }
        }
        b"HPERSIST" => OfElements::SetDeadline { deadline: None, fields: fields_of(words)? },
        b"SADD" => OfElements::AddMembers(many()?),
        b"SREM" => OfElements::RemoveMembers(many()?),
        b"ZADD" => {
            let scored = pairs()?.map(|(score, member)| Ok((score_of(score)?, member)));
            OfElements::PutScored(scored.collect::<Result<_, Wrong>>()?)
        }
        b"ZREM" => OfElements::RemoveScored(many()?),
        _ => return Ok(None),
    }))
}

fn of_list<'a>(name: &[u8], words: &[&'a [u8]]) -> Result<OfList<'a>, Wrong> {
    match (name, words) {
        (b"LPUSH", [_, ..]) => Ok(OfList::Push { end: End::Left, items: words.to_vec() }),
        (b"RPUSH", [_, ..]) => Ok(OfList::Push { end: End::Right, items: words.to_vec() }),
        (b"LPOP", []) => Ok(OfList::Pop { end: End::Left }),
        (b"RPOP", []) => Ok(OfList::Pop { end: End::Right }),
        (b"LTRIM", &[first, last]) => Ok(OfList::Trim { first: numbered(first)?, last: numbered(last)? }),
        (b"LSET", &[index, item]) => Ok(OfList::SetItem { index: numbered(index)?, item }),
        (b"LINSERT", &[side @ (b"BEFORE" | b"AFTER"), pivot, item]) => {
            Ok(OfList::Insert { is_before: side == b"BEFORE", pivot, item })
        }
        (b"LREM", &[count, item]) => Ok(OfList::RemoveItems { count: numbered(count)?, item }),
        (b"LPUSH" | b"RPUSH" | b"LPOP" | b"RPOP" | b"LTRIM" | b"LSET" | b"LINSERT" | b"LREM", _) => {
            Err(COUNT)
        }
        _ => Err(None),
    }
}

fn of_stream<'a>(name: &[u8], words: &[&'a [u8]]) -> Result<OfStream<'a>, Wrong> {
    match (name, words) {
        (b"XADD", &[id, ref parts @ ..]) if !parts.is_empty() && parts.len() % 2 == 0 => {
            Ok(OfStream::Add { id: entry_id(id)?, parts: parts.to_vec() })
        }
        (b"XDEL", [_, ..]) => {
            Ok(OfStream::Remove(words.iter().map(|id| entry_id(id)).collect::<Result<_, _>>()?))
        }
        (b"XTRIM", &[b"MINID", b"=", id]) => Ok(OfStream::TrimTo(Some(entry_id(id)?))),
        (b"XTRIM", [b"MAXLEN", b"=", b"0"]) => Ok(OfStream::TrimTo(None)),
        (b"XSETID", &[last, b"ENTRIESADDED", count, b"MAXDELETEDID", id]) => Ok(OfStream::Mark {
            last: entry_id(last)?,
            added_count: digits(count).ok_or(NUMBER)?,
            max_deleted: entry_id(id)?,
        }),
        (
            b"XCLAIM",
            &[group, consumer, b"0", id, b"TIME", time, b"RETRYCOUNT", count, b"FORCE", b"JUSTID"],
        ) => {
            let count = digits(count).ok_or(NUMBER)?;
            Ok(OfStream::Own { group, consumer, id: entry_id(id)?, time: numbered(time)?, count })
        }
        (b"XACK", &[group, id]) => Ok(OfStream::Acknowledge { group, id: entry_id(id)? }),
        (b"XADD" | b"XDEL" | b"XTRIM" | b"XSETID" | b"XCLAIM" | b"XACK", _) => Err(COUNT),
        _ => Err(None),
    }
}

fn of_groups<'a>(verb: &[u8], words: &[&'a [u8]]) -> Result<OfStream<'a>, Wrong> {
    let set = |group, last, count, is_new| {
        // Below 0: nobody knows.
        let read_count = u64::try_from(numbered(count)?).ok();
        Ok(OfStream::SetGroup { group, last: entry_id(last)?, read_count, is_new })
    };
    match (verb, words) {
        (b"CREATE", &[group, last, b"MKSTREAM", b"ENTRIESREAD", count]) => set(group, last, count, true),
        (b"SETID", &[group, last, b"ENTRIESREAD", count]) => set(group, last, count, false),
        (b"DESTROY", &[group]) => Ok(OfStream::RemoveGroup { group }),
        (b"CREATECONSUMER", &[group, consumer]) => Ok(OfStream::AddConsumer { group, consumer }),
        (b"DELCONSUMER", &[group, consumer]) => Ok(OfStream::RemoveConsumer { group, consumer }),
        _ => Err(COUNT),
    }
}

fn entry_id(word: &[u8]) -> Result<StreamId, Wrong> {
    let dash = word.iter().position(|byte| *byte == b'-').ok_or(NUMBER)?;
    let (ms, seq) = (digits(&word[..dash]), digits(&word[dash + 1..]));
    Ok(StreamId { ms: ms.ok_or(NUMBER)?, seq: seq.ok_or(NUMBER)? })
}

/// Behind `FIELDS` and their number.
fn fields_of<'a>(words: &[&'a [u8]]) -> Result<Many<'a>, Wrong> {
    match words {
        [b"FIELDS", count, fields @ ..] if numbered(count)? == fields.len() as i64 && !fields.is_empty() => {
            Ok(fields.to_vec())
        }
        _ => Err(COUNT),
    }
}

fn score_of(word: &[u8]) -> Result<f64, Wrong> {
    let score: Option<f64> = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    score.filter(|score| !score.is_nan()).ok_or(NUMBER)
}
