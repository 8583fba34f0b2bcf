//! `LATENCY`: spikes and histograms.

mod graph;

use hdrhistogram::Histogram;

use crate::command::CommandId;
use crate::command::{flag, CmdResult, Group, Touch};
use crate::dispatch::ctx::{Command, Ctx, Found};
use crate::protocol::args::Args;
use crate::server::Server;
use crate::state::stats::new_histogram;

pub use graph::graph;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::container("latency", -2, 0)
        .acl(0)
        .doc(Group::Server, "2.8.13", "A container for latency diagnostics commands", "Depends on subcommand."),
    Command::new("latency|doctor", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, doctor)
        .acl(0)
        .doc(Group::Server, "2.8.13", "Return a human readable latency analysis report.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    Command::new("latency|graph", 3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, graph)
        .acl(0)
        .doc(Group::Server, "2.8.13", "Return a latency graph for the event.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    Command::new("latency|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help)
        .acl(0)
        .doc(Group::Server, "2.8.13", "Show helpful text about the different subcommands.", "O(1)"),
    Command::new("latency|histogram", -2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, histogram)
        .acl(0)
        .doc(Group::Server, "7.0.0", "Return the cumulative distribution of latencies of a subset of commands or all.", "O(N) where N is the number of commands with latency information being retrieved.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    Command::new("latency|history", 3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, history)
        .acl(0)
        .doc(Group::Server, "2.8.13", "Return timestamp-latency samples for the event.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    Command::new("latency|latest", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, latest)
        .acl(0)
        .doc(Group::Server, "2.8.13", "Return the latest latency samples for all events.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    Command::new("latency|reset", -2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, reset)
        .acl(0)
        .doc(Group::Server, "2.8.13", "Reset latency data for one or more events.", "O(1)")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
];

/// First bucket of `LATENCY HISTOGRAM`, in nanoseconds; each is twice the one before.
const FIRST_BUCKET_NS: u64 = 1024;
const BUCKET_COUNT: u32 = 21;

const DISABLED: &str = "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You \
    may use \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it. If we weren't in a deep \
    space mission I'd suggest to take a look at https://redis.io/topics/latency-monitor.\n";
const NO_SPIKES: &str = "Dave, no latency spike was observed during the lifetime of this Redis instance, not in the \
    slightest bit. I honestly think you ought to sit down calmly, take a stress pill, and think things over.\n";

/// The times of a command on all workers, in nanoseconds; `None` if it has not run.
pub fn command_times(server: &Server, id: CommandId) -> Option<Box<Histogram<u64>>> {
    let mut all: Option<Box<Histogram<u64>>> = None;
    for worker in &server.workers {
        if let Some(times) = &*worker.stats.command(id).times_ns.lock() {
            match &mut all {
                // Both have the same bounds.
                Some(all) => drop(all.add(&**times)),
                None => all = Some(times.clone()),
            }
        }
    }
    all
}

/// Buckets with their upper bounds in microseconds and the number of values up to there; only those that add
/// something.
fn cumulative(times: &Histogram<u64>) -> Vec<(u64, u64)> {
    let mut buckets = Vec::new();
    let mut last = 0;
    for power in 0..BUCKET_COUNT {
        let bound = times.highest_equivalent(FIRST_BUCKET_NS << power);
        let count = times.count_between(0, bound);
        if count > last {
            buckets.push((bound / 1000, count));
            last = count;
        }
    }
    buckets
}

pub fn histogram(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let mut wanted: Vec<Found> = Vec::new();
    if args.len() == 2 {
        wanted.extend(ctx.registry.rows().iter().filter_map(|row| ctx.registry.find(row.name.as_bytes())));
    }
    for name in args.from(2) {
        let Some(found) = ctx.registry.find(name) else { continue };
        if found.command.is_container {
            wanted.extend(ctx.registry.subcommands(found.id));
        } else {
            wanted.push(found);
        }
    }
    let with_times: Vec<_> =
        wanted.into_iter().filter_map(|f| command_times(ctx.server, f.id).map(|times| (f, times))).collect();
    let reply = &mut ctx.reply;
    reply.map(with_times.len());
    for (found, times) in with_times {
        reply.bulk(found.command.name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.int(times.len() as i64);
        reply.bulk(b"histogram_usec");
        let buckets = cumulative(&times);
        reply.map(buckets.len());
        for (bound, count) in buckets {
            reply.int(bound as i64);
            reply.int(count as i64);
        }
    }
    Ok(())
}

pub fn latest(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    let events = ctx.server.latency.events.lock();
    ctx.reply.array(events.len());
    for (name, series) in events.iter() {
        ctx.reply.array(4);
        ctx.reply.bulk(name.as_bytes());
        let (at, latency_ms) = series.samples.last().map_or((0, 0), |s| (s.unix_seconds, s.latency_ms));
        for number in [at, latency_ms, series.max_ms] {
            ctx.reply.int(number as i64);
        }
    }
    Ok(())
}

pub fn history(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let events = ctx.server.latency.events.lock();
    let series = events.iter().find(|(name, _)| name.as_bytes() == args.at(2)).map(|(_, series)| series);
    let samples = series.map_or(&[][..], |s| &s.samples);
    ctx.reply.array(samples.len());
    for sample in samples {
        ctx.reply.array(2);
        ctx.reply.int(sample.unix_seconds as i64);
        ctx.reply.int(sample.latency_ms as i64);
    }
    Ok(())
}

pub fn reset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let mut events = ctx.server.latency.events.lock();
    let before = events.len();
    if args.len() == 2 {
        events.clear();
    } else {
        events.retain(|name, _| !args.from(2).any(|given| given == name.as_bytes()));
    }
    ctx.reply.int((before - events.len()) as i64);
    Ok(())
}

pub fn doctor(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    let Some(threshold) = ctx.config.settings.latency_threshold else {
        ctx.reply.verbatim(DISABLED.as_bytes());
        return Ok(());
    };
    let events = ctx.server.latency.events.lock();
    if events.is_empty() {
        ctx.reply.verbatim(NO_SPIKES.as_bytes());
        return Ok(());
    }
    let mut report = format!(
        "Dave, I have observed latency spikes in this Redis instance (threshold {} milliseconds).\n\n",
        threshold.as_millis()
    );
    for (number, (name, series)) in events.iter().enumerate() {
        let count = series.samples.len().max(1) as u64;
        let mean_ms = series.samples.iter().map(|s| s.latency_ms).sum::<u64>() / count;
        report.push_str(&format!(
            "{}. {name}: {count} latency spikes (average {mean_ms}ms, worst all time event {}ms).\n",
            number + 1,
            series.max_ms
        ));
    }
    report.push_str(
        "\n- Check your Slow Log to understand what are the commands you are running which are too slow to \
         execute. Please check https://redis.io/commands/slowlog for more information.\n\
         - INFO stillframe shows the waits of snapshots: barrier, capture, fsync.\n",
    );
    ctx.reply.verbatim(report.as_bytes());
    Ok(())
}

/// The times of all commands of all workers together.
pub fn all_times(server: &Server) -> Option<Box<Histogram<u64>>> {
    let mut all = new_histogram()?;
    for row in 0..server.workers[0].stats.command_count() {
        if let Some(times) = command_times(server, CommandId(row as u16)) {
            all.add(&*times).ok()?;
        }
    }
    Some(all)
}

pub fn help(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.help(
        "LATENCY",
        &[
            "DOCTOR",
            "    Return a human readable latency analysis report.",
            "GRAPH <event>",
            "    Return an ASCII latency graph for the <event> class.",
            "HISTORY <event>",
            "    Return time-latency samples for the <event> class.",
            "LATEST",
            "    Return the latest latency samples for all events.",
            "RESET [<event> ...]",
            "    Reset latency data of one or more <event> classes.",
            "    (default: reset all data for all event classes)",
            "HISTOGRAM [COMMAND ...]",
            "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
            "    If no commands are specified then all histograms are replied.",
        ],
    );
    Ok(())
}
