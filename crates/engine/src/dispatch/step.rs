//! Commands that are one step, and a look at what they need: each runs as it would, and is stopped where it would change
//! something ([`Looking`]). So what it reads, finds, draws or is about to change is brought in before, for all together.
//!
//! What a command needs that depends on what an earlier one of the same step changes is not found. It is brought in when the
//! step is carried out (`carry.rs`).

use std::ops::Range;

use stillframe_store::{DbId, Fault, Faults, Key, Looking, OpError};

use crate::command::CmdError;
use crate::dispatch::ctx::{Ctx, Found};
use crate::protocol::args::Args;
use crate::protocol::reply::ReplyBuf;
use crate::state::session::{Session, Within};

/// Pages that are waited for together: so many, and those that the last command misses.
const TOGETHER_PAGES: usize = 1024;
/// At most this part of the memory.
const TOGETHER_PART: u64 = 8;
/// Between the random numbers of two commands of a step: no multiple of the generator's own step.
const SEED_STEP: u64 = 0xd134_2543_de82_ef95;

/// A command of a step.
pub struct Part<'a> {
    pub found: Found,
    pub args: Args<'a>,
    /// The database that is selected then.
    pub db: DbId,
    /// What it makes of large values is there: it needs nothing more of them.
    pub is_made: bool,
}

/// Commands that are carried out one after the other, with nothing in between.
pub struct Step<'a> {
    pub parts: Vec<Part<'a>>,
    /// What its random choices begin with: they are drawn when it is looked at, and drawn the same when it is carried out.
    pub seed: u64,
    /// Of what: a transaction, or a script.
    pub within: Within,
}

impl Step<'_> {
    /// What the random choices of a part begin with.
    pub fn seed_of(&self, index: usize) -> u64 {
        self.seed.wrapping_add(SEED_STEP.wrapping_mul(index as u64 + 1))
    }

    /// Adds the pages that these parts miss, as far as that can be seen now, to `faults`: enough to be waited for together. Nothing
    /// is changed.
    pub fn look(&self, ctx: &mut Ctx<'_>, parts: Range<usize>, faults: &mut Faults) {
        let most = ctx.server.store.memory_page_count().unwrap_or(u64::MAX) / TOGETHER_PART;
        let most = TOGETHER_PAGES.min(usize::try_from(most).unwrap_or(usize::MAX));
        let mut client = Session::new(ctx.client.id, true);
        (client.resp3, client.within) = (ctx.client.resp3, Within::Look);
        for index in parts {
            if faults.page_count() >= most {
                return;
            }
            if let Some(fault) = self.look_at(ctx, &mut client, index) {
                faults.add(fault);
            }
        }
    }

    fn look_at(&self, ctx: &mut Ctx<'_>, client: &mut Session, index: usize) -> Option<Fault> {
        let Part { found, args, db, is_made } = &self.parts[index];
        if *is_made || !found.command.is_looked_at(args) {
            return None;
        }
        client.db = *db;
        // Others do not take the values apart meanwhile. Within the step's own locks it locks nothing.
        let keys = self.keys_of(ctx, index);
        let _locks = (!keys.is_empty()).then(|| ctx.worker.lock(&keys, false));
        ctx.worker.begin_choices(self.seed_of(index));
        let mut out = ReplyBuf::default();
        let before = ctx.worker.change_count();
        let peer = ctx.peer;
        let mut inner = ctx.inner(client, peer, &mut out);
        let looking = Looking::begin();
        let result = (found.command.run)(&mut inner, args);
        drop(looking);
        inner.client.end_walks();
        debug_assert_eq!(ctx.worker.change_count(), before, "{} changes by a look", found.command.name);
        match result {
            Err(CmdError::Store(OpError::Fault(fault))) => Some(fault),
            // It has got to its first change, or to its end, or to an error that it is going to tell.
            _ => None,
        }
    }

    /// The keys to be locked. Where a command comes to others beside them each of its operations locks its own.
    fn keys_of(&self, ctx: &Ctx<'_>, index: usize) -> Vec<(DbId, Key<'_>)> {
        let Part { found, args, db, .. } = &self.parts[index];
        let mut keys = Vec::new();
        if ctx.server.worker_count > 1 && found.command.touch_of(args).is_of_keys() {
            found.command.for_each_key(args, &mut |at, _| keys.push((*db, ctx.worker.key(args.at(at)))));
            if let Some(other_keys) = found.command.other_keys {
                other_keys(*db, args, &mut |db, at| keys.push((db, ctx.worker.key(args.at(at)))));
            }
        }
        keys
    }
}
