//! The engine of `EXEC`: what is queued, and running it as one step.

use std::collections::{HashMap, HashSet};

use stillframe_store::{DbId, OpError, Reach};

use crate::command::{flag, key_flag, CmdError, CmdResult};
use crate::dispatch::carry::carry_out;
use crate::dispatch::ctx::{Command, Ctx, Found};
use crate::dispatch::held;
use crate::dispatch::prepare::{prepare_step, KeptAway, Needs};
use crate::dispatch::step::{Part, Step};
use crate::dispatch::talk::Talk;
use crate::dispatch::waiting::serve_ready;
use crate::protocol::args::{ArgRange, Args};
use crate::protocol::errors;
use crate::state::exceptions::Matter;
use crate::state::session::{Queued, Transaction, Watched, Within};
use crate::text::number::parse_i64;

/// Commands that are executed at once inside of a transaction.
pub fn runs_inside(command: &Command) -> bool {
    command.is(flag::INSIDE_MULTI)
}

pub fn is_exec(command: &Command) -> bool {
    command.is(flag::EXEC)
}

/// Keeps a command for `EXEC`.
pub fn queue(ctx: &mut Talk<'_, '_>, found: Found, args: &Args<'_>) {
    let Some(transaction) = &mut ctx.client.transaction else { return };
    // What cannot be executed any more is not kept.
    if !transaction.is_broken {
        let mut buf = Vec::with_capacity(args.from(0).map(<[u8]>::len).sum());
        let mut ranges = Vec::with_capacity(args.len());
        for arg in args.from(0) {
            ranges.push(ArgRange { start: buf.len() as u32, len: arg.len() as u32 });
            buf.extend_from_slice(arg);
        }
        transaction.flags |= found.command.flags;
        transaction.bytes += (buf.len() + ranges.len() * size_of::<ArgRange>()) as u64;
        transaction.queued.push(Queued { id: found.id, buf, ranges, incoming: Vec::new(), ahead: None });
    }
    ctx.reply.simple("QUEUED");
}

/// Answers an `EXEC` that was refused with `text`; the general code is left out.
pub fn abort(ctx: &mut Talk<'_, '_>, text: &[u8]) {
    ctx.end_transaction();
    let full = errors::discarded(text);
    ctx.server.count_error(&full);
    ctx.reply.error(&full);
}

/// `EXEC`: runs what is queued, as one step.
///
/// # Errors
/// There is nothing queued, or it may not run; a fault leaves the transaction as it was.
pub fn run(ctx: &mut Ctx<'_>) -> CmdResult {
    let Some(transaction) = &ctx.client.transaction else { return Err("ERR EXEC without MULTI".into()) };
    if transaction.is_broken {
        ctx.talk().end_transaction();
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    let Some(mut transaction) = ctx.client.transaction.take() else { return Ok(()) };
    let selected = ctx.db();
    let result = run_all(ctx, &mut transaction);
    // The replies are written: what cannot be removed now is left to the active expiry.
    let _ = ctx.worker.upkeep().remove_left_expired();
    if ctx.server.exceptions.now().has(Matter::HOLDING) {
        see_all(ctx, &transaction, selected);
    }
    match result {
        // To be run again as it was.
        Err(CmdError::Store(OpError::Fault(_))) => ctx.client.transaction = Some(transaction),
        _ => ctx.server.watches.unwatch_all(ctx.client),
    }
    // Nothing has been done.
    result.map_err(|error| match error {
        CmdError::Store(OpError::Fault(fault)) => fault.into(),
        error => errors::discarded(&error.into_text()).into(),
    })
}

/// Runs the commands, as one step, unless a watched key has changed.
fn run_all(ctx: &mut Ctx<'_>, transaction: &mut Transaction) -> CmdResult {
    let seed = *transaction.seed.get_or_insert_with(|| fastrand::u64(..));
    go_ahead(ctx, transaction)?;
    let watched = std::mem::take(&mut ctx.client.watched);
    let is_looked_at = ctx.server.store.may_miss_pages() && !ctx.client.watch_flag.is_raised();
    let step = is_looked_at.then(|| step_of(ctx, transaction, seed));
    let prepared = prepare_step(ctx, &needs_of(ctx, transaction, &watched), step.as_ref());
    let has_expired = watched.iter().any(|w| w.deadline.is_some_and(|d| d <= ctx.worker.now()));
    ctx.client.watched = watched;
    let held = prepared?;
    if has_expired || ctx.client.watch_flag.is_raised() {
        ctx.reply.null_array();
        return Ok(());
    }
    // Until the others stopped they may have changed what it was made of.
    go_ahead(ctx, transaction)?;
    let head = ctx.reply.out.mark();
    ctx.reply.array(transaction.queued.len());
    ctx.hold_back(head);
    // Not after the place of a reply that comes later: that moves what is written behind it.
    let sent_values = ctx.reply.out.sends_values();
    let made: Vec<_> = transaction.queued.iter_mut().map(|queued| queued.ahead.take()).collect();
    let step = step_of(ctx, transaction, seed);
    ctx.worker.steps().begin();
    for (index, made) in made.into_iter().enumerate() {
        let mark = ctx.reply.out.mark();
        carry_out(ctx, &step, index, made, matches!(held, KeptAway::Alone { .. }));
        // `CLIENT REPLY` holds from its place on.
        ctx.hold_back(mark);
    }
    ctx.client.has_pushed = true;
    ctx.reply.out.send_values(sent_values);
    serve_ready(ctx, &held);
    ctx.worker.steps().end();
    Ok(())
}

/// Lets the reply wait for what it shows of the keys of a transaction that began in this database. What has a unit waits for that
/// alone: all keys were locked until it had been appended.
#[cold]
fn see_all(ctx: &mut Ctx<'_>, transaction: &Transaction, selected: DbId) {
    if ctx.server.reply_gate.own_end_offset(ctx.worker.steps().worker()) > 0 {
        return;
    }
    let watched = std::mem::take(&mut ctx.client.watched);
    for key in &watched {
        let end_offset = ctx.server.reply_gate.seen_end_offset(ctx.worker, key.db, &ctx.worker.key(&key.key));
        ctx.client.need.raise(end_offset);
    }
    let db_after = std::mem::replace(&mut ctx.client.db, selected);
    let mut all = Vec::with_capacity(transaction.queued.len());
    for_each_queued(ctx, transaction, |_, db, command, args| all.push((db, command, *args)));
    (ctx.client.watched, ctx.client.db) = (watched, db_after);
    all.iter().for_each(|(db, command, args)| held::see(ctx, *db, command, args));
}

/// Lets the commands make, part by part, what they make of large values before they run. Others are served meanwhile.
///
/// # Errors
/// A pause, or pages that are missing: the transaction begins anew. What else is in the way of a command it says itself.
fn go_ahead(ctx: &mut Ctx<'_>, transaction: &mut Transaction) -> CmdResult {
    if !ctx.server.store.may_miss_pages() || ctx.client.watch_flag.is_raised() {
        return Ok(());
    }
    let selected = ctx.client.db;
    for (index, db) in going_ahead(ctx, transaction) {
        let queued = &mut transaction.queued[index];
        let Some(ahead) = ctx.registry.found(queued.id).command.ahead else { continue };
        (ctx.client.ahead, ctx.client.db) = (queued.ahead.take(), db);
        let result = ahead(ctx, &queued.args());
        (queued.ahead, ctx.client.db) = (ctx.client.ahead.take(), selected);
        if let Err(CmdError::Store(OpError::Fault(fault))) = result {
            if queued.ahead.is_some() {
                // It goes on from there.
                ctx.client.patience.iter_mut().for_each(|patience| patience.note_progress());
            }
            return Err(OpError::Fault(fault).into());
        }
    }
    Ok(())
}

/// The commands that make something of large values, by their numbers, and their databases. Not of values that another command
/// of the transaction may have changed by then.
fn going_ahead(ctx: &Ctx<'_>, transaction: &Transaction) -> Vec<(usize, DbId)> {
    let (mut writers, mut going) = (HashMap::new(), Vec::new());
    for_each_queued(ctx, transaction, |index, db, command, args| {
        for_each_written(command, db, args, |key| *writers.entry(key).or_insert(0) += 1);
        if command.is_ahead_of_exec {
            going.push((index, db));
        }
    });
    going.retain(|(index, db)| {
        let queued = &transaction.queued[*index];
        let (command, args) = (ctx.registry.found(queued.id).command, queued.args());
        let mut own = HashMap::new();
        for_each_written(command, *db, &args, |key| *own.entry(key).or_insert(0) += 1);
        let mut is_left_alone = true;
        command.for_each_key(&args, &mut |index, _| {
            let key = (*db, args.at(index));
            let is_source = command.reach_of(&args, index) == Reach::WHOLE;
            is_left_alone &= !is_source || writers.get(&key) == own.get(&key);
        });
        is_left_alone
    });
    going
}

/// Calls `give` with each key that a command may change.
fn for_each_written<'k>(
    command: &Command,
    db: DbId,
    args: &Args<'k>,
    mut give: impl FnMut((DbId, &'k [u8])),
) {
    command.for_each_key(args, &mut |index, flags| {
        if flags & key_flag::RO == 0 {
            give((db, args.at(index)));
        }
    });
    if let Some(other_keys) = command.other_keys {
        other_keys(db, args, &mut |db, index| give((db, args.at(index))));
    }
}

/// Calls `f` with the number, the database, and the arguments of each command, following their `SELECT`s.
fn for_each_queued<'k>(
    ctx: &Ctx<'_>,
    transaction: &'k Transaction,
    mut f: impl FnMut(usize, DbId, &'static Command, &Args<'k>),
) {
    let mut db = ctx.db();
    for (index, queued) in transaction.queued.iter().enumerate() {
        let command = ctx.registry.found(queued.id).command;
        let args = queued.args();
        if command.is(flag::SELECTS) {
            let number = parse_i64(args.at(1)).and_then(|n| u32::try_from(n).ok());
            db = number.filter(|n| *n < ctx.server.database_count).map_or(db, DbId);
        }
        f(index, db, command, &args);
    }
}

/// The commands as a step, following their `SELECT`s.
fn step_of<'k>(ctx: &Ctx<'_>, transaction: &'k Transaction, seed: u64) -> Step<'k> {
    let mut parts = Vec::with_capacity(transaction.queued.len());
    for_each_queued(ctx, transaction, |index, db, _, args| {
        let queued = &transaction.queued[index];
        let (found, is_made) = (ctx.registry.found(queued.id), queued.ahead.is_some());
        parts.push(Part { found, args: *args, db, is_made });
    });
    Step { parts, seed, within: Within::Transaction }
}

/// What the commands need, following their `SELECT`s; watched keys are locked with theirs.
fn needs_of<'k>(ctx: &Ctx<'_>, transaction: &'k Transaction, watched: &'k HashSet<Watched>) -> Needs<'k> {
    let mut needs = Needs::default();
    for key in watched {
        needs.add_key(ctx, key.db, ctx.worker.key(&key.key));
    }
    for_each_queued(ctx, transaction, |index, db, command, args| {
        needs.add_queued(ctx, db, command, args, transaction.queued[index].ahead.is_some());
    });
    needs.end_queued(ctx);
    needs
}
