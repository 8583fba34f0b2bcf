//! Carrying out a step that has begun: to its end, whatever is in memory.
//!
//! ```text
//!             ┌───────────────────────────────────────────────────────────┐
//!             ▼                                                           │
//!   the command runs ── misses pages, and has changed nothing (C1) ──▶ these, and what those after it miss, are brought in
//!             │ has its reply                                             here and now, while others wait
//!             ▼
//!   the next one
//! ```
//! Where it has changed something nothing is refused for want of memory any more: what is not used goes, and where that does not
//! suffice memory is exceeded (C9). A page that is damaged is an error of the command that comes to it.

use stillframe_store::{Carrying, Fault, Faults, OpError};

use crate::command::CmdError;
use crate::dispatch::call::{call, Outcome};
use crate::dispatch::ctx::Ctx;
use crate::dispatch::prepare::{Needs, TOO_LATE};
use crate::dispatch::step::{Part, Step};
use crate::state::session::Ahead;

/// Of so many parts of memory a command has one brought in in the place of what others use; more is beyond the bound.
const IN_BOUNDS_PART: u64 = 2;
/// Commands that are looked at for what they miss, too.
const PARTS_AHEAD: usize = 512;
/// So often in a row a command may ask for what is there already. It would go on for ever then.
const VAIN_LOADS_MAX: u32 = 100;

/// What one command has had brought in.
#[derive(Default)]
struct Loads {
    page_count: u64,
    vain_count: u32,
    has_exceeded: bool,
}

/// Runs a part of a step, and writes its reply. `is_alone`: all others stand still.
pub fn carry_out(
    ctx: &mut Ctx<'_>,
    step: &Step<'_>,
    index: usize,
    ahead: Option<Box<Ahead>>,
    is_alone: bool,
) {
    let part = &step.parts[index];
    let may_miss_pages = ctx.server.store.may_miss_pages();
    let _carrying = Carrying::begin();
    let mut loads = Loads::default();
    ctx.client.ahead = ahead;
    loop {
        let before = ctx.worker.change_count();
        let outcome = match keys_of_steps(ctx, part) {
            Err(fault) => Outcome::Fault(fault),
            Ok(()) => {
                if may_miss_pages {
                    ctx.worker.begin_choices(step.seed_of(index));
                }
                call(ctx, part.found, &part.args, step.within)
            }
        };
        let Outcome::Fault(fault) = outcome else { break };
        let is_begun = ctx.worker.change_count() != before;
        if is_begun || !loads.bring_in(ctx, fault, (step, index), is_alone) {
            ctx.reply.error(TOO_LATE);
            break;
        }
    }
    ctx.client.end_walks();
    if loads.has_exceeded && is_alone {
        // What the next one needs it finds, or brings in again.
        let pool = ctx.server.store.pool();
        ctx.worker.idle_for_turns(|| pool.wait_for_room());
    }
}

/// A command that changes things in several operations has what its keys need before the first of them.
pub fn keys_of_steps(ctx: &mut Ctx<'_>, part: &Part<'_>) -> Result<(), Fault> {
    if !ctx.server.store.may_miss_pages() {
        return Ok(());
    }
    let needs = Needs::of_call(ctx, part.found.command, &part.args);
    match needs.resolve_steps(ctx) {
        Err(CmdError::Store(OpError::Fault(fault))) => Err(fault),
        // The command tells itself what else is in its way.
        _ => Ok(()),
    }
}

impl Loads {
    /// Brings pages in. False if that is of no use.
    fn bring_in(
        &mut self,
        ctx: &mut Ctx<'_>,
        fault: Fault,
        (step, index): (&Step<'_>, usize),
        is_alone: bool,
    ) -> bool {
        if ctx.client.goes_on() {
            // It does not need all of its pages together.
            self.page_count = 0;
        }
        let mut faults = Faults::default();
        faults.add(fault);
        let end = step.parts.len().min(index.saturating_add(PARTS_AHEAD));
        step.look(ctx, index + 1..end, &mut faults);
        let Some(fault) = faults.take() else { return self.note_vain() };
        self.page_count += fault.page_count();
        let most = ctx.server.store.memory_page_count().unwrap_or(u64::MAX) / IN_BOUNDS_PART;
        let exceeds = !is_alone || self.page_count > most;
        self.has_exceeded |= exceeds;
        match ctx.worker.load_in_place(fault, exceeds) {
            0 => self.note_vain(),
            _ => {
                self.vain_count = 0;
                true
            }
        }
    }

    fn note_vain(&mut self) -> bool {
        self.vain_count += 1;
        self.vain_count <= VAIN_LOADS_MAX
    }
}
