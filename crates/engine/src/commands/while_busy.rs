//! The commands with the flag `allow_busy`: how they are carried out while a script runs for long and there is no worker for
//! them.

use crate::command::CmdResult;
use crate::commands::{connection, function, persistence, transaction};
use crate::config::OnSignal;
use crate::dispatch::talk::Talk;
use crate::dispatch::while_busy::{Rows, WhileBusy};
use crate::protocol::args::Args;
use crate::state::busy::Kind;

pub const ROWS: Rows = &[
    ("auth", WhileBusy::Now(connection::log_in)),
    ("discard", WhileBusy::Now(|talk, _| transaction::give_up(talk))),
    ("function|kill", WhileBusy::Now(|talk, _| talk.kill(Kind::Function))),
    ("function|stats", WhileBusy::Now(|talk, _| function::describe(talk))),
    ("hello", WhileBusy::Now(connection::greet)),
    ("multi", WhileBusy::Now(|talk, _| transaction::begin(talk))),
    ("quit", WhileBusy::Now(|talk, _| connection::part(talk))),
    ("reset", WhileBusy::Now(|talk, _| connection::begin_anew(talk))),
    ("script|kill", WhileBusy::Now(|talk, _| talk.kill(Kind::Script))),
    ("shutdown", WhileBusy::Now(shutdown)),
    ("unwatch", WhileBusy::Now(|talk, _| transaction::forget(talk))),
    // It looks at the data.
    ("watch", WhileBusy::Later(transaction::admit_watch)),
];

/// Without a save: for one it would have to wait.
fn shutdown(talk: &mut Talk<'_, '_>, args: &Args<'_>) -> CmdResult {
    match persistence::read_shutdown(args)? {
        (OnSignal::NoSave, _) => {
            talk.end_server();
            Ok(())
        }
        _ => Err(talk.busy_text().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::flag;
    use crate::commands::REGISTRY;

    #[test]
    fn each_row_that_is_allowed_is_there() {
        for row in REGISTRY.rows().iter().filter(|row| row.is(flag::ALLOW_BUSY)) {
            assert!(ROWS.iter().any(|(name, _)| *name == row.name), "{}", row.name);
        }
    }
}
