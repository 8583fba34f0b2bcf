//! `DEBUG LOADAOF`: what a start would find is held against what is in memory.

use stillframe_store::{digest, Reopened, SaveError};

use crate::command::{CmdError, CmdResult};
use crate::data::store_options;
use crate::dispatch::ctx::Ctx;

/// Opens the last checkpoint and the log as a second store, while all others stand still, and compares. Nothing is changed: unlike in
/// Redis, where what is in memory is replaced by what the file has.
pub fn load_and_compare(ctx: &mut Ctx<'_>) -> CmdResult {
    let server = ctx.server;
    if !server.config().settings.log.is_on {
        return Err("ERR DEBUG LOADAOF needs a log: CONFIG SET appendonly yes".into());
    }
    if ctx.client.within.is_transaction() {
        return Err(
            "ERR DEBUG LOADAOF inside a transaction: what that has changed is in the log at its end".into()
        );
    }
    let (store, now) = (&server.store, ctx.worker.now());
    let dir = store.dir().join(format!("temp-loadaof-{}", std::process::id()));
    let options = store_options(&server.config().settings);
    // Everybody stands still for this thread, and for no other.
    let here = store.view().map_err(unreadable)?;
    let compare = || -> Result<Option<String>, CmdError> {
        let second = Reopened::new(store, &dir, options).map_err(failed)?;
        let there = second.store().view().map_err(unreadable)?;
        let found = digest::first_difference((store, &here), (second.store(), &there), now);
        let found = found.map_err(unreadable)?;
        Ok(found.map(|difference| difference.to_string()))
    };
    // Another thread uses the other store: this one is in a command.
    let found = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("load-log".into()).spawn_scoped(scope, compare);
        let thread = thread.map_err(|error| format!("ERR No thread can be started: {error}"))?;
        thread.join().map_err(|_| "ERR DEBUG LOADAOF: a fault of the program, see the log")?
    });
    match found? {
        None => ctx.reply.ok(),
        Some(place) => {
            return Err(format!("ERR The log gives other data than memory has: first at {place}").into())
        }
    }
    Ok(())
}

fn failed(error: stillframe_store::ReopenError) -> CmdError {
    format!("ERR Error trying to load the log: {error}").into()
}

fn unreadable(error: SaveError) -> CmdError {
    format!("ERR {error}").into()
}
