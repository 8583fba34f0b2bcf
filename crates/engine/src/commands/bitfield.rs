//! `BITFIELD`: integers of any width at any bit.

use stillframe_store::{DbId, Key, Reach, StrRef, ValueType};

use super::bitmap::{bit_offset, make_room};
use super::walk::leave_to_readers;
use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::number::parse_i64;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("bitfield", -2, flag::WRITE | flag::DENYOOM, Touch::Steps, bitfield).event("setbit").acl(acl::BITMAP).ahead(leave_to_readers).reaching(fields)
        .doc(Group::Bitmap, "3.2.0", "Perform arbitrary bitfield integer operations on strings", "O(1) for each subcommand specified")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE | key_flag::VARIABLE_FLAGS).notes("This command allows both access and modification of the key")])
        .flags_fn(key_flags),
    Command::new("bitfield_ro", -2, flag::READONLY | flag::FAST, Touch::Steps, bitfield_ro).acl(acl::BITMAP).reaching(fields)
        .doc(Group::Bitmap, "6.0.0", "Perform arbitrary bitfield integer operations on strings. Read-only variant of BITFIELD", "O(1) for each subcommand specified")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
];

const INVALID_TYPE: &str =
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";

/// What a call of `BITFIELD` does with its key, as `COMMAND GETKEYSANDFLAGS` tells it. What cannot be read counts as a
/// write.
pub fn key_flags(args: &Args<'_>) -> u32 {
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        if args.is(at, "GET") && more >= 2 {
            at += 3;
        } else if args.is(at, "OVERFLOW") && more >= 1 {
            at += 2;
        } else {
            return key_flag::RW | key_flag::ACCESS | key_flag::UPDATE;
        }
    }
    key_flag::RO | key_flag::ACCESS
}

/// From the first field to the last. What is wrong the command says.
fn fields(args: &Args<'_>, _: usize) -> Reach {
    let (mut start, mut end) = (i64::MAX, 0);
    for at in 2..args.len().saturating_sub(1) {
        let (bits, offset) = (args.at(at).get(1..).and_then(parse_i64), args.at(at + 1));
        let index = offset.strip_prefix(b"#");
        if let (Some(bits @ 1..=64), Some(number)) = (bits, parse_i64(index.unwrap_or(offset))) {
            let first = if index.is_some() { number.saturating_mul(bits) } else { number }.max(0);
            start = start.min(first / 8);
            end = end.max(first.saturating_add(bits) / 8 + 1);
        }
    }
    match u64::try_from(end - start.min(end)) {
        Ok(len_bytes @ 1..) => Reach::Write { offset: start as u64, len_bytes },
        _ => Reach::Nothing,
    }
}

/// An integer of 1 to 64 bits (63 if unsigned), at an offset in bits.
#[derive(Clone, Copy)]
struct Field {
    is_signed: bool,
    bits: u32,
    offset: u64,
}

#[derive(Clone, Copy)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

struct Operation {
    field: Field,
    action: Action,
    overflow: Overflow,
}

impl Field {
    fn parse(ctx: &Ctx<'_>, type_text: &[u8], offset_text: &[u8]) -> Result<Field, CmdError> {
        let (is_signed, bits) = match type_text {
            [b'i', bits @ ..] => (true, parse_i64(bits)),
            [b'u', bits @ ..] => (false, parse_i64(bits)),
            _ => return Err(INVALID_TYPE.into()),
        };
        let max_bits = if is_signed { 64 } else { 63 };
        let bits = match bits {
            Some(bits) if (1..=max_bits).contains(&bits) => bits as u32,
            _ => return Err(INVALID_TYPE.into()),
        };
        Ok(Field { is_signed, bits, offset: bit_offset(ctx, offset_text, Some(bits))? })
    }

    fn first_byte(&self) -> u64 {
        self.offset / 8
    }

    /// End of the last byte that holds a bit of the field.
    fn end_byte(&self) -> u64 {
        (self.offset + u64::from(self.bits)).div_ceil(8)
    }

    /// Places to shift the field in the 16 bytes from [`Field::first_byte`] on, read as one number.
    fn shift(&self) -> u32 {
        128 - self.bits - (self.offset % 8) as u32
    }

    fn mask(&self) -> u128 {
        (1 << self.bits) - 1
    }

    fn read(&self, window: u128) -> i128 {
        let raw = (window >> self.shift() & self.mask()) as i128;
        let is_negative = self.is_signed && raw >> (self.bits - 1) & 1 == 1;
        raw - if is_negative { 1 << self.bits } else { 0 }
    }

    fn write(&self, window: u128, value: i128) -> u128 {
        let mask = self.mask() << self.shift();
        window & !mask | ((value as u128 & self.mask()) << self.shift())
    }

    fn min(&self) -> i128 {
        if self.is_signed {
            -(1 << (self.bits - 1))
        } else {
            0
        }
    }

    fn max(&self) -> i128 {
        if self.is_signed {
            (1 << (self.bits - 1)) - 1
        } else {
            (1 << self.bits) - 1
        }
    }

    /// The value that is stored for `value`; `None` if it does not fit and must not be changed.
    fn fit(&self, value: i128, overflow: Overflow) -> Option<i128> {
        if (self.min()..=self.max()).contains(&value) {
            return Some(value);
        }
        match overflow {
            Overflow::Fail => None,
            Overflow::Saturate => Some(value.clamp(self.min(), self.max())),
            Overflow::Wrap => Some(self.read(self.write(0, value))),
        }
    }

    /// Redis takes the distance to the maximum in 64 bits. For numbers far below the minimum it wraps around,
    /// and the field saturates at the wrong end.
    fn saturates_upwards(&self, number: i64, overflow: Overflow) -> bool {
        let distance = (self.max() as i64).wrapping_sub(number);
        matches!(overflow, Overflow::Saturate)
            && self.bits < 64
            && i128::from(number) < self.min()
            && distance < 0
    }
}

fn parse(ctx: &Ctx<'_>, args: &Args<'_>) -> Result<Vec<Operation>, CmdError> {
    let mut operations = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut index = 2;
    while index < args.len() {
        let left = args.len() - index - 1;
        if args.is(index, "OVERFLOW") && left >= 1 {
            overflow = match args.at(index + 1) {
                word if word.eq_ignore_ascii_case(b"WRAP") => Overflow::Wrap,
                word if word.eq_ignore_ascii_case(b"SAT") => Overflow::Saturate,
                word if word.eq_ignore_ascii_case(b"FAIL") => Overflow::Fail,
                _ => return Err("ERR Invalid OVERFLOW type specified".into()),
            };
            index += 2;
            continue;
        }
        let action: fn(i64) -> Action = match args.at(index) {
            word if word.eq_ignore_ascii_case(b"GET") && left >= 2 => |_| Action::Get,
            word if word.eq_ignore_ascii_case(b"SET") && left >= 3 => Action::Set,
            word if word.eq_ignore_ascii_case(b"INCRBY") && left >= 3 => Action::Add,
            _ => return Err(errors::SYNTAX.into()),
        };
        let field = Field::parse(ctx, args.at(index + 1), args.at(index + 2))?;
        let mut action = action(0);
        index += 3;
        if let Action::Set(number) | Action::Add(number) = &mut action {
            *number = integer(args.at(index))?;
            index += 1;
        }
        operations.push(Operation { field, action, overflow });
    }
    Ok(operations)
}

pub fn bitfield(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let operations = parse(ctx, args)?;
    run(ctx, args, &operations, true)
}

pub fn bitfield_ro(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let operations = parse(ctx, args)?;
    if operations.iter().any(|op| !matches!(op.action, Action::Get)) {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    run(ctx, args, &operations, false)
}

/// Runs the operations. A command that only reads has a key of a wrong type counted where its error is.
fn run(ctx: &mut Ctx<'_>, args: &Args<'_>, operations: &[Operation], counts_wrong_type: bool) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let before = ctx.worker.change_count();
    if operations.iter().all(|op| matches!(op.action, Action::Get)) {
        let entry = ctx.worker.entry(db, &key)?;
        let is_string = entry.is_none_or(|entry| entry.value_type == ValueType::String);
        if is_string || counts_wrong_type {
            ctx.looked_up(&key, entry.is_some());
        }
        entry.map_or(Ok(()), |entry| entry.must_be(ValueType::String))?;
    }
    let writes = operations.iter().filter(|op| !matches!(op.action, Action::Get));
    let has_grown = match writes.map(|op| op.field.end_byte()).max() {
        Some(byte_count) => {
            super::string::check_len(ctx, byte_count, 0)?;
            make_room(ctx, db, &key, byte_count)?
        }
        None => false,
    };
    ctx.reply.array(operations.len());
    let mut change_count = 0;
    for operation in operations {
        // In a value that has grown a write counts whatever it writes; one that overflow refuses never does.
        let counts = match apply(ctx, db, &key, operation)? {
            Applied::Changed => true,
            Applied::Same => has_grown,
            Applied::Nothing => false,
        };
        change_count += u64::from(counts);
    }
    ctx.count_as(before, change_count);
    Ok(())
}

/// What an operation did to the value.
enum Applied {
    Changed,
    /// Written as it was.
    Same,
    /// Read only, or refused by `OVERFLOW FAIL`.
    Nothing,
}

/// Runs one operation and replies.
fn apply(ctx: &mut Ctx<'_>, db: DbId, key: &Key<'_>, operation: &Operation) -> Result<Applied, CmdError> {
    let field = &operation.field;
    let (first, end) = (field.first_byte(), field.end_byte());
    let (mut bytes, mut len) = ([0u8; 16], 0);
    let read = |value: StrRef<'_>| {
        value.chunks(first, end, |chunk| {
            bytes[len..len + chunk.len()].copy_from_slice(chunk);
            len += chunk.len();
        });
    };
    ctx.worker.string_at(db, key).get_part(|_| first..end, read)?;
    let window = u128::from_be_bytes(bytes);
    let old = field.read(window);
    let wanted = match operation.action {
        Action::Get => {
            ctx.reply.int(old as i64);
            return Ok(Applied::Nothing);
        }
        // An unsigned field takes the number's two's complement.
        Action::Set(number) if !field.is_signed => i128::from(number as u64),
        Action::Set(number) if field.saturates_upwards(number, operation.overflow) => field.max(),
        Action::Set(number) => i128::from(number),
        Action::Add(number) => old + i128::from(number),
    };
    let Some(new) = field.fit(wanted, operation.overflow) else {
        ctx.reply.null();
        return Ok(Applied::Nothing);
    };
    if new != old {
        let bytes = field.write(window, new).to_be_bytes();
        ctx.worker.string_at(db, key).write_range(first, &bytes[..(end - first) as usize])?;
    }
    ctx.reply.int(if matches!(operation.action, Action::Set(_)) { old } else { new } as i64);
    Ok(if new == old { Applied::Same } else { Applied::Changed })
}
