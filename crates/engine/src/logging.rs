//! The server and the log of its changes.
//!
//! ```text
//!   store's log ── appended, durable ──▶ replies that wait       ── no room ──▶ changes wait
//!               ── failed ──▶ changes are refused, or the end     ── no space ──▶ a checkpoint, what stores more is refused
//! ```

use std::sync::{Arc, Weak};

use stillframe_store::log::{LogStatus, LogWatcher, SyncPolicy};
use stillframe_store::WorkerId;

use crate::config::Settings;
use crate::log;
use crate::persistence::Target;
use crate::server::Server;
use crate::state::data_log::{LogEnds, LogWaiter};
use crate::state::exceptions::Matter;
use crate::state::mailbox::Message;
use crate::state::reply_gate::ReplyGate;

const PAGE_BYTES: u64 = 4096;
/// A start with more segments than this takes a checkpoint, which sets some free.
const SEGMENTS_AT_START: usize = 8;
/// Of `WAITAOF`, in the words of Redis.
pub const NO_LOG: &str = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

struct Watcher {
    gate: Arc<ReplyGate>,
    /// The store has this, and the server has the store.
    server: Weak<Server>,
}

/// Lets a server hear of its store's log, from before the log is read.
pub fn watch(server: &Arc<Server>) {
    let watcher = Watcher { gate: server.reply_gate.clone(), server: Arc::downgrade(server) };
    server.store.log().watch(Arc::new(watcher));
}

impl LogWatcher for Watcher {
    fn appended(&self, worker: WorkerId, end_offset: u64) {
        self.gate.note_unit(worker, end_offset);
    }

    fn durable(&self, to_offset: u64) {
        self.gate.durable(to_offset);
        self.server.upgrade().into_iter().for_each(|server| answer_waiters(&server));
    }

    fn room(&self, is_there: bool) {
        let Some(server) = self.server.upgrade() else { return };
        server.exceptions.set(Matter::LOG_FULL, !is_there);
        if is_there {
            server.wake_paused();
        } else if server.data_log.may_tell_of_wait() {
            log::warning(
                "Changes wait for the log, reads go on: its disk is slow, or 'log-memory' is small (told once a minute)",
            );
        }
    }

    fn no_space(&self, is_so: bool) {
        let Some(server) = self.server.upgrade() else { return };
        server.exceptions.set(Matter::LOG_NO_SPACE, is_so);
        if is_so {
            log::warning(
                "There is no space for the log: what stores more is refused, what removes goes on, and a checkpoint is \
                 taken, which frees the log before it",
            );
            server.saver.schedule(Target::Pages);
        } else {
            log::notice("There is space for the log again");
        }
    }

    fn failed(&self, reason: &str) {
        let Some(server) = self.server.upgrade() else { return };
        log::warning(format!("The log cannot be written: {reason}"));
        server.data_log.set_failure(Some(reason));
        server.exceptions.set(Matter::LOG_FAILED, true);
        self.gate.failed();
        let config = server.config();
        let log = &config.settings.log;
        if log.sync == SyncPolicy::Always && log.exits_on_error {
            log::warning(
                "Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting... ('log-error' is 'exit')",
            );
            server.data_log.set_fatal(reason);
            server.stop();
        }
    }

    fn renewed(&self, at_offset: u64) {
        let Some(server) = self.server.upgrade() else { return };
        log::notice("A new log has begun with the checkpoint: changes are taken again");
        server.data_log.set_failure(None);
        server.exceptions.set(Matter::LOG_FAILED, false);
        self.gate.mend(at_offset);
    }
}

/// How far the log goes that a start would replay, if there is one.
pub fn ends(server: &Server) -> Option<LogEnds> {
    let report = server.store.log().report();
    let journal = report.journal.filter(|_| report.is_named)?;
    Some(LogEnds { end: journal.end.0, durable: journal.durable.0 })
}

/// Answers those in `WAITAOF` whose wait is over, or whose time is, and all of them once there is to be no log.
pub fn answer_waiters(server: &Server) {
    if !server.data_log.has_waiters() {
        return;
    }
    let (is_on, ends) = (server.config().settings.log.is_on, ends(server));
    let due = if is_on { server.data_log.take_due(ends) } else { server.data_log.take_all() };
    for waiter in due {
        match waiter.is_local && !is_on {
            true => answer_with_error(server, &waiter, NO_LOG),
            false => answer(server, &waiter, waiter.is_satisfied(ends)),
        }
    }
}

/// Ends a client's `WAITAOF` before its time. Returns whether the client was in one.
pub fn end_wait(server: &Server, client: u64, error: Option<&str>) -> bool {
    let Some(waiter) = server.data_log.take_of_client(client) else { return false };
    match error {
        Some(text) => answer_with_error(server, &waiter, text),
        None => answer(server, &waiter, waiter.is_satisfied(ends(server))),
    }
    true
}

/// The peer of a client sends no more, and may be gone: a `WAITAOF` without end must not keep the connection.
pub fn end_wait_of_silent(server: &Server, client: u64) {
    let syncs = server.config().settings.log.sync != SyncPolicy::Never;
    // The next sync ends the wait by itself.
    if !syncs || server.store.log().report().status != LogStatus::On {
        end_wait(server, client, None);
    }
}

fn answer(server: &Server, waiter: &LogWaiter, is_durable: bool) {
    send(server, waiter, format!("*2\r\n:{}\r\n:0\r\n", u8::from(is_durable)));
}

fn answer_with_error(server: &Server, waiter: &LogWaiter, text: &str) {
    server.count_error(text.as_bytes());
    send(server, waiter, format!("-{text}\r\n"));
}

fn send(server: &Server, waiter: &LogWaiter, reply: String) {
    server.send(&waiter.client, |token| Message::Reply(token, waiter.reply, reply.into_bytes().into()));
}

/// Takes what the settings say of the log into force, where it has changed.
pub fn apply(server: &Arc<Server>, settings: &Settings) {
    let (door, wanted) = (server.store.log(), settings.log_options());
    let before = door.options();
    if settings.log.holds_replies() {
        // Before the first unit that is to be waited for.
        server.reply_gate.set_holding(true);
    }
    if before != wanted {
        door.set(wanted);
    }
    if !settings.log.holds_replies() && server.reply_gate.is_holding() {
        release(server);
    }
    if before.is_some() != wanted.is_some() {
        // It begins, or ends, with a checkpoint.
        server.saver.schedule(Target::Pages);
        answer_waiters(server);
    }
}

/// Lets all replies go once what they tell of is durable; by a thread of its own, since that waits for the disk.
fn release(server: &Arc<Server>) {
    let at_thread = server.clone();
    let run = move || {
        // If the log has failed the replies have been dropped.
        let _ = at_thread.store.log().sync();
        if !at_thread.config().settings.log.holds_replies() {
            at_thread.reply_gate.set_holding(false);
        }
    };
    if std::thread::Builder::new().name("log-release".into()).spawn(run).is_err() {
        log::warning("No thread can be started: replies wait on as with 'appendfsync always'");
    }
}

/// Replies wait from the first command on, if they are to; to be called before clients are let in.
pub fn begin(server: &Server) {
    let config = server.config();
    server.reply_gate.set_holding(config.settings.log.holds_replies());
    let report = server.store.log().report();
    let Some(journal) = report.journal else { return };
    server.reply_gate.durable(journal.durable.0);
    // Each start takes a new segment.
    if report.replay_bytes > config.settings.log.replay_limit_bytes / 2
        || journal.segment_count > SEGMENTS_AT_START
    {
        server.saver.schedule(Target::Pages);
    }
}

/// Takes a checkpoint if the log has grown enough since the last one.
pub fn check_growth(server: &Server, settings: &Settings) {
    if !settings.log.is_on {
        return;
    }
    if server.data_log.has_given_up(server.store.damage().skip_stats().given_up_count) {
        // What is given up with a lost page is in no unit: a replay must not begin before.
        server.saver.schedule(Target::Pages);
    }
    let (log, report) = (&settings.log, server.store.log().report());
    if matches!(report.status, LogStatus::Off | LogStatus::Beginning | LogStatus::Failed) {
        // The checkpoint that begins a log has failed, or is to come.
        return server.saver.start_for_log("The log begins with a checkpoint");
    }
    if report.journal.as_ref().is_some_and(|journal| journal.no_space) {
        // The log reaches back to the checkpoint before the newest: only a second one frees what was written before the first. And what a
        // failed one has been given comes back with one that succeeds.
        return server.saver.start_for_log("There is no space for the log");
    }
    let replay_bytes = report.replay_bytes;
    let data_bytes = server.store.pool().stats().allocated_pages * PAGE_BYTES;
    let has_grown = log.rewrite_percent > 0
        && replay_bytes >= log.rewrite_min_bytes
        && u128::from(replay_bytes) * 100 >= u128::from(data_bytes) * u128::from(log.rewrite_percent);
    if has_grown || replay_bytes >= log.replay_limit_bytes {
        server.saver.start_for_log(&format!("The log has {replay_bytes} bytes since the last checkpoint"));
    }
}
