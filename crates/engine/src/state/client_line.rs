//! A client as `CLIENT LIST` shows it.

use std::sync::atomic::Ordering::Relaxed;

use stillframe_store::UnixMillis;

use crate::command::Registry;
use crate::protocol::reply::UNCOUNTED_OUTPUT_BYTES;
use crate::state::clients::{client_flag, ClientInfo};
use crate::state::door::DoorKind;
use crate::state::session::{Ending, Session};
use crate::state::subscription::Kind;

/// Tells the others what a session looks like now.
pub fn publish_session(session: &Session, info: &ClientInfo) {
    let to = &info.published;
    let mut flags = 0;
    let mut set = |flag: u32, is_on: bool| flags |= if is_on { flag } else { 0 };
    set(client_flag::MULTI, session.transaction.is_some());
    set(client_flag::WATCH_RAISED, !session.watched.is_empty() && session.watch_flag.is_raised());
    set(client_flag::CLOSING, session.ending != Ending::Open);
    set(client_flag::MONITOR, session.is_monitor);
    set(client_flag::BLOCKED, session.late.is_awaited());
    set(client_flag::PUBSUB, !session.subscriptions.is_empty());
    set(client_flag::NO_EVICT, session.no_evict);
    set(client_flag::NO_TOUCH, session.no_touch);
    to.flags.store(flags, Relaxed);
    to.db.store(session.db.0, Relaxed);
    to.resp3.store(session.resp3, Relaxed);
    for (kind, count) in Kind::ALL.into_iter().zip(&to.subscription_counts) {
        count.store(session.subscriptions.of(kind).len() as u32, Relaxed);
    }
    let (count, bytes) =
        session.transaction.as_ref().map_or((-1, 0), |t| (t.queued.len() as i64, t.bytes as usize));
    to.multi_count.store(count, Relaxed);
    to.multi_bytes.store(bytes, Relaxed);
    to.last_command.store(session.last_command.map_or(0, |id| u32::from(id.0) + 1), Relaxed);
}

/// The flags as letters, `N` if there are none.
fn flag_letters(info: &ClientInfo) -> String {
    let flags = info.published.flags.load(Relaxed);
    let mut letters: String = [
        (client_flag::MONITOR, 'O'),
        (client_flag::PUBSUB, 'P'),
        (client_flag::BLOCKED, 'b'),
        (client_flag::MULTI, 'x'),
        (client_flag::WATCH_RAISED, 'd'),
        (client_flag::CLOSING, 'c'),
        (client_flag::NO_EVICT, 'e'),
        (client_flag::NO_TOUCH, 'T'),
    ]
    .iter()
    .filter(|(flag, _)| flags & flag != 0)
    .map(|(_, letter)| *letter)
    .collect();
    if info.door == DoorKind::Unix {
        letters.push('U');
    }
    if letters.is_empty() {
        letters.push('N');
    }
    letters
}

/// A line of `CLIENT LIST`, without its end.
pub fn describe<H>(info: &ClientInfo, now: UnixMillis, registry: &Registry<H>) -> Vec<u8> {
    let published = &info.published;
    let names = info.names.lock().clone();
    let age = info.connected_at.elapsed().as_secs();
    let idle = (now - published.last_active_unix_ms.load(Relaxed)).max(0) / 1000;
    let command = match published.last_command.load(Relaxed).checked_sub(1) {
        Some(row) => registry.rows()[row as usize].name,
        None => "NULL",
    };
    let (input, input_free) = (published.input_bytes.load(Relaxed), published.input_free_bytes.load(Relaxed));
    let (output, output_capacity) =
        (published.output_bytes.load(Relaxed), published.output_capacity_bytes.load(Relaxed));
    // As Redis has it: the first bytes in a buffer of their own, what is more in a list that the limits count.
    let first = output.min(UNCOUNTED_OUTPUT_BYTES);
    let (list_len, list_bytes) =
        if output > first { (1, output_capacity.saturating_sub(UNCOUNTED_OUTPUT_BYTES)) } else { (0, 0) };
    let multi_bytes = published.multi_bytes.load(Relaxed);
    let argv_bytes = published.argv_bytes.load(Relaxed);
    let total = published.total_bytes.load(Relaxed);
    let [channels, patterns, shards] =
        [0, 1, 2].map(|kind: usize| published.subscription_counts[kind].load(Relaxed));
    let mut line =
        format!("id={} addr={} laddr={} fd={} name=", info.id, info.addr, info.laddr, info.fd).into_bytes();
    line.extend_from_slice(&names.name);
    line.extend_from_slice(
        format!(
            " age={age} idle={idle} flags={} db={} sub={channels} psub={patterns} ssub={shards} multi={} qbuf={input} qbuf-free={input_free} \
             argv-mem={argv_bytes} multi-mem={multi_bytes} rbs={} rbp={first} obl={first} oll={list_len} omem={list_bytes} tot-mem={total} events=r \
             cmd={command} user=default redir=-1 resp={}",
            flag_letters(info),
            published.db.load(Relaxed),
            published.multi_count.load(Relaxed),
            output_capacity.min(UNCOUNTED_OUTPUT_BYTES),
            if published.resp3.load(Relaxed) { 3 } else { 2 },
        )
        .as_bytes(),
    );
    line.extend_from_slice(b" lib-name=");
    line.extend_from_slice(&names.lib_name);
    line.extend_from_slice(b" lib-ver=");
    line.extend_from_slice(&names.lib_version);
    line
}
