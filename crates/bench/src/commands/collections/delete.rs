//! `delete`: small commands while a large collection is deleted, against those before.

use serde_json::{json, Value};

use super::args::Part;
use super::report::Report;
use super::setting::{wait, Setting};
use crate::bar::Bar;
use crate::clock::{now_ns, NS_PER_MS, NS_PER_S};
use crate::commands::fill;
use crate::commands::memory::used_bytes;
use crate::error::Result;
use crate::load::collections::{Data, Kind};
use crate::load::phase::Phase;
use crate::load::workload::key_name;
use crate::load::{KeyChoice, Workload, WorkloadSpec};
use crate::output::{human_ns, markdown_table};
use crate::peer::{Peer, Server};
use crate::resp::Client;
use crate::stats::{median_of, with_range};

const MOST_TIMES: f64 = 1.2;
/// Trees of elements, of blocks, and both of a sorted set's.
const KINDS: [Kind; 3] = [Kind::Hash, Kind::List, Kind::SortedSet];
/// Strings beside.
const SMALL_KEYS: u64 = 10_000;
const SMALL_BYTES: usize = 100;
/// At least so long is looked at: p99.9 needs some thousand requests.
const LEAST_NS: u64 = NS_PER_S;
/// Memory that has not shrunk for so long shrinks no more.
const AT_REST_NS: u64 = 200 * NS_PER_MS;
const LONGEST_NS: u64 = 120 * NS_PER_S;
const POLL_NS: u64 = 20 * NS_PER_MS;

struct Deletion {
    peer: String,
    kind: Kind,
    round: usize,
    element_count: u64,
    before: Phase,
    during: Phase,
    answered_ns: u64,
    freed_ns: u64,
    sent_late_max_ns: u64,
}

/// When it was asked for, answered, and all its memory free.
struct Times {
    begin_ns: u64,
    answered_ns: u64,
    freed_ns: u64,
}

pub fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut all: Vec<Deletion> = Vec::new();
    for kind in KINDS {
        for round in 0..setting.args.rounds {
            for peer in &setting.peers {
                match measure(setting, peer, kind, round) {
                    Ok(deletion) => all.push(deletion),
                    Err(error) => {
                        report.fail(Part::Delete, &peer.name, &format!("DEL of a {}", kind.name()), &error);
                    }
                }
            }
        }
    }
    for deletion in &all {
        report.record(Part::Delete, deletion.json());
    }
    if let Some(judged) = setting.judged() {
        for kind in KINDS {
            let own = all.iter().filter(|one| one.peer == judged && one.kind == kind);
            let what = format!("small commands while DEL of a {} works: p99.9 against before", kind.name());
            report.bar(Bar::at_most(what, MOST_TIMES, " x", median_of(own.map(Deletion::times))));
        }
    }
    report.section("A deletion", &table(setting, &all));
    Ok(())
}

/// Under the strings' keys there are none of the collection's.
fn small(setting: &Setting, keys: KeyChoice) -> WorkloadSpec {
    let sets = WorkloadSpec::sets(SMALL_KEYS, SMALL_BYTES, keys, setting.args.seed);
    WorkloadSpec { first_key: 1, ..sets }
}

fn measure(setting: &Setting, peer: &Peer, kind: Kind, round: usize) -> Result<Deletion> {
    let data = Data::one(kind, setting.args.elements);
    let name = format!("delete-{}-{round}", kind.count_command());
    let server = setting.filled(peer, &name, data)?;
    fill::fill(&server.target, small(setting, KeyChoice::Once))?;
    wait(setting.before_ns().min(NS_PER_S), &|| false)?;
    let mixed = WorkloadSpec { get_percent: 50, ..small(setting, KeyChoice::Uniform) };
    let requests = Workload::new(mixed)?.reseeded(round as u64);
    let (load, times) = setting.paced(&server, requests, |has_ended| {
        wait(setting.before_ns() / 4, has_ended)?;
        wait(setting.before_ns(), has_ended)?;
        deleted(setting, &server, has_ended)
    })?;
    setting.stop(server, &name)?;
    let samples = load.recording.samples();
    let end_ns = times.freed_ns.max(times.begin_ns + least_ns(setting));
    Ok(Deletion {
        peer: peer.name.clone(),
        kind,
        round,
        element_count: data.element_count,
        before: Phase::of(samples, times.begin_ns - setting.before_ns(), times.begin_ns),
        during: Phase::of(samples, times.begin_ns, end_ns),
        answered_ns: times.answered_ns - times.begin_ns,
        freed_ns: times.freed_ns - times.begin_ns,
        sent_late_max_ns: load.lateness.map_or(0, |lateness| lateness.histogram.max()),
    })
}

fn least_ns(setting: &Setting) -> u64 {
    LEAST_NS.min(setting.before_ns())
}

fn deleted(setting: &Setting, server: &Server, has_ended: &dyn Fn() -> bool) -> Result<Times> {
    let mut client = server.client()?;
    let whole_bytes = used_bytes(&mut client)?;
    let begin_ns = now_ns();
    client.call(&["DEL", &key_name(0)])?;
    let answered_ns = now_ns();
    let freed_ns = freed(server, &mut client, whole_bytes, has_ended)?;
    // The load goes on for as long as is looked at.
    wait((begin_ns + least_ns(setting)).saturating_sub(now_ns()), has_ended)?;
    Ok(Times { begin_ns, answered_ns, freed_ns })
}

/// When the server's own count of its memory has shrunk for the last time.
fn freed(
    server: &Server,
    client: &mut Client,
    whole_bytes: u64,
    has_ended: &dyn Fn() -> bool,
) -> Result<u64> {
    let begin_ns = now_ns();
    let (mut least_bytes, mut at_ns) = (u64::MAX, begin_ns);
    loop {
        server.pin();
        let bytes = used_bytes(client)?;
        let time_ns = now_ns();
        // Requests on their way make it go up and down a little.
        if bytes + whole_bytes / 1000 < least_bytes {
            (least_bytes, at_ns) = (bytes, time_ns);
        }
        if time_ns - at_ns > AT_REST_NS || time_ns - begin_ns > LONGEST_NS {
            return Ok(at_ns);
        }
        wait(POLL_NS, has_ended)?;
    }
}

impl Deletion {
    fn times(&self) -> f64 {
        self.during.p999_ns as f64 / self.before.p999_ns.max(1) as f64
    }

    fn json(&self) -> Value {
        json!({
            "peer": self.peer, "kind": self.kind.name(), "round": self.round + 1, "elements": self.element_count,
            "before": self.before.json(), "during": self.during.json(),
            "answered_us": self.answered_ns as f64 / 1e3, "freed_us": self.freed_ns as f64 / 1e3,
            "sent_late_max_us": self.sent_late_max_ns as f64 / 1e3,
        })
    }
}

fn table(setting: &Setting, all: &[Deletion]) -> String {
    let header = [
        "collection",
        "server",
        "p99 before",
        "p99 during",
        "p99.9 before",
        "p99.9 during",
        "times",
        "worst",
        "DEL answered",
        "freed",
    ];
    let mut rows = Vec::new();
    for (kind, peer) in KINDS.iter().flat_map(|kind| setting.peers.iter().map(move |peer| (kind, peer))) {
        let of = |of: fn(&Deletion) -> f64, show: &dyn Fn(f64) -> String| {
            let own = all.iter().filter(|one| one.kind == *kind && one.peer == peer.name);
            with_range(&own.map(of).collect::<Vec<_>>(), show)
        };
        rows.push(vec![
            kind.name().to_owned(),
            peer.name.clone(),
            of(|one| one.before.p99_ns as f64, &human_ns),
            of(|one| one.during.p99_ns as f64, &human_ns),
            of(|one| one.before.p999_ns as f64, &human_ns),
            of(|one| one.during.p999_ns as f64, &human_ns),
            of(Deletion::times, &|times| format!("{times:.2} x")),
            of(|one| one.during.max_ns as f64, &human_ns),
            of(|one| one.answered_ns as f64, &human_ns),
            of(|one| one.freed_ns as f64, &human_ns),
        ]);
    }
    let late = all.iter().map(|one| one.sent_late_max_ns).max().unwrap_or(0);
    format!(
        "{} GET and SET a second, half and half, on {SMALL_KEYS} strings of {SMALL_BYTES} B while one collection of {} \
         elements is deleted: from DEL until the memory is free, at least a second. Latency is from the time when each was \
         due; the generator was at most {} late.\n\n{}",
        setting.args.rate,
        setting.args.elements,
        human_ns(late as f64),
        markdown_table(&header, &rows)
    )
}
