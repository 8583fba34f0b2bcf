//! Walking over the keys of a database.

use stillframe_store::{EntryInfo, OpError};

use crate::command::operand::integer;
use crate::command::{acl, flag, CmdError, CmdResult, Group, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::collected::Collected;
use crate::protocol::errors;
use crate::state::session::KeysWalk;
use crate::text::glob::Glob;
use crate::text::number::parse_cursor;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("keys", 2, flag::READONLY, Touch::Alone, keys).acl(acl::KEYSPACE | acl::DANGEROUS)
        .doc(Group::Generic, "1.0.0", "Find all keys matching the given pattern", "O(N) with N being the number of keys in the database, under the assumption that the key names in the database and the given pattern have limited length.")
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"]),
    Command::new("randomkey", 1, flag::READONLY, Touch::Walk, randomkey).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Return a random key from the keyspace", "O(1)")
        .tips(&["request_policy:all_shards", "nondeterministic_output"]),
    Command::new("scan", -2, flag::READONLY, Touch::Walk, scan).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.8.0", "Incrementally iterate the keys space", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.")
        .tips(&["nondeterministic_output", "request_policy:special"]),
];

/// Keys that a full walk asks the store for at a time.
const STEP_KEY_COUNT: usize = 1000;
/// The store's cursors have 52 bits, plus one.
pub(super) const MAX_CURSOR: u64 = 1 << 52;

/// `COUNT`, `MATCH`, and of a hash `NOVALUES`.
pub(super) struct ScanOptions<'a> {
    pub count: usize,
    pub pattern: Pattern<'a>,
    pub without_values: bool,
}

/// What `MATCH` says; `*` is not looked at for each text.
pub(super) struct Pattern<'a>(Option<Glob<'a>>);

impl<'a> Pattern<'a> {
    pub fn new(pattern: &'a [u8]) -> Pattern<'a> {
        Pattern((pattern != b"*").then(|| Glob::new(pattern, false)))
    }

    pub fn matches(&self, text: &[u8]) -> bool {
        self.0.as_ref().is_none_or(|glob| glob.matches(text))
    }
}

impl<'a> ScanOptions<'a> {
    /// The options from an argument on; of elements, which have no type.
    ///
    /// # Errors
    /// As Redis gives them.
    pub fn parse(args: &Args<'a>, first: usize, is_hash: bool) -> Result<ScanOptions<'a>, CmdError> {
        let mut options = ScanOptions { count: 10, pattern: Pattern::new(b"*"), without_values: false };
        let mut index = first;
        while index < args.len() {
            if is_hash && args.is(index, "NOVALUES") {
                options.without_values = true;
                index += 1;
                continue;
            }
            let Some(value) = args.get(index + 1) else { return Err(errors::SYNTAX.into()) };
            if args.is(index, "COUNT") {
                options.count = scan_count(value)?;
            } else if args.is(index, "MATCH") {
                options.pattern = Pattern::new(value);
            } else {
                return Err(errors::SYNTAX.into());
            }
            index += 2;
        }
        Ok(options)
    }
}

fn scan_count(text: &[u8]) -> Result<usize, CmdError> {
    match integer(text)? {
        ..1 => Err(errors::SYNTAX.into()),
        count => Ok(count as usize),
    }
}

pub fn keys(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let pattern = Pattern::new(args.at(1));
    let begun = ctx.client.keys_walk.take();
    let mut walk =
        begun.unwrap_or_else(|| Box::new(KeysWalk { found: Collected::new(&ctx.reply), cursor: 0 }));
    loop {
        let KeysWalk { found, cursor } = &mut *walk;
        let before = found.mark();
        let next = ctx.worker.database(ctx.client.db).scan(*cursor, STEP_KEY_COUNT, |key, _| {
            if pattern.matches(key) {
                found.push(key);
            }
        });
        match next {
            Ok(0) => break,
            Ok(next) => *cursor = next,
            Err(error) => {
                found.back_to(before);
                if matches!(error, OpError::Fault(_)) {
                    ctx.client.keys_walk = Some(walk);
                }
                return Err(error.into());
            }
        }
    }
    walk.found.reply(&mut ctx.reply);
    Ok(())
}

pub fn scan(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let Some(cursor) = parse_cursor(args.at(1)) else { return Err("ERR invalid cursor".into()) };
    let (mut pattern, mut count, mut only_type): (&[u8], _, Option<&[u8]>) = (b"*", 10, None);
    for index in (2..args.len()).step_by(2) {
        let Some(value) = args.get(index + 1) else { return Err(errors::SYNTAX.into()) };
        if args.is(index, "COUNT") {
            count = scan_count(value)?;
        } else if args.is(index, "MATCH") {
            pattern = value;
        } else if args.is(index, "TYPE") {
            only_type = Some(value);
        } else {
            return Err(errors::SYNTAX.into());
        }
    }
    let takes_type = |entry: &EntryInfo| {
        only_type.is_none_or(|name| name.eq_ignore_ascii_case(entry.value_type.name().as_bytes()))
    };
    let pattern = Pattern::new(pattern);
    let mut found = Collected::new(&ctx.reply);
    // Beyond the last cursor there is nothing.
    let next = if cursor > MAX_CURSOR {
        0
    } else {
        ctx.worker.database(ctx.client.db).scan(cursor, count, |key, entry| {
            if takes_type(entry) && pattern.matches(key) {
                found.push(key);
            }
        })?
    };
    ctx.reply.array(2);
    ctx.reply.bulk_int(next as i64);
    found.reply(&mut ctx.reply);
    Ok(())
}

pub fn randomkey(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    match ctx.worker.database(ctx.client.db).random_key()? {
        Some(key) => ctx.reply.bulk(&key),
        None => ctx.reply.null(),
    }
    Ok(())
}
