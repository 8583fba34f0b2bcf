//! HyperLogLog: estimates of how many different elements there are.

use stillframe_store::{Deadline, Encoding, Key, NewValue, Reach, StrRef};

use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::hyperloglog::{
    self, Changed, Corrupted, Opcode, Registers, Sketch, COUNT, HEADER_BYTES, SPARSE_MOST_BYTES,
};
use crate::protocol::args::Args;
use crate::state::notify::SILENT;

/// As Redis calls any change of a sketch.
const EVENT: &str = "pfadd";

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("pfadd", -2, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::Steps, pfadd).event(EVENT).acl(acl::HYPERLOGLOG).reaching(registers)
        .doc(Group::HyperLogLog, "2.8.9", "Adds the specified elements to the specified HyperLogLog.", "O(1) to add every element.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("pfcount", -2, flag::READONLY | flag::MAY_REPLICATE, Touch::Steps, pfcount).event(SILENT).acl(acl::HYPERLOGLOG).reaching(registers)
        .doc(Group::HyperLogLog, "2.8.9", "Return the approximated cardinality of the set(s) observed by the HyperLogLog at key(s).", "O(1) with a very small average constant time when called with a single key. O(N) with N being the number of keys, and much bigger constant times, when called with multiple keys.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RW | key_flag::ACCESS).notes("RW because it may change the internal representation of the key, and propagate to replicas")]),
    Command::new("pfdebug", 3, flag::WRITE | flag::DENYOOM | flag::ADMIN, Touch::Steps, pfdebug).event(SILENT).acl(acl::HYPERLOGLOG).reaching(registers)
        .doc(Group::HyperLogLog, "2.8.9", "Internal commands for debugging HyperLogLog values", "N/A")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RW | key_flag::ACCESS)]),
    Command::new("pfmerge", -2, flag::WRITE | flag::DENYOOM, Touch::Steps, pfmerge).reading().event(EVENT).acl(acl::HYPERLOGLOG).reaching(registers)
        .doc(Group::HyperLogLog, "2.8.9", "Merge N different HyperLogLogs into a single one.", "O(N) to merge N HyperLogLogs, but with high constant times.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::INSERT), KeySpec::range(2, -1, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("pfselftest", 1, flag::ADMIN, Touch::Nothing, pfselftest).acl(acl::HYPERLOGLOG)
        .doc(Group::HyperLogLog, "2.8.9", "An internal command for testing HyperLogLog values", "N/A"),
];

const NOT_A_SKETCH: &str = "WRONGTYPE Key is not a valid HyperLogLog string value.";
const CORRUPTED: &str = "INVALIDOBJ Corrupted HLL object detected";

/// A sketch that is longer is none; its length is looked at, not its end.
const LOOKED_AT_BYTES: u64 = SPARSE_MOST_BYTES as u64 + 1;

fn registers(_: &Args<'_>, _: usize) -> Reach {
    Reach::Read { first: 0, last: LOOKED_AT_BYTES as i64 - 1 }
}

impl From<Corrupted> for CmdError {
    fn from(_: Corrupted) -> Self {
        CORRUPTED.into()
    }
}

/// A sketch as it lies under its key.
struct Stored {
    sketch: Sketch,
    is_raw: bool,
}

/// Reads the sketch of a key, at most its first `max_bytes`.
fn load(ctx: &mut Ctx<'_>, key: &Key<'_>, max_bytes: u64) -> Result<Option<Stored>, CmdError> {
    let wanted = |len: u64| 0..len.min(max_bytes);
    let copy = |value: StrRef<'_>| {
        let end = wanted(value.len()).end;
        let mut bytes = Vec::with_capacity(end as usize);
        value.chunks(0, end, |chunk| bytes.extend_from_slice(chunk));
        (bytes, value.len(), value.encoding())
    };
    let found = ctx.worker.string_at(ctx.client.db, key).get_part(wanted, copy)?;
    let Some((bytes, value_bytes, encoding)) = found else { return Ok(None) };
    let sketch = Sketch::read(bytes, value_bytes).ok_or(NOT_A_SKETCH)?;
    Ok(Some(Stored { sketch, is_raw: encoding == Encoding::Raw }))
}

/// A key that is looked at as if to be changed has its value in the raw encoding from then on.
fn make_raw(ctx: &mut Ctx<'_>, key: &Key<'_>, stored: &Stored) -> CmdResult {
    if !stored.is_raw {
        ctx.worker.string_at(ctx.client.db, key).write_range(0, &[])?;
    }
    Ok(())
}

/// Puts a sketch back, of which the key has what it was read from, or nothing. The deadline stays.
fn store(ctx: &mut Ctx<'_>, key: &Key<'_>, sketch: &mut Sketch) -> CmdResult {
    let db = ctx.client.db;
    let stale = sketch.forget_count();
    match sketch.changed() {
        Changed::All => {
            let value = NewValue::Bytes { bytes: sketch.bytes(), raw: true };
            ctx.worker.set(db, key, value, Deadline::Keep)?;
        }
        changed => {
            if let Changed::Bytes(range) = changed {
                ctx.worker
                    .string_at(db, key)
                    .write_range(range.start as u64, &sketch.bytes()[range.clone()])?;
            }
            if let Some((at, byte)) = stale {
                ctx.worker.string_at(db, key).write_range(at as u64, &[byte])?;
            }
        }
    }
    Ok(())
}

fn sparse_max_bytes(ctx: &Ctx<'_>) -> u64 {
    ctx.config.settings.hll_sparse_max_bytes
}

pub fn pfadd(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (key, before) = (ctx.key(args, 1), ctx.worker.change_count());
    let mut found = load(ctx, &key, LOOKED_AT_BYTES)?;
    let mut change_count = u64::from(found.is_none());
    let mut new = Sketch::empty();
    let sketch = found.as_mut().map_or(&mut new, |stored| &mut stored.sketch);
    let added = args.from(2).try_for_each(|element| {
        change_count += u64::from(sketch.add(element, sparse_max_bytes(ctx))?);
        Ok::<_, Corrupted>(())
    });
    if change_count > 0 {
        store(ctx, &key, sketch)?;
        ctx.count_as(before, change_count);
    } else if let Some(stored) = &found {
        make_raw(ctx, &key, stored)?;
    }
    // What was added until then stays, as in Redis.
    added?;
    ctx.reply.int(i64::from(change_count > 0));
    Ok(())
}

pub fn pfcount(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if args.len() == 2 {
        return count_one(ctx, args);
    }
    let mut all = Registers::default();
    merge(ctx, args, &mut all)?;
    ctx.reply.int(all.count() as i64);
    Ok(())
}

/// As [`load`], counted as a read: as found, too, if it is no sketch.
fn load_to_read(ctx: &mut Ctx<'_>, key: &Key<'_>, len_bytes: u64) -> Result<Option<Stored>, CmdError> {
    let found = load(ctx, key, len_bytes);
    match &found {
        Ok(found) => ctx.looked_up(key, found.is_some()),
        Err(CmdError::Reply(_)) => ctx.stats.looked_up(true),
        Err(CmdError::Store(_)) => {}
    }
    found
}

/// The estimate of one key, which is kept beside its registers.
fn count_one(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let head = load_to_read(ctx, &key, HEADER_BYTES as u64)?;
    let Some(head) = head else {
        ctx.reply.int(0);
        return Ok(());
    };
    if let Some(count) = head.sketch.known_count() {
        make_raw(ctx, &key, &head)?;
        ctx.reply.int(count as i64);
        return Ok(());
    }
    let Some(stored) = load(ctx, &key, LOOKED_AT_BYTES)? else { return Err(NOT_A_SKETCH.into()) };
    let count = stored.sketch.count()?;
    ctx.worker.string_at(ctx.client.db, &key).write_range(COUNT.start as u64, &count.to_le_bytes())?;
    ctx.reply.int(count as i64);
    Ok(())
}

/// Merges the sketches of all keys. Returns whether one of them is dense.
fn merge(ctx: &mut Ctx<'_>, args: &Args<'_>, all: &mut Registers) -> Result<bool, CmdError> {
    let mut is_any_dense = false;
    for index in 1..args.len() {
        let key = ctx.key(args, index);
        let found = load_to_read(ctx, &key, LOOKED_AT_BYTES)?;
        if let Some(stored) = found {
            is_any_dense |= stored.sketch.encoding() == hyperloglog::Encoding::Dense;
            stored.sketch.merge_into(all)?;
        }
    }
    Ok(is_any_dense)
}

pub fn pfmerge(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (target, before) = (ctx.key(args, 1), ctx.worker.change_count());
    let mut all = Registers::default();
    let is_any_dense = merge(ctx, args, &mut all)?;
    let mut sketch = load(ctx, &target, LOOKED_AT_BYTES)?.map_or_else(Sketch::empty, |stored| stored.sketch);
    if is_any_dense {
        sketch.make_dense()?;
    }
    sketch.raise_all(&all, sparse_max_bytes(ctx))?;
    store_merged(ctx, &target, &mut sketch)?;
    ctx.count_as(before, 1);
    ctx.reply.ok();
    Ok(())
}

/// Also a merge that has changed no register is told as one change.
fn store_merged(ctx: &mut Ctx<'_>, key: &Key<'_>, sketch: &mut Sketch) -> CmdResult {
    let is_told = *sketch.changed() != Changed::Nothing || sketch.known_count().is_some();
    store(ctx, key, sketch)?;
    if !is_told {
        let stale = &sketch.bytes()[COUNT.end - 1..COUNT.end];
        ctx.worker.string_at(ctx.client.db, key).write_range(COUNT.end as u64 - 1, stale)?;
    }
    Ok(())
}

pub fn pfdebug(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 2);
    let Some(stored) = load(ctx, &key, LOOKED_AT_BYTES)? else {
        return Err("ERR The specified key does not exist".into());
    };
    make_raw(ctx, &key, &stored)?;
    let mut sketch = stored.sketch;
    let is_sparse = sketch.encoding() == hyperloglog::Encoding::Sparse;
    if args.is(1, "getreg") {
        make_dense(ctx, &key, &mut sketch)?;
        let mut all = Registers::default();
        sketch.merge_into(&mut all)?;
        ctx.reply.array(hyperloglog::REGISTER_COUNT);
        all.iter().for_each(|value| ctx.reply.int(i64::from(value)));
    } else if args.is(1, "decode") {
        if !is_sparse {
            return Err("ERR HLL encoding is not sparse".into());
        }
        ctx.reply.bulk(decoded(&sketch).as_bytes());
    } else if args.is(1, "encoding") {
        ctx.reply.simple(if is_sparse { "sparse" } else { "dense" });
    } else if args.is(1, "todense") {
        make_dense(ctx, &key, &mut sketch)?;
        ctx.reply.int(i64::from(is_sparse));
    } else {
        // As C prints it.
        let name = args.at(1).split(|byte| *byte == 0).next().unwrap_or_default();
        return Err([b"ERR Unknown PFDEBUG subcommand '", name, b"'"].concat().into());
    }
    Ok(())
}

/// Stores a sparse sketch as a dense one; its estimate stays.
fn make_dense(ctx: &mut Ctx<'_>, key: &Key<'_>, sketch: &mut Sketch) -> CmdResult {
    sketch.make_dense()?;
    if *sketch.changed() == Changed::All {
        let value = NewValue::Bytes { bytes: sketch.bytes(), raw: true };
        ctx.worker.set(ctx.client.db, key, value, Deadline::Keep)?;
    }
    Ok(())
}

/// The runs of a sparse sketch, as text.
fn decoded(sketch: &Sketch) -> String {
    let text = |opcode| match opcode {
        Opcode::Zeros { register_count } => format!("z:{register_count}"),
        Opcode::ManyZeros { register_count } => format!("Z:{register_count}"),
        Opcode::Values { value, register_count } => format!("v:{value},{register_count}"),
    };
    sketch.opcodes().map(text).collect::<Vec<_>>().join(" ")
}

pub fn pfselftest(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    hyperloglog::self_test()?;
    ctx.reply.ok();
    Ok(())
}
