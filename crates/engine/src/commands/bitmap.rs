//! Strings as arrays of bits, the first bit being the highest of the first byte.

use std::ops::Range;

use stillframe_store::{DbId, Encoding, Key, Reach, StrRef, ValueType};

use super::string::{clamp, max_string_bytes};
use super::walk::{leave_to_readers, walk, At};
use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::number::parse_i64;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("bitcount", -2, flag::READONLY, Touch::Parts, bitcount).acl(acl::BITMAP)
        .doc(Group::Bitmap, "2.6.0", "Count set bits in a string", "O(N)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("bitpos", -3, flag::READONLY, Touch::Parts, bitpos).acl(acl::BITMAP)
        .doc(Group::Bitmap, "2.8.7", "Find first bit set or clear in a string", "O(N)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("getbit", 3, flag::READONLY | flag::FAST, Touch::OneOperation, getbit).acl(acl::BITMAP).reaching(bit_read)
        .doc(Group::Bitmap, "2.2.0", "Returns the bit value at offset in the string value stored at key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("setbit", 4, flag::WRITE | flag::DENYOOM, Touch::OneOperation, setbit).event("setbit").acl(acl::BITMAP).ahead(leave_to_readers).reaching(bit_written)
        .doc(Group::Bitmap, "2.2.0", "Sets or clears the bit at offset in the string value stored at key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)])
        .quick(),
];

/// The offset of a bit or, given the width of a field, of a field; `#n` counts fields.
pub(super) fn bit_offset(ctx: &Ctx<'_>, text: &[u8], field_bits: Option<u32>) -> Result<u64, CmdError> {
    let end = 8 * max_string_bytes(ctx) as i64;
    let number = match (field_bits, text.strip_prefix(b"#")) {
        (Some(bits), Some(index)) => parse_i64(index).map(|n| n.wrapping_mul(i64::from(bits))),
        _ => parse_i64(text),
    };
    match number {
        Some(offset) if (0..end).contains(&offset) => Ok(offset as u64),
        _ => Err("ERR bit offset is not an integer or out of range".into()),
    }
}

/// The byte of a bit; none if it is out of range, which the command says.
fn byte_of(text: &[u8]) -> i64 {
    parse_i64(text).map_or(i64::MAX, |bit| bit.max(0) / 8)
}

fn bit_read(args: &Args<'_>, _: usize) -> Reach {
    let byte = byte_of(args.at(2));
    Reach::Read { first: byte, last: byte }
}

fn bit_written(args: &Args<'_>, _: usize) -> Reach {
    Reach::Write { offset: byte_of(args.at(2)) as u64, len_bytes: 1 }
}

/// Makes a key hold a string of at least `byte_count` bytes, zeros added, in the raw encoding. Returns whether
/// that changed its length.
pub(super) fn make_room(
    ctx: &mut Ctx<'_>,
    db: DbId,
    key: &Key<'_>,
    byte_count: u64,
) -> Result<bool, CmdError> {
    let entry = ctx.worker.entry(db, key)?;
    entry.map_or(Ok(()), |entry| entry.must_be(ValueType::String))?;
    match entry {
        Some(entry) if entry.value_bytes >= byte_count => {
            if entry.encoding != Some(Encoding::Raw) {
                ctx.worker.string_at(db, key).write_range(0, &[])?;
            }
            Ok(false)
        }
        _ => {
            ctx.worker.string_at(db, key).write_range(byte_count - 1, &[0])?;
            Ok(true)
        }
    }
}

/// A byte of a string, zero beyond its end.
fn byte_at(value: &StrRef<'_>, index: u64) -> u8 {
    let mut byte = 0;
    value.chunks(index, index + 1, |chunk| byte = chunk.first().copied().unwrap_or(byte));
    byte
}

pub fn setbit(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let offset = bit_offset(ctx, args.at(2), None)?;
    let new = match parse_i64(args.at(3)) {
        Some(bit @ (0 | 1)) => bit as u8,
        _ => return Err("ERR bit is not an integer or out of range".into()),
    };
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let (index, shift) = (offset / 8, 7 - offset % 8);
    let look = |value: StrRef<'_>| (value.len(), value.encoding(), byte_at(&value, index));
    let found = ctx.worker.string_at(db, &key).get_part(|_| index..index + 1, look)?;
    let (old_byte, is_within, is_raw) = match found {
        Some((len, encoding, byte)) => (byte, index < len, encoding == Encoding::Raw),
        None => (0, false, false),
    };
    let old = old_byte >> shift & 1;
    if old != new || !is_within {
        ctx.worker.string_at(db, &key).write_range(index, &[old_byte & !(1 << shift) | new << shift])?;
    } else if !is_raw {
        // Only the encoding changes, of which nobody hears.
        ctx.worker.string_at(db, &key).write_range(0, &[])?;
    }
    ctx.reply.int(i64::from(old));
    Ok(())
}

pub fn getbit(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let offset = bit_offset(ctx, args.at(2), None)?;
    let key = ctx.key(args, 1);
    let index = offset / 8;
    let byte = ctx
        .worker
        .string_at(ctx.client.db, &key)
        .get_part(|_| index..index + 1, |value| byte_at(&value, index))?;
    ctx.looked_up(&key, byte.is_some());
    ctx.reply.int(i64::from(byte.unwrap_or(0) >> (7 - offset % 8) & 1));
    Ok(())
}

/// A range of bits: bytes `first..=last`, of which the first and the last may count in part.
struct BitRange {
    first: u64,
    last: u64,
    first_mask: u8,
    last_mask: u8,
}

impl BitRange {
    fn of_bits(first: u64, last: u64) -> BitRange {
        let (first_mask, last_mask) = (0xff >> (first % 8), !(0x7f_u8 >> (last % 8)));
        BitRange { first: first / 8, last: last / 8, first_mask, last_mask }
    }

    fn of_bytes(first: u64, last: u64) -> BitRange {
        BitRange { first, last, first_mask: 0xff, last_mask: 0xff }
    }

    /// Calls `f` with the offset in bits and the bytes of each piece. A byte that counts in part comes on its
    /// own, its other bits set to those of `filler`.
    fn pieces(&self, value: &StrRef<'_>, filler: u8, mut f: impl FnMut(u64, &[u8])) {
        let mut at = self.first;
        value.chunks(self.first, self.last + 1, |chunk| {
            self.pieces_of(at, chunk, filler, &mut f);
            at += chunk.len() as u64;
        });
    }

    /// The same for the bytes of the range from byte `at` of the string on.
    fn pieces_of(&self, mut at: u64, mut chunk: &[u8], filler: u8, f: &mut impl FnMut(u64, &[u8])) {
        while let [byte, rest @ ..] = chunk {
            let first_mask = if at == self.first { self.first_mask } else { 0xff };
            let last_mask = if at == self.last { self.last_mask } else { 0xff };
            let mask = first_mask & last_mask;
            if mask != 0xff {
                f(at * 8, &[byte & mask | filler & !mask]);
                (at, chunk) = (at + 1, rest);
                continue;
            }
            let before_last = self.last.saturating_sub(at).max(1) as usize;
            let (whole, rest) = chunk.split_at(chunk.len().min(before_last));
            f(at * 8, whole);
            (at, chunk) = (at + whole.len() as u64, rest);
        }
    }

    fn bytes(&self) -> Range<u64> {
        self.first..self.last + 1
    }
}

/// `BIT` or `BYTE`, the unit of a range.
fn is_in_bits(args: &Args<'_>, index: usize) -> Result<bool, CmdError> {
    match args.get(index) {
        None => Ok(false),
        Some(word) if word.eq_ignore_ascii_case(b"BIT") => Ok(true),
        Some(word) if word.eq_ignore_ascii_case(b"BYTE") => Ok(false),
        Some(_) => Err(errors::SYNTAX.into()),
    }
}

/// The part of a string of `len` bytes that a range is about.
fn resolve(start: i64, end: i64, is_bits: bool, len: u64) -> Option<BitRange> {
    if is_bits {
        clamp(start, end, len * 8).map(|(first, last)| BitRange::of_bits(first, last))
    } else {
        clamp(start, end, len).map(|(first, last)| BitRange::of_bytes(first, last))
    }
}

pub fn bitcount(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    // Redis looks the key up before it looks at the range.
    if !is_there_or_begun(ctx, &key)? {
        ctx.reply.int(0);
        return Ok(());
    }
    let (start, end) = match args.len() {
        2 => (0, -1),
        4 | 5 => (integer(args.at(2))?, integer(args.at(3))?),
        _ => return Err(errors::SYNTAX.into()),
    };
    // The unit is looked at last, and not for a range that is empty as it stands.
    if start < 0 && end < 0 && start > end {
        ctx.reply.int(0);
        return Ok(());
    }
    let is_bits = is_in_bits(args, 4)?;
    let wanted = |len| resolve(start, end, is_bits, len).map_or(0..0, |range| range.bytes());
    let look = |at: At<'_>, bytes: &[u8]| {
        if let Some(range) = resolve(start, end, is_bits, at.value_bytes) {
            let add = &mut |_: u64, bytes: &[u8]| *at.count += count_ones(bytes);
            range.pieces_of(range.first + at.done_bytes, bytes, 0, add);
        }
        false
    };
    if let Some((_, count)) = walk(ctx, &key, wanted, look)? {
        ctx.looked_up(&key, true);
        ctx.reply.int(count as i64);
        return Ok(());
    }
    let mut count = 0;
    let found = ctx.worker.string_at(db, &key).get_part(wanted, |value| {
        if let Some(range) = resolve(start, end, is_bits, value.len()) {
            range.pieces(&value, 0, |_, bytes| count += count_ones(bytes));
        }
    })?;
    ctx.looked_up(&key, found.is_some());
    ctx.reply.int(count as i64);
    Ok(())
}

/// Whether there is a key, which has to be a string whatever the other arguments are, or the command has begun to look at
/// its value already; one that is not there is counted.
fn is_there_or_begun(ctx: &mut Ctx<'_>, key: &Key<'_>) -> Result<bool, CmdError> {
    if ctx.client.value_walk.is_some() {
        return Ok(true);
    }
    let entry = ctx.worker.entry(ctx.client.db, key)?;
    entry.map_or(Ok(()), |entry| entry.must_be(ValueType::String))?;
    let is_there = entry.is_some();
    if !is_there {
        ctx.looked_up(key, false);
    }
    Ok(is_there)
}

fn count_ones(bytes: &[u8]) -> u64 {
    let ones = |bytes: &[u8]| bytes.iter().map(|b| b.count_ones()).sum::<u32>();
    let words = bytes.chunks_exact(8);
    let rest = ones(words.remainder());
    words.map(|w| u64::from(ones(w))).sum::<u64>() + u64::from(rest)
}

pub fn bitpos(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let wanted = match integer(args.at(2))? {
        bit @ (0 | 1) => bit as u8,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    if !is_there_or_begun(ctx, &key)? {
        // A missing key is an endless array of zeros.
        ctx.reply.int(if wanted == 1 { -1 } else { 0 });
        return Ok(());
    }
    let (start, end, is_bits) = match args.len() {
        3 => (0, None, false),
        4 => (integer(args.at(3))?, None, false),
        5 | 6 => {
            let start = integer(args.at(3))?;
            let is_bits = is_in_bits(args, 5)?;
            (start, Some(integer(args.at(4))?), is_bits)
        }
        _ => return Err(errors::SYNTAX.into()),
    };
    let range_of = |len| resolve(start, end.unwrap_or(-1), is_bits, len);
    let bytes = |len| range_of(len).map_or(0..0, |range| range.bytes());
    let filler = if wanted == 1 { 0 } else { 0xff };
    // Without an end the string goes on with zeros.
    let behind = |len: u64| (wanted == 0 && end.is_none()).then_some(len * 8);
    // The walk counts what comes before it, and the one found.
    let look = |at: At<'_>, bytes: &[u8]| {
        let mut found = None;
        if let Some(range) = range_of(at.value_bytes) {
            let look = &mut |at, bytes: &[u8]| found = found.or_else(|| find(bytes, wanted).map(|p| at + p));
            range.pieces_of(range.first + at.done_bytes, bytes, filler, look);
        }
        *at.count = found.map_or(0, |at| at + 1);
        found.is_some()
    };
    let position = match walk(ctx, &key, bytes, look)? {
        Some((len, 0)) => Some(behind(len)),
        Some((_, count)) => Some(Some(count - 1)),
        None => ctx.worker.string_at(db, &key).get_part(bytes, |value| {
            let range = range_of(value.len())?;
            let mut found = None;
            range.pieces(&value, filler, |at, bytes| {
                found = found.or_else(|| find(bytes, wanted).map(|p| at + p))
            });
            found.or_else(|| behind(value.len()))
        })?,
    };
    ctx.looked_up(&key, position.is_some());
    ctx.reply.int(position.flatten().map_or(-1, |p| p as i64));
    Ok(())
}

/// Offset in bits of the first bit that is `wanted`.
fn find(bytes: &[u8], wanted: u8) -> Option<u64> {
    let other = if wanted == 1 { 0 } else { 0xff };
    let skipped = 8 * bytes.chunks_exact(8).take_while(|word| *word == [other; 8]).count();
    let at = skipped + bytes[skipped..].iter().position(|&b| b != other)?;
    Some(at as u64 * 8 + u64::from((bytes[at] ^ other).leading_zeros()))
}
