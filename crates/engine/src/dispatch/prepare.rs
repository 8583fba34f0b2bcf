//! What comes before the first change of a command or transaction, so that nothing has to be waited for after it
//! (invariant C3).
//!
//! ```text
//!   pages missing? ── yes ──▶ Fault: others are served, later it begins anew
//!         │ no
//!   locks, or the standstill of all others; both may wait, and nothing has been done
//!         │
//!   still all there? ── no ──▶ Fault
//!         │ yes
//!   apply, without a wait ──▶ release
//! ```
//! What is missing is what the keys tell of, and, of the commands of a transaction, what a look at them finds (`step.rs`).

use smallvec::SmallVec;
use stillframe_store::{Alone, DbId, Fault, Faults, Key, Locks, OpError, Patient, Reach, SlabNeeds};

use crate::command::{flag, key_flag, CmdError, Group, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::step::Step;
use crate::protocol::args::Args;
use crate::state::waiting::{ReadyKey, Waiter};

/// While pages are missing, a call of more words than this that changes several things waits for all of them: which it
/// needs in the worst case would be too many.
const RESOLVED_WORDS_MAX: usize = 64;
/// A string that grows, or is made of others, is of any length. So many of them are provided for.
const ANY_STORED_MAX: usize = 4;
/// Of the keys that are watched so many are looked for before databases are emptied or exchanged. The others are taken to be there.
const WATCHED_KEYS_MAX: usize = 1024;
/// What was there has gone again before a transaction could begin: after a few times it asks for its turn.
const LOST_ROUNDS: u32 = 25;

/// What a command or a transaction needs.
#[derive(Default)]
pub struct Needs<'k> {
    keys: SmallVec<[(DbId, Key<'k>); 1]>,
    /// How far into the value of each.
    reaches: SmallVec<[Reach; 1]>,
    word_count: usize,
    /// What may be stored outside of leaves. Of the elements of collections the operations make sure themselves.
    stored: SlabNeeds,
    any_stored_count: usize,
    writes: bool,
    /// It may take more memory.
    stores: bool,
    /// It may be seen half done if somebody looked in between.
    changes_in_steps: bool,
    /// Something is locked for longer than an operation of the store.
    locks: bool,
    stops_others: bool,
    /// It may take any time.
    runs_script: bool,
    needs_all_data: bool,
    /// Databases are exchanged in between: a key may be looked for in any.
    swaps: bool,
    /// Databases are emptied, or exchanged: whether watched keys are there says which transactions that concerns.
    watched: Vec<(DbId, Vec<u8>)>,
}

/// A page that could not be read was to be tried again just now: others, or a cut, would see what was done before it.
pub const TOO_LATE: &[u8] = b"ERR a page could not be read, and is to be tried again; send the command again";

/// What keeps the others away while a command is applied; let go of when dropped.
pub enum KeptAway {
    Nothing,
    /// `reach`: all keys that are locked, where somebody who waits changes further keys when served; else empty.
    Locks {
        _locks: Locks,
        reach: Vec<ReadyKey>,
    },
    Alone {
        _alone: Alone,
    },
}

impl KeptAway {
    /// Whether a client that waits may be served now: the further keys that its command changes are locked.
    pub fn covers(&self, waiter: &Waiter) -> bool {
        match self {
            KeptAway::Locks { reach, .. } => waiter.targets().all(|target| reach.contains(&target)),
            KeptAway::Nothing | KeptAway::Alone { .. } => true,
        }
    }
}

impl<'k> Needs<'k> {
    /// Needs of one call outside of a transaction.
    pub fn of_call(ctx: &Ctx<'_>, command: &Command, args: &Args<'k>) -> Needs<'k> {
        let touch = command.touch_of(args);
        let is_script = matches!(touch, Touch::Script);
        let mut needs = Needs::default();
        needs.add(ctx, ctx.db(), command, touch, args);
        if let Touch::Parts = touch {
            needs.reaches.fill(Reach::Nothing);
        }
        if command.ahead.is_some() {
            needs.spare_large(0);
        }
        let key_count = needs.keys.len();
        needs.changes_in_steps = needs.writes && touch.changes_in_steps(key_count);
        // One operation finds that out for itself.
        if needs.changes_in_steps {
            needs.add_stored(command, args);
        }
        // A command that only looks once at one key is one operation of the store, which locks for itself.
        needs.locks = needs.writes || is_script || touch.reads_in_steps(key_count);
        needs.needs_all_data = matches!(touch, Touch::Alone);
        needs
    }

    /// Needs of who changes keys that are added to it, and may begin anew.
    pub fn of_change() -> Needs<'k> {
        Needs { writes: true, locks: true, ..Needs::default() }
    }

    /// Of the values from the `first`-th on, those that are large and needed as a whole are not: what the command needs of
    /// them has been made, or it goes over them part by part.
    fn spare_large(&mut self, first: usize) {
        let wholes = self.reaches[first..].iter_mut().filter(|reach| **reach == Reach::WHOLE);
        wholes.for_each(|reach| *reach = Reach::SENT);
    }

    /// Adds a call of a transaction in the database that is selected then. `is_made`: what it makes of large values is there.
    pub fn add_queued(&mut self, ctx: &Ctx<'_>, db: DbId, command: &Command, args: &Args<'k>, is_made: bool) {
        let (touch, first) = (command.touch_of(args), self.reaches.len());
        self.add(ctx, db, command, touch, args);
        if !matches!(touch, Touch::Script) {
            self.add_stored(command, args);
        }
        if is_made || matches!(touch, Touch::Parts) {
            self.spare_large(first);
        }
        self.changes_in_steps = self.writes;
        self.locks = true;
        // A script may empty a database after the transaction's first change, when it is too late to stop the others.
        self.stops_others |= matches!(touch, Touch::Script) && command.is(flag::CHANGES);
        self.swaps |= matches!(touch, Touch::Swap);
        self.needs_all_data |= matches!(touch, Touch::Walk | Touch::Swap | Touch::Alone);
    }

    fn add(&mut self, ctx: &Ctx<'_>, db: DbId, command: &Command, touch: Touch, args: &Args<'k>) {
        self.add_watched(ctx, touch);
        self.writes |= command.is(flag::CHANGES);
        self.runs_script |= matches!(touch, Touch::Script);
        self.stores |= command.is(flag::DENYOOM);
        // What a script stores its commands say.
        self.word_count += if matches!(touch, Touch::Script) { 0 } else { args.len() };
        self.stops_others |= match touch {
            Touch::Nothing | Touch::Queued | Touch::Of(_) => false,
            Touch::OneOperation | Touch::EachKey | Touch::Steps | Touch::Parts => false,
            // With one worker nobody changes anything meanwhile.
            Touch::Counters | Touch::Walk | Touch::Script => ctx.server.worker_count > 1,
            Touch::Flush | Touch::Swap | Touch::Alone => true,
        };
        command.for_each_key(args, &mut |index, _| {
            self.keys.push((db, ctx.key(args, index)));
            self.reaches.push(command.reach_of(args, index));
        });
        if let Some(other_keys) = command.other_keys {
            other_keys(db, args, &mut |other, index| self.add_key(ctx, other, ctx.key(args, index)));
        }
    }

    /// Words may come to lie outside of their leaves, as keys or values. What only goes takes no room.
    fn add_stored(&mut self, command: &Command, args: &Args<'_>) {
        let (mut is_kept, mut is_grown) = (false, false);
        command.for_each_key(args, &mut |index, flags| {
            is_kept |= flags & (key_flag::RO | key_flag::RM) == 0;
            is_grown |= matches!(command.reach_of(args, index), Reach::Write { .. } | Reach::Append { .. });
        });
        if !is_kept {
            return;
        }
        args.from(0).for_each(|word| self.stored.add(word.len()));
        if is_grown || matches!(command.group, Group::Bitmap | Group::HyperLogLog) {
            self.any_stored_count += 1;
            if self.any_stored_count <= ANY_STORED_MAX {
                self.stored.add_any();
            }
        }
    }

    fn add_watched(&mut self, ctx: &Ctx<'_>, touch: Touch) {
        let concerns_watched = matches!(touch, Touch::Flush | Touch::Swap);
        if !concerns_watched || !self.watched.is_empty() || !ctx.server.store.may_miss_pages() {
            return;
        }
        let watched = ctx.server.watches.some(WATCHED_KEYS_MAX);
        self.watched = match touch {
            Touch::Swap => {
                let dbs = (0..ctx.server.database_count).map(DbId);
                dbs.flat_map(|db| watched.iter().map(move |(_, key)| (db, key.clone()))).collect()
            }
            _ => watched,
        };
    }

    /// A key to be locked and resolved with the others; its value is not looked at.
    pub fn add_key(&mut self, ctx: &Ctx<'_>, db: DbId, key: Key<'k>) {
        // One that there is not is reported by the command itself.
        if db.0 < ctx.server.database_count {
            self.keys.push((db, key));
            self.reaches.push(Reach::Nothing);
        }
    }

    /// After the last call of a transaction: what it names has to be there in each database that may be in that place.
    pub fn end_queued(&mut self, ctx: &Ctx<'_>) {
        if self.swaps && ctx.server.store.may_miss_pages() {
            let named = std::mem::take(&mut self.keys);
            let everywhere = (0..ctx.server.database_count)
                .flat_map(|db| named.iter().map(move |(_, key)| (DbId(db), *key)));
            self.keys = everywhere.collect();
            self.reaches = SmallVec::from_vec(self.reaches.repeat(ctx.server.database_count as usize));
        }
    }

    /// Whether it must not begin anew once it has begun.
    pub fn runs_once(&self) -> bool {
        self.changes_in_steps
    }

    /// Whether it only looks once at one key: it may as well run and meet what is missing.
    fn finds_out_itself(&self) -> bool {
        !self.locks && !self.needs_all_data && !self.stops_others
    }

    /// All that is missing of what it needs, if its command has met some of that.
    pub fn complete(&self, ctx: &mut Ctx<'_>, fault: Fault) -> Fault {
        match self.resolve_keys(ctx, &SlabNeeds::default()) {
            Err(OpError::Fault(all)) if self.finds_out_itself() => fault.and(all),
            _ => fault,
        }
    }

    /// Of a command that changes things in several operations: whether what its keys need is there.
    ///
    /// # Errors
    /// As of [`prepare`].
    pub fn resolve_steps(&self, ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
        match self.changes_in_steps {
            true => Ok(self.resolve_keys(ctx, &self.stored)?),
            false => Ok(()),
        }
    }

    /// # Errors
    /// Pages that are missing, or they are too many; nothing is held then.
    fn resolve(&self, ctx: &mut Ctx<'_>) -> Result<(), OpError> {
        if !ctx.server.store.may_miss_pages() {
            return Ok(());
        }
        if self.finds_out_itself() {
            return Ok(());
        }
        if !self.changes_in_steps {
            return self.resolve_keys(ctx, &SlabNeeds::default());
        }
        if self.word_count > RESOLVED_WORDS_MAX && ctx.server.store.is_warming_up() {
            return Err(Fault::all().into());
        }
        self.resolve_keys(ctx, &self.stored)
    }

    fn resolve_keys(&self, ctx: &mut Ctx<'_>, stored: &SlabNeeds) -> Result<(), OpError> {
        let keys = self.keys.iter().zip(&self.reaches).map(|((db, key), reach)| (*db, *key, *reach));
        let watched: Vec<_> =
            self.watched.iter().map(|(db, key)| (*db, ctx.worker.key(key), Reach::Nothing)).collect();
        ctx.worker.resolve_reaching(keys.chain(watched), stored)
    }
}

/// Waits for whatever is in the way. From then on until what it returns is dropped, the operations on these keys are one
/// step to all others and to every cut, and none of several that change something meets a missing page.
///
/// # Errors
/// Pages that are missing, or they are too many: nothing has been done.
pub fn prepare(ctx: &mut Ctx<'_>, needs: &Needs<'_>) -> Result<KeptAway, OpError> {
    prepare_step(ctx, needs, None)
}

/// The same for commands that are looked at, too.
///
/// # Errors
/// As of [`prepare`].
pub fn prepare_step(
    ctx: &mut Ctx<'_>,
    needs: &Needs<'_>,
    step: Option<&Step<'_>>,
) -> Result<KeptAway, OpError> {
    if needs.needs_all_data && ctx.server.store.is_warming_up() {
        return Err(Fault::all().into());
    }
    // What may only make room goes on; what stores something waits until there is some.
    if needs.stores && ctx.server.store.is_full() && !ctx.server.store.is_stuck() {
        return Err(Fault::room().into());
    }
    let may_miss_pages = ctx.server.store.may_miss_pages();
    look(ctx, needs, step)?;
    let stamp = step.map(|_| ctx.server.store.residence_stamp());
    if needs.stops_others || (may_miss_pages && needs.changes_in_steps) {
        let Ctx { worker, local, server, .. } = ctx;
        let meanwhile = &mut || local.stand_aside(&server.busy);
        let patient = Patient { worker, meanwhile };
        let alone = match needs.runs_script {
            true => patient.stop_others_for_long()?,
            false => patient.stop_others()?,
        };
        look_again(ctx, needs, step, stamp)?;
        return Ok(KeptAway::Alone { _alone: alone });
    }
    if ctx.server.worker_count > 1 && needs.locks {
        let held = lock(ctx, needs);
        look_again(ctx, needs, step, stamp)?;
        return Ok(held);
    }
    Ok(KeptAway::Nothing)
}

/// # Errors
/// Of what the keys tell of, and of what a look at the commands finds, all pages that are missing.
fn look(ctx: &mut Ctx<'_>, needs: &Needs<'_>, step: Option<&Step<'_>>) -> Result<(), OpError> {
    let Some(step) = step.filter(|_| ctx.server.store.may_miss_pages()) else { return needs.resolve(ctx) };
    let mut faults = Faults::default();
    match needs.resolve(ctx) {
        Err(OpError::Fault(fault)) if fault.page_count() > 0 => faults.add(fault),
        resolved => resolved?,
    }
    step.look(ctx, 0..step.parts.len(), &mut faults);
    faults.take().map_or(Ok(()), |fault| Err(fault.into()))
}

/// Until others stopped, or had been locked out, they may have changed what is needed, and pages may have gone. If neither
/// has happened what was looked at is there still.
fn look_again(
    ctx: &mut Ctx<'_>,
    needs: &Needs<'_>,
    step: Option<&Step<'_>>,
    stamp: Option<(u64, u64)>,
) -> Result<(), OpError> {
    let step = step.filter(|_| Some(ctx.server.store.residence_stamp()) != stamp);
    let looked = look(ctx, needs, step);
    if step.is_some() && matches!(looked, Err(OpError::Fault(_))) {
        ctx.client.patience.get_or_insert_default().note_lost(LOST_ROUNDS);
    }
    looked
}

/// Locks the keys, and those that change when the first clients are served that wait for these: they are served under the
/// same locks.
fn lock(ctx: &mut Ctx<'_>, needs: &Needs<'_>) -> KeptAway {
    let waiters = &ctx.server.waiters;
    if !needs.writes || !waiters.have_targets() {
        return KeptAway::Locks { _locks: ctx.worker.lock(&needs.keys, needs.writes), reach: Vec::new() };
    }
    let reach = waiters.reach_of(needs.keys.iter().map(|(db, key)| (*db, key.hash, key.bytes)));
    let keys: Vec<_> = reach.iter().map(|place| (place.db, ctx.worker.key(&place.key))).collect();
    let locks = ctx.worker.lock(&keys, true);
    KeptAway::Locks { _locks: locks, reach }
}
