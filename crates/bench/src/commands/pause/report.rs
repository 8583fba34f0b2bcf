//! The table, the raw files and the plot.

use std::fmt::Write;

use serde_json::{json, Value};

use super::config::Config;
use super::restart::Restart;
use super::round::{Round, Save};
use crate::clock::{NS_PER_MS, NS_PER_S};
use crate::error::Result;
use crate::load::phase::Phase;
use crate::load::recording::{histogram_us, BUCKET_NS};
use crate::output::{human_bytes, human_ns, markdown_table, thousands, Output, RESULTS};
use crate::plot::{draw, Figure, LatencyPanel, MemorySeries, COLORS};
use crate::stats::{median, with_range};

const PLOT: &str = "plot.svg";
const LATENCY: &str = "latency.csv";
const MEMORY: &str = "memory.csv";

pub fn write(config: &Config, rounds: &[Round], out: &Output) -> Result<()> {
    let peers = peer_names(rounds);
    out.write_json(&rounds.iter().map(round_json).collect::<Vec<_>>())?;
    out.write_csv(LATENCY, LATENCY_COLUMNS, &latency_rows(config, rounds))?;
    out.write_csv(MEMORY, "peer,round,save,ms_from_cut,bytes,processes", &memory_rows(config, rounds))?;
    out.write(PLOT, draw(&figure(config, rounds, &peers)).as_bytes())?;
    let mut body = summary(rounds, &peers);
    body.push_str("\n## Each save\n\n");
    body.push_str(&each_save(rounds));
    body.push_str(&late_generator(rounds));
    let _ = write!(
        body,
        "\n![latency and memory over time]({PLOT})\n\nRaw data: {RESULTS}, {LATENCY}, {MEMORY}\n"
    );
    out.write_markdown(&body)
}

fn peer_names(rounds: &[Round]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for round in rounds {
        if !names.contains(&round.peer) {
            names.push(round.peer.clone());
        }
    }
    names
}

/// One figure of a save.
struct Measure {
    name: &'static str,
    of: fn(&Save) -> f64,
    show: fn(f64) -> String,
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2} x")
}

fn percent(value: f64) -> String {
    format!("{value:.1} %")
}

const MEASURES: [Measure; 14] = [
    Measure {
        name: "worst of a second, before (median)",
        of: |s| s.before.typical_second_max_ns(),
        show: human_ns,
    },
    Measure {
        name: "worst of the first second after the cut",
        of: |s| s.first_second.max_ns as f64,
        show: human_ns,
    },
    Measure {
        name: "- times before",
        of: |s| s.first_second.max_ns as f64 / s.before.typical_second_max_ns().max(1.0),
        show: times,
    },
    Measure { name: "worst during the save", of: |s| s.during.max_ns as f64, show: human_ns },
    Measure { name: "p99.9 before", of: |s| s.before.p999_ns as f64, show: human_ns },
    Measure { name: "p99.9 during the save", of: |s| s.during.p999_ns as f64, show: human_ns },
    Measure {
        name: "- times before",
        of: |s| s.during.p999_ns as f64 / s.before.p999_ns.max(1) as f64,
        show: times,
    },
    Measure { name: "memory before", of: |s| s.memory.before_bytes as f64, show: human_bytes },
    Measure {
        name: "extra memory during the save",
        of: |s| s.memory.extra_bytes() as f64,
        show: human_bytes,
    },
    Measure { name: "- of before", of: |s| s.memory.extra_percent(), show: percent },
    Measure {
        name: "- without growth of the data",
        of: |s| s.memory.over_growth_bytes as f64,
        show: human_bytes,
    },
    Measure { name: "memory after", of: |s| s.memory.after_bytes as f64, show: human_bytes },
    Measure {
        name: "BGSAVE answered after",
        of: |s| (s.times.accepted_ns - s.times.begin_ns) as f64,
        show: human_ns,
    },
    Measure { name: "time of the save", of: |s| s.times.save_ns() as f64, show: human_ns },
];

fn summary(rounds: &[Round], peers: &[String]) -> String {
    let saves_of =
        |peer: &str| rounds.iter().filter(|r| r.peer == *peer).flat_map(|r| &r.saves).collect::<Vec<_>>();
    let mut header: Vec<&str> = vec!["median over saves (range)"];
    header.extend(peers.iter().map(String::as_str));
    let ratio_title = (peers.len() == 2).then(|| format!("{} / {}", peers[0], peers[1]));
    header.extend(ratio_title.as_deref());
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut add = |name: &str, values: Vec<Vec<f64>>, show: &dyn Fn(f64) -> String| {
        let mut row = vec![name.to_owned()];
        row.extend(values.iter().map(|v| with_range(v, show)));
        if let [a, b] = values.as_slice() {
            let (a, b) = (median(a), median(b));
            row.push(if b > 0.0 && a > 0.0 { format!("{:.2}", a / b) } else { "n/a".to_owned() });
        }
        rows.push(row);
    };
    for measure in &MEASURES {
        let values = peers.iter().map(|p| saves_of(p).into_iter().map(measure.of).collect()).collect();
        add(measure.name, values, &measure.show);
    }
    let restarts = |of: fn(&Restart) -> u64| -> Vec<Vec<f64>> {
        let times = |peer: &String| {
            let of_peer = rounds.iter().filter(|r| r.peer == *peer);
            of_peer.filter_map(|r| r.restart.as_ref()).map(|r| of(r) as f64).collect()
        };
        peers.iter().map(times).collect()
    };
    add("restart to the first correct reply", restarts(|r| r.first_reply_ns), &human_ns);
    add("restart to fully warm", restarts(|r| r.warm_ns), &human_ns);
    let files =
        peers.iter().map(|p| rounds.iter().filter(|r| r.peer == *p).map(|r| r.dump_bytes as f64).collect());
    add("files on disk after the save", files.collect(), &human_bytes);
    let counts: Vec<_> = peers.iter().map(|p| format!("{} of {p}", saves_of(p).len())).collect();
    format!("{}\nSaves: {}. {}\n", markdown_table(&header, &rows), counts.join(", "), cache_note(rounds))
}

fn cache_note(rounds: &[Round]) -> &'static str {
    let mut restarts = rounds.iter().filter_map(|r| r.restart.as_ref()).peekable();
    match (restarts.peek().is_some(), restarts.all(|r| r.page_cache_dropped)) {
        (false, _) => "Restarts were left out.",
        (true, true) => "Restarts began with a cold page cache.",
        (true, false) => {
            "RESTARTS BEGAN WITH A WARM PAGE CACHE: /proc/sys/vm/drop_caches could not be written (needs root)."
        }
    }
}

fn each_save(rounds: &[Round]) -> String {
    let header = [
        "server",
        "round.save",
        "1 s worst before",
        "first second",
        "during",
        "p99.9 before",
        "p99.9 during",
        "extra memory",
        "save",
        "stolen",
    ];
    let mut rows = Vec::new();
    for round in rounds {
        for (number, save) in round.saves.iter().enumerate() {
            rows.push(vec![
                round.peer.clone(),
                format!("{}.{}", round.number + 1, number + 1),
                human_ns(save.before.typical_second_max_ns()),
                human_ns(save.first_second.max_ns as f64),
                human_ns(save.during.max_ns as f64),
                human_ns(save.before.p999_ns as f64),
                human_ns(save.during.p999_ns as f64),
                format!(
                    "{} ({:.1} %)",
                    human_bytes(save.memory.extra_bytes() as f64),
                    save.memory.extra_percent()
                ),
                human_ns(save.times.save_ns() as f64),
                format!("{} ms", round.stolen_ms),
            ]);
        }
    }
    markdown_table(&header, &rows)
}

/// Says how late the generator itself was, which is part of every latency above.
fn late_generator(rounds: &[Round]) -> String {
    let mut rows = Vec::new();
    for round in rounds {
        let Some(lateness) = &round.report.lateness else { continue };
        let mut row = vec![round.peer.clone(), format!("{}", round.number + 1)];
        let h = &lateness.histogram;
        row.extend([50.0, 99.0, 99.9, 99.99].map(|p| human_ns(h.value_at_percentile(p) as f64)));
        row.push(human_ns(h.max() as f64));
        rows.push(row);
    }
    if rows.is_empty() {
        return String::new();
    }
    let header = ["server", "round", "p50", "p99", "p99.9", "p99.99", "max"];
    format!(
        "\n## How late the generator sent\n\nPart of every latency above; what is slow here is not the server.\n\n{}",
        markdown_table(&header, &rows)
    )
}

fn save_json(save: &Save) -> Value {
    json!({
        "save_s": save.times.save_ns() as f64 / 1e9,
        "bgsave_answered_us": (save.times.accepted_ns - save.times.begin_ns) as f64 / 1e3,
        "before": save.before.json(),
        "first_second": save.first_second.json(),
        "during": save.during.json(),
        "memory_before_bytes": save.memory.before_bytes,
        "memory_peak_bytes": save.memory.peak_bytes,
        "memory_after_bytes": save.memory.after_bytes,
        "memory_over_growth_bytes": save.memory.over_growth_bytes,
        "info_persistence": without_places(&save.info),
    })
}

fn round_json(round: &Round) -> Value {
    json!({
        "peer": round.peer,
        "round": round.number + 1,
        "saves": round.saves.iter().map(save_json).collect::<Vec<_>>(),
        "restart": round.restart.map(|r| json!({
            "first_reply_s": r.first_reply_ns as f64 / 1e9,
            "warm_s": r.warm_ns as f64 / 1e9,
            "page_cache_dropped": r.page_cache_dropped,
        })),
        "files_bytes": round.dump_bytes,
        "stolen_ms": round.stolen_ms,
        "load": round.report.json(),
        "send_lateness_us": round.report.lateness.as_ref().map(|l| histogram_us(&l.histogram)),
    })
}

const LATENCY_COLUMNS: &str = "peer,round,save,ms_from_cut,count,max_us,sent_late_max_us";

/// Calls `row` with every save of every round: (round, save number, save, from, to), in ns.
fn each_window(config: &Config, rounds: &[Round], mut row: impl FnMut(&Round, usize, &Save, u64, u64)) {
    for round in rounds {
        for (number, save) in round.saves.iter().enumerate() {
            row(round, number + 1, save, save.before_ns, save.times.end_ns + config.after_ns);
        }
    }
}

fn latency_rows(config: &Config, rounds: &[Round]) -> String {
    let mut rows = String::new();
    each_window(config, rounds, |round, number, save, from_ns, to_ns| {
        let recording = &round.report.recording;
        for (index, bucket) in recording.buckets.iter().enumerate() {
            let at_ns = recording.start_ns + index as u64 * BUCKET_NS;
            if !(from_ns..to_ns).contains(&at_ns) {
                continue;
            }
            let late_ns =
                round.report.lateness.as_ref().and_then(|l| l.buckets.get(index)).map_or(0, |b| b.max_ns);
            let _ = writeln!(
                rows,
                "{},{},{number},{:.1},{},{:.1},{:.1}",
                round.peer,
                round.number + 1,
                (at_ns as f64 - save.times.begin_ns as f64) / NS_PER_MS as f64,
                bucket.count,
                bucket.max_ns as f64 / 1e3,
                late_ns as f64 / 1e3
            );
        }
    });
    rows
}

fn memory_rows(config: &Config, rounds: &[Round]) -> String {
    let mut rows = String::new();
    each_window(config, rounds, |round, number, save, from_ns, to_ns| {
        for sample in round.memory.iter().filter(|s| (from_ns..to_ns).contains(&s.at_ns)) {
            let _ = writeln!(
                rows,
                "{},{},{number},{:.1},{},{}",
                round.peer,
                round.number + 1,
                (sample.at_ns as f64 - save.times.begin_ns as f64) / NS_PER_MS as f64,
                sample.bytes,
                sample.process_count
            );
        }
    });
    rows
}

fn figure(config: &Config, rounds: &[Round], peers: &[String]) -> Figure {
    let chosen: Vec<(&Round, &Save)> = peers.iter().filter_map(|p| typical_save(rounds, p)).collect();
    let longest_s = chosen.iter().map(|(_, s)| s.times.save_ns() as f64 / 1e9).fold(1.0, f64::max);
    let data = config.key_count as f64 * config.value_bytes as f64;
    let rate = if config.rate > 0.0 {
        format!("{} SET/s on a fixed schedule", thousands(config.rate as u64))
    } else {
        "SETs unthrottled".to_owned()
    };
    let from_s = -(config.before_ns as f64 / 1e9).min(longest_s.max(5.0));
    Figure {
        title: "What a save does to those who are being served".to_owned(),
        subtitle: format!(
            "{} of data in values of {} B, {rate}, uniform; latency from the {} send time",
            human_bytes(data),
            thousands(config.value_bytes as u64),
            if config.rate > 0.0 { "intended" } else { "actual" }
        ),
        from_s,
        to_s: longest_s + config.after_ns as f64 / 1e9,
        latency: chosen.iter().enumerate().map(|(i, (round, save))| latency_panel(config, round, save, i)).collect(),
        memory: chosen.iter().enumerate().map(|(i, (round, save))| memory_series(config, round, save, i)).collect(),
        footer: format!(
            "Each server's save with the median worst latency of the first second, of {}. Memory counts pages shared with a fork child once.",
            chosen.iter().map(|(r, _)| rounds.iter().filter(|x| x.peer == r.peer).map(|x| x.saves.len()).sum::<usize>()).max().unwrap_or(0)
        ),
    }
}

/// The save whose first second is the median one (the better of the two middle ones).
fn typical_save<'a>(rounds: &'a [Round], peer: &str) -> Option<(&'a Round, &'a Save)> {
    let mut saves: Vec<_> =
        rounds.iter().filter(|r| r.peer == peer).flat_map(|r| r.saves.iter().map(move |s| (r, s))).collect();
    saves.sort_by_key(|(_, s)| s.first_second.max_ns);
    saves.get(saves.len().saturating_sub(1) / 2).copied()
}

fn from_cut_s(save: &Save, at_ns: u64) -> f64 {
    (at_ns as f64 - save.times.begin_ns as f64) / 1e9
}

fn latency_panel(config: &Config, round: &Round, save: &Save, index: usize) -> LatencyPanel {
    let recording = &round.report.recording;
    let to_ns = save.times.end_ns + config.after_ns;
    let points = recording
        .buckets
        .iter()
        .enumerate()
        .map(|(i, b)| (recording.start_ns + i as u64 * BUCKET_NS, b))
        .filter(|(at_ns, b)| b.count > 0 && (save.before_ns..to_ns).contains(at_ns))
        .map(|(at_ns, b)| (from_cut_s(save, at_ns + BUCKET_NS / 2), b.max_ns as f64))
        .collect();
    let whole = Phase::of(recording.samples(), save.before_ns, to_ns);
    let before_s = ((save.times.begin_ns - save.before_ns) / NS_PER_S) as f64;
    let end_s = from_cut_s(save, to_ns);
    let step = |(i, ns): (usize, &u64)| {
        let start_s = i as f64 - before_s;
        (*ns > 0).then_some((start_s, (start_s + 1.0).min(end_s), *ns as f64))
    };
    LatencyPanel {
        name: round.peer.clone(),
        headline: format!(
            "worst of a second before {}, of the first second {}, p99.9 during {}",
            human_ns(save.before.typical_second_max_ns()),
            human_ns(save.first_second.max_ns as f64),
            human_ns(save.during.p999_ns as f64)
        ),
        color: COLORS[index % COLORS.len()],
        points,
        seconds: whole.per_second_max_ns.iter().enumerate().filter_map(step).collect(),
        save_end_s: save.times.save_ns() as f64 / 1e9,
    }
}

fn memory_series(config: &Config, round: &Round, save: &Save, index: usize) -> MemorySeries {
    let window = save.before_ns..save.times.end_ns + config.after_ns;
    let in_window = round.memory.iter().filter(|s| window.contains(&s.at_ns));
    MemorySeries {
        name: round.peer.clone(),
        color: COLORS[index % COLORS.len()],
        points: in_window.map(|s| (from_cut_s(save, s.at_ns), s.bytes as f64)).collect(),
        label: format!("+{:.1} %", save.memory.extra_percent()),
    }
}

/// What INFO tells, but for where things lie on this machine.
fn without_places(info: &crate::resp::Info) -> crate::resp::Info {
    info.iter()
        .filter(|(_, value)| !value.starts_with('/'))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
