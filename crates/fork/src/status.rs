//! The statistics as a table for people and as JSON for programs.

use std::fmt::Write;

use serde_json::{json, Map, Value};

use crate::abi::Statistics;
use crate::explain::{reason_name, refusal_name, Copier, REASONS, REFUSALS};
use crate::processes::{Processes, Refused};
use stillframe_units::{human_ns, thousands};

const BAR_WIDTH: u64 = 40;

/// Sums of a table of counters by who did the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    pub child: u64,
    pub helper: u64,
    pub parent: u64,
}

impl Shares {
    /// Reasons that this program does not know are counted as the parent's: all further ones are interruptions.
    pub fn of(tables: &[u64]) -> Self {
        let mut shares = Self::default();
        for (i, count) in tables.iter().enumerate() {
            match REASONS.get(i).map_or(Copier::Parent, |r| r.copier) {
                Copier::Child => shares.child += count,
                Copier::Helper => shares.helper += count,
                Copier::Parent => shares.parent += count,
            }
        }
        shares
    }

    pub fn total(self) -> u64 {
        self.child + self.helper + self.parent
    }
}

/// `processes`: nothing, if this program may not ask.
pub fn json(statistics: &Statistics, processes: Option<&Processes>) -> Value {
    let mut object = Map::new();
    let refused = |r: &Refused| json!({"pid": r.pid, "name": r.name, "why": r.why, "forks": r.fork_count, "since": r.since(), "last": r.last()});
    if let Some(processes) = processes {
        let all = processes.refused.iter().map(refused).collect();
        object.insert("processes_refused".to_owned(), Value::Array(all));
    }
    for (name, values) in statistics.fields() {
        let value = match name {
            "forks_refused" => by_name(&values, REFUSALS.len(), refusal_name),
            "tables_copied" | "tables_unshared" => by_name(&values, REASONS.len(), reason_name),
            _ if values.len() == 1 => json!(values[0]),
            _ => json!(values),
        };
        object.insert(name.to_owned(), value);
    }
    Value::Object(object)
}

/// Known names always, room for later ones only when it counts something.
fn by_name(values: &[u64], known: usize, name: fn(usize) -> String) -> Value {
    let shown = values.iter().enumerate().filter(|(i, count)| *i < known || **count > 0);
    Value::Object(shown.map(|(i, count)| (name(i), json!(count))).collect())
}

/// `processes`: nothing, if this program may not ask.
pub fn table(s: &Statistics, processes: Option<&Processes>) -> String {
    let mut text = String::new();
    forks(&mut text, s);
    copies(
        &mut text,
        "Async-fork: tables copied",
        &s.tables_copied,
        s.tables_deferred,
        "left to the child at fork",
    );
    copies(
        &mut text,
        "On-Demand-Fork: tables unshared",
        &s.tables_unshared,
        s.tables_shared,
        "shared at fork",
    );
    others(&mut text, s);
    interruptions(&mut text, s);
    refusals(&mut text, s);
    turned_back(&mut text, processes);
    text
}

/// Processes that opted in and fork as by default now.
fn turned_back(text: &mut String, processes: Option<&Processes>) {
    let Some(processes) = processes.filter(|p| !p.refused.is_empty()) else { return };
    text.push_str("\nOpted in, but their forks take the default path now\n");
    for r in &processes.refused {
        let what = format!("{} since {}, {} forks", r.why, r.since(), thousands(r.fork_count));
        line(text, &format!("process {} ({})", r.pid, r.name), &what);
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  {name:<46} {value}");
}

fn forks(text: &mut String, s: &Statistics) {
    text.push_str("Forks\n");
    line(text, "of the whole machine since the module's load", &thousands(s.forks_seen));
    line(text, "with Async-fork", &thousands(s.forks_async));
    line(text, "with On-Demand-Fork", &thousands(s.forks_odf));
    line(text, "opted in, but default fork (below: why)", &thousands(s.forks_refused.iter().sum()));
    line(text, "copies under way now", &thousands(s.sessions_live));
    line(text, "processes that share tables now", &thousands(s.odf_mms_live));
    let opted = s.forks_async + s.forks_odf;
    if opted > 0 {
        line(text, "time of fork in the parent: last", &human_ns(s.fork_ns_last as f64));
        line(text, "    mean, longest", &mean_and_max(s.fork_ns_total, opted, s.fork_ns_max));
    }
    if s.forks_async > 0 {
        line(text, "time until the child had all tables: last", &human_ns(s.child_copy_ns_last as f64));
        line(
            text,
            "    mean, longest",
            &mean_and_max(s.child_copy_ns_total, s.forks_async, s.child_copy_ns_max),
        );
    }
}

fn mean_and_max(total: u64, count: u64, max: u64) -> String {
    format!("{}, {}", human_ns(total as f64 / count.max(1) as f64), human_ns(max as f64))
}

fn copies(text: &mut String, title: &str, tables: &[u64], at_fork: u64, at_fork_name: &str) {
    let shares = Shares::of(tables);
    if at_fork == 0 && shares.total() == 0 {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    line(text, at_fork_name, &thousands(at_fork));
    let share = |count: u64| {
        format!("{} ({:.1} %)", thousands(count), 100.0 * count as f64 / shares.total().max(1) as f64)
    };
    line(text, "by the child", &share(shares.child));
    line(text, "by its copy threads", &share(shares.helper));
    line(text, "by the parent, of these:", &share(shares.parent));
    for (i, count) in tables.iter().enumerate().filter(|(_, count)| **count > 0) {
        let known = REASONS.get(i);
        if known.is_none_or(|r| r.copier == Copier::Parent) {
            line(
                text,
                &format!("    {}", known.map_or_else(|| reason_name(i), |r| r.meaning.to_owned())),
                &thousands(*count),
            );
        }
    }
}

fn others(text: &mut String, s: &Statistics) {
    let rows = [
        ("taken back without a copy, no other sharer", s.tables_last_owner),
        ("dropped whole", s.tables_detached),
        ("rolled back", s.tables_rolled_back),
        ("copies that failed", s.sessions_failed),
        ("children killed because their copy failed", s.children_killed),
        ("waits for a page migration", s.migration_waits),
        ("get_user_pages tried again", s.gup_retries),
        ("NUMA scans skipped", s.numa_skips),
        ("OOM reaper passes skipped", s.oom_reaper_skips),
        ("reclaim or migration refused, shared table", s.rmap_refused),
        ("SAFETY NET: a walker nobody hooked; report it", s.bad_pmd_caught),
    ];
    if rows.iter().all(|(_, count)| *count == 0) {
        return;
    }
    text.push_str("\nOther events\n");
    for (name, count) in rows.iter().filter(|(_, count)| *count > 0) {
        line(text, name, &thousands(*count));
    }
}

/// The paper's Figure 11, with a row for each power of two.
fn interruptions(text: &mut String, s: &Statistics) {
    let total: u64 = s.sync_histogram.iter().sum();
    let _ = writeln!(text, "\nInterruptions of the parent: {}", thousands(total));
    if total == 0 {
        return;
    }
    line(text, "mean, longest", &mean_and_max(s.sync_ns_total, total, s.sync_ns_max));
    line(text, "out of service in all", &human_ns(s.sync_ns_total as f64));
    let first = s.sync_histogram.iter().position(|c| *c > 0).unwrap_or(0);
    let last = s.sync_histogram.iter().rposition(|c| *c > 0).unwrap_or(0);
    let highest = s.sync_histogram.iter().copied().max().unwrap_or(1).max(1);
    for (i, count) in s.sync_histogram.iter().enumerate().take(last + 1).skip(first) {
        let from = human_ns((1u64 << i) as f64);
        let to = human_ns((1u64 << (i + 1)) as f64);
        let bar = "#".repeat((count * BAR_WIDTH).div_ceil(highest) as usize);
        let _ = writeln!(text, "  {from:>9} to {to:>9} {:>12} {bar}", thousands(*count));
    }
}

fn refusals(text: &mut String, s: &Statistics) {
    let counted = s.forks_refused.iter().enumerate().filter(|(_, count)| **count > 0);
    for (i, count) in counted {
        let _ = writeln!(text, "\n{} forks took the default path: {}", thousands(*count), refusal_name(i));
        if let Some(refusal) = REFUSALS.get(i) {
            let _ = writeln!(text, "  why: {}\n  what to do: {}", refusal.meaning, refusal.advice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{STATISTICS_BYTES, VERSION};

    fn statistics(change: impl FnOnce(&mut Statistics)) -> Statistics {
        let mut bytes = vec![0u8; STATISTICS_BYTES];
        bytes[..4].copy_from_slice(&(STATISTICS_BYTES as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&VERSION.to_ne_bytes());
        let mut s = Statistics::decode(&bytes).unwrap();
        change(&mut s);
        s
    }

    fn refused() -> Processes {
        let one = Refused {
            pid: 12,
            why: "pinned".to_owned(),
            fork_count: 3,
            since_s: 1_800_000_000,
            last_s: 1_800_000_060,
            name: "redis-server".to_owned(),
        };
        Processes { refused: vec![one], ..Processes::default() }
    }

    fn table_of(s: Statistics) -> String {
        table(&s, Some(&refused()))
    }

    fn json_of(s: Statistics) -> Value {
        json(&s, Some(&refused()))
    }

    #[test]
    fn who_may_not_ask_sees_no_processes() {
        let s = statistics(|_| ());
        assert!(!table(&s, None).contains("Opted in, but their"));
        assert!(json(&s, None).get("processes_refused").is_none());
        assert!(!table(&s, Some(&Processes::default())).contains("Opted in, but their"));
    }

    #[test]
    fn shares_count_unknown_reasons_as_the_parents() {
        let mut tables = [0; 20];
        (tables[0], tables[1], tables[2], tables[3], tables[19]) = (5, 7, 11, 1, 100);
        assert_eq!(Shares::of(&tables), Shares { child: 6, helper: 7, parent: 111 });
    }

    #[test]
    fn the_table_shows_histogram_and_refusals() {
        let text = table_of(statistics(|s| {
            s.forks_async = 2;
            s.tables_deferred = 512;
            (s.tables_copied[0], s.tables_copied[2]) = (400, 112);
            (s.sync_histogram[14], s.sync_histogram[15], s.sync_ns_total) = (3, 1, 100_000);
            s.forks_refused[0] = 9;
            s.fork_ns_total = 900_000;
        }));
        assert!(text.contains("page fault of the parent                   112"), "{text}");
        assert!(text.contains("112 (21.9 %)"), "{text}");
        assert!(text.contains("  16.4 us to   32.8 us            3 ####"), "{text}");
        assert!(text.contains("9 forks took the default path: pinned"), "{text}");
        assert!(text.contains("restart the process"), "{text}");
        assert!(text.contains("process 12 (redis-server)"), "{text}");
        assert!(text.contains("pinned since 2027-01-15T08:00:00Z, 3 forks"), "{text}");
        assert!(!text.contains("On-Demand-Fork: tables"), "{text}");
    }

    #[test]
    fn json_names_reasons_and_refusals() {
        let value = json_of(statistics(|s| {
            s.tables_copied[2] = 4;
            s.tables_copied[18] = 1;
            s.forks_refused[1] = 2;
        }));
        assert_eq!(value["tables_copied"]["fault"], 4);
        assert_eq!(value["tables_copied"]["reason_18"], 1);
        assert_eq!(value["tables_unshared"]["ksm"], 0);
        assert_eq!(value["forks_refused"]["notifier"], 2);
        assert_eq!(value["processes_refused"][0]["since"], "2027-01-15T08:00:00Z");
        assert_eq!(value["sync_histogram"].as_array().unwrap().len(), 40);
    }
}
