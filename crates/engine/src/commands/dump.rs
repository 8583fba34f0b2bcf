//! `DUMP` and `RESTORE`: a value as the payload that Redis servers exchange.

use std::sync::atomic::Ordering;

use stillframe_store::rdb::{self, PayloadError, RdbString};
use stillframe_store::{Access, Deadline, Encoding, Fault, Key, NewValue, OpError, Sending, UnixMillis};

use super::string::sends_whole;
use super::walk::go_on;
use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::stream::{self, Shape};
use crate::persistence::collections::{held, PayloadForm};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::elements::Batch;
use crate::state::notify::SILENT;
use crate::state::restoring::{Restored, Restoring};
use crate::state::session::Ahead;
use crate::text::number::encode;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("dump", 2, flag::READONLY, Touch::Steps, dump).beyond_keys().acl(acl::KEYSPACE).reaching(sends_whole)
        .doc(Group::Generic, "2.6.0", "Return a serialized version of the value stored at the specified key.", "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
    Command::new("restore", -4, flag::WRITE | flag::DENYOOM, Touch::Of(restored), restore).event("restore").acl(acl::KEYSPACE | acl::DANGEROUS)
        .receives(|index| index == PAYLOAD).ahead_of_exec(take_apart)
        .doc(Group::Generic, "2.6.0", "Create a key using the provided serialized value, previously obtained using DUMP.", "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N)).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE)]),
];

/// The argument of `RESTORE` that is the payload.
const PAYLOAD: usize = 3;
/// What the payload of a string begins with.
const STRING: u8 = 0;
/// From here on a value is sent from where it lies, not compressed, where its pages may be missing.
const LARGE_BYTES: u64 = 1 << 20;
/// The payload of a collection that has more is written beside other commands, if memory is bounded.
const GATHERED_BYTES_MAX: u64 = 4 << 20;

pub fn dump(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    if let Some(value) = begin_large(ctx, &key)? {
        ctx.looked_up(&key, true);
        ctx.reply.bulk_payload(value);
        return Ok(());
    }
    let value = match ctx.worker.get(ctx.client.db, &key, |value| held(&value)) {
        Err(OpError::WrongType) => return dump_collection(ctx, &key),
        value => value?,
    };
    ctx.looked_up(&key, value.is_some());
    match value {
        None => ctx.reply.null(),
        Some(value) => ctx.reply.bulk(&PayloadForm::of(&ctx.config.settings).string(value.as_ref())),
    }
    Ok(())
}

/// Replies with the payload of a collection, or has it written beside other commands.
fn dump_collection(ctx: &mut Ctx<'_>, key: &Key<'_>) -> CmdResult {
    let Some(entry) = ctx.worker.entry(ctx.client.db, key)? else {
        return Err(errors::NO_SUCH_KEY.into());
    };
    let element_count = ctx.worker.collection_at(ctx.client.db, key).len()?;
    let form = PayloadForm::of(&ctx.config.settings);
    if has_it_written(ctx, key, element_count, &form)? {
        ctx.looked_up(key, true);
        return Ok(());
    }
    let batch = Batch::of_key(ctx.worker, ctx.client.db, key)?.ok_or(errors::NO_SUCH_KEY)?;
    ctx.looked_up(key, true);
    let encoding = entry.encoding.unwrap_or(Encoding::HashTable);
    let payload =
        batch.payload(encoding, &form.limits, form.compresses).map_err(|error| format!("ERR {error}"))?;
    ctx.reply.bulk(&payload);
    Ok(())
}

/// Has the payload of a large collection written beside other commands, if that may be.
fn has_it_written(
    ctx: &mut Ctx<'_>,
    key: &Key<'_>,
    element_count: u64,
    form: &PayloadForm,
) -> Result<bool, CmdError> {
    let shape = || Shape::Payload(form.clone());
    if stream::begin(ctx, key.bytes, element_count, shape()) {
        return Ok(true);
    }
    let is_bounded = ctx.server.store.memory_page_count().is_some();
    Ok(is_bounded
        && ctx.worker.collection_at(ctx.client.db, key).exceeds(GATHERED_BYTES_MAX)?
        && stream::begin_any(ctx, key.bytes, shape()))
}

/// Begins to read a large value in parts, if its pages may be missing.
fn begin_large(ctx: &mut Ctx<'_>, key: &Key<'_>) -> Result<Option<Sending>, CmdError> {
    let db = ctx.client.db;
    if !ctx.reply.out.sends_values() || !ctx.server.store.may_miss_pages() {
        return Ok(None);
    }
    match ctx.worker.entry(db, key)? {
        Some(entry) if entry.value_bytes >= LARGE_BYTES => {}
        _ => return Ok(None),
    }
    Ok(ctx.worker.string_at(db, key).begin_sending(|len| 0..len)?)
}

/// The options of `RESTORE`. `IDLETIME` and `FREQ` are used if `maxmemory-policy` asks for them.
#[derive(Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
    idle_time: Option<Access>,
    frequency: Option<Access>,
}

fn parse(args: &Args<'_>) -> Result<Options, CmdError> {
    let mut options = Options::default();
    let mut index = 4;
    while index < args.len() {
        let has_value = index + 1 < args.len();
        if args.is(index, "REPLACE") {
            options.replaces = true;
        } else if args.is(index, "ABSTTL") {
            options.is_absolute = true;
        } else if args.is(index, "IDLETIME") && has_value && options.frequency.is_none() {
            let Ok(seconds) = u64::try_from(integer(args.at(index + 1))?) else {
                return Err("ERR Invalid IDLETIME value, must be >= 0".into());
            };
            options.idle_time = Some(Access::Idle { seconds });
            index += 1;
        } else if args.is(index, "FREQ") && has_value && options.idle_time.is_none() {
            let Ok(count) = u8::try_from(integer(args.at(index + 1))?) else {
                return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".into());
            };
            options.frequency = Some(Access::Frequency { count });
            index += 1;
        } else {
            return Err(errors::SYNTAX.into());
        }
        index += 1;
    }
    Ok(options)
}

/// A string is put there in one operation. For a collection what was there makes way; then its elements come, and its deadline.
fn restored(args: &Args<'_>) -> Touch {
    match args.at(PAYLOAD).first() {
        Some(&STRING) => Touch::OneOperation,
        _ => Touch::Steps,
    }
}

pub fn restore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = parse(args)?;
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    if !options.replaces && ctx.worker.entry(db, &key)?.is_some() {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let ttl = integer(args.at(2))?;
    if ttl < 0 {
        return Err("ERR Invalid TTL value, must be >= 0".into());
    }
    let payload = Payload::of(ctx, args)?;
    let now = ctx.worker.now();
    let deadline = deadline(ttl, options.is_absolute, now);
    if deadline.is_some_and(|deadline| deadline <= now) {
        if options.replaces {
            ctx.worker.database(db).remove_in_any_case(&key)?;
        }
    } else {
        match payload {
            Payload::Collection(elements) => restore_collection(ctx, &key, elements, deadline)?,
            payload => {
                let value = payload.value()?;
                ctx.worker.set(db, &key, value, deadline.map_or(Deadline::Clear, Deadline::At))?;
            }
        }
        if let Some(access) = options.idle_time.or(options.frequency) {
            ctx.worker.set_access(db, &key, access);
        }
    }
    ctx.reply.ok();
    Ok(())
}

/// Before a `RESTORE` whose payload has come into pages: takes it apart, part by part.
pub fn take_apart(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let Some(payload) = args.incoming(PAYLOAD) else { return Ok(()) };
    if let Some(Ahead::Gathered(batch)) = ctx.client.ahead.as_deref_mut() {
        return go_on(batch.place(ctx.worker));
    }
    let (options, db, key) = (parse(args)?, ctx.db(), ctx.key(args, 1));
    if !options.replaces && ctx.worker.entry(db, &key)?.is_some() {
        // The command says so.
        return Ok(());
    }
    if ctx.client.ahead.is_none() {
        let begun = Restoring::begin(ctx.worker, payload)?;
        ctx.client.ahead = begun.map(|begun| Box::new(Ahead::Restored(begun)));
    }
    let Some(Ahead::Restored(restoring)) = ctx.client.ahead.as_deref_mut() else { return Ok(()) };
    let is_done = restoring.step();
    if let Some(ahead) = restoring.ahead() {
        ctx.server.store.load(ahead, Box::new(|| ()));
    }
    if matches!(is_done, Ok(true)) {
        if let Ok(Restored::Collection { bytes, version }) = restoring.restored() {
            // What is wrong with it the command says.
            if let Ok(batch) = gathered(bytes, version) {
                ctx.client.ahead = Some(Box::new(Ahead::Gathered(batch)));
                return Err(Fault::pause().into());
            }
        }
    }
    go_on(is_done)
}

/// The elements of a collection that has been taken apart.
fn gathered(bytes: &[u8], version: u32) -> Result<Batch, PayloadError> {
    match rdb::open_gathered(bytes, version)? {
        rdb::Payload::Collection(elements) => Batch::of_payload(*elements),
        rdb::Payload::String(_) => Err(PayloadError::BadData),
    }
}

/// Puts a collection in the place of whatever the key has, as one change.
fn restore_collection(
    ctx: &mut Ctx<'_>,
    key: &Key<'_>,
    mut elements: Batch,
    deadline: Option<UnixMillis>,
) -> CmdResult {
    let (db, before) = (ctx.db(), ctx.worker.change_count());
    ctx.worker.make_way(db, key, elements.lens_bytes())?;
    elements.store(ctx.worker, db, key)?;
    if let Some(deadline) = deadline {
        ctx.server.notifier.name_stored(ctx.worker, Some(SILENT));
        ctx.worker.set_deadline(db, key, Some(deadline))?;
    }
    ctx.count_as(before, 1);
    Ok(())
}

/// What is to be restored.
enum Payload {
    Held(RdbString),
    Collection(Batch),
    /// It has been taken apart in its pages.
    Pages(Box<Restoring>),
}

impl Payload {
    fn of(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<Payload, CmdError> {
        let Some(incoming) = args.incoming(PAYLOAD) else {
            let open = match ctx.server.skips_checksums.load(Ordering::Relaxed) {
                true => rdb::open_unchecked_payload,
                false => rdb::open_payload,
            };
            return match open(args.at(PAYLOAD)).map_err(payload_error)? {
                rdb::Payload::String(value) => Ok(Payload::Held(value)),
                rdb::Payload::Collection(elements) => {
                    Ok(Payload::Collection(Batch::of_payload(*elements).map_err(payload_error)?))
                }
            };
        };
        let begun = match ctx.client.ahead.take().map(|ahead| *ahead) {
            Some(Ahead::Restored(restoring)) => Some(restoring),
            Some(Ahead::Gathered(batch)) => return Ok(Payload::Collection(batch)),
            _ => Restoring::begin(ctx.worker, incoming)?,
        };
        let mut restoring = begun.ok_or("ERR too many large values are on their way at a time, try again")?;
        // Nothing is left to do, unless all pages are in memory.
        while !restoring.step()? {}
        if let Ok(Restored::Collection { bytes, version }) = restoring.restored() {
            return match rdb::open_gathered(bytes, version).map_err(payload_error)? {
                rdb::Payload::Collection(elements) => {
                    Ok(Payload::Collection(Batch::of_payload(*elements).map_err(payload_error)?))
                }
                rdb::Payload::String(value) => Ok(Payload::Held(value)),
            };
        }
        Ok(Payload::Pages(Box::new(restoring)))
    }

    fn value(&self) -> Result<NewValue<'_>, CmdError> {
        Ok(match self {
            Payload::Held(RdbString::Int(int)) => NewValue::Int(*int),
            Payload::Held(RdbString::Bytes(bytes)) => encode(bytes),
            Payload::Collection(_) => return Err(payload_error(PayloadError::BadData)),
            Payload::Pages(restoring) => match restoring.restored().map_err(payload_error)? {
                Restored::Int(int) => NewValue::Int(int),
                Restored::Held(bytes) => encode(bytes),
                Restored::Pages(incoming) => NewValue::Incoming(incoming),
                Restored::Collection { .. } => return Err(payload_error(PayloadError::BadData)),
            },
        })
    }
}

/// A sum that overflows lies in the past, as in Redis.
fn deadline(ttl: i64, is_absolute: bool, now: UnixMillis) -> Option<UnixMillis> {
    match ttl {
        0 => None,
        _ if is_absolute => Some(ttl),
        _ => Some(ttl.wrapping_add(now)),
    }
}

fn payload_error(error: PayloadError) -> CmdError {
    format!("ERR {error}").into()
}
