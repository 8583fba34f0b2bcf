//! The figures of the paper as tables.

use stillframe_fork::status::Shares;

use super::records::{
    fault_ns, shares, small_fork_ns, small_life_ns, summed, Counters, Label, Measure, Part, Records, Save,
    SaveCommand, Strategy,
};
use crate::output::{human_ns, markdown_section, thousands};
use crate::stats::{distinct, median_of};

const NONE: &str = "-";

pub fn all(records: &Records) -> String {
    [
        fork_times(records),
        writes(records),
        histogram(records),
        threads(records),
        costs(records),
        redis(records, SaveCommand::BgSave, "Redis during BGSAVE (Figures 9, 10, 14, 15b, 19, 20)"),
        redis(records, SaveCommand::BgRewriteAof, "Redis during BGREWRITEAOF (Figure 21)"),
    ]
    .concat()
}

fn ns(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), human_ns)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |v| format!("{v:.1}"))
}

fn fork_times(records: &Records) -> String {
    let small = records.cost(Label::Unloaded, small_fork_ns);
    let strategies = distinct(records.forks(Part::Fork).map(|fork| fork.strategy));
    let mut rows = Vec::new();
    for mb in distinct(records.forks(Part::Fork).map(|fork| fork.mb)) {
        let time = |strategy: Strategy| {
            let forks = records.forks(Part::Fork).filter(|fork| fork.mb == mb && fork.strategy == strategy);
            median_of(forks.map(|fork| fork.fork_ns as f64))
        };
        let default = time(Strategy::Default);
        let tables_share =
            default.zip(small).map(|(all, rest)| format!("{:.1} %", 100.0 * (1.0 - rest / all)));
        let mut row = vec![format!("{mb} MB"), tables_share.unwrap_or_else(|| NONE.to_owned())];
        for strategy in &strategies {
            let share = time(*strategy).zip(default).map(|(t, d)| format!(" ({:.2} %)", 100.0 * t / d));
            row.push(format!("{}{}", ns(time(*strategy)), share.unwrap_or_default()));
        }
        rows.push(row);
    }
    let names: Vec<_> = strategies.iter().map(Strategy::to_string).collect();
    let mut header = vec!["size", "page tables' share of the default fork"];
    header.extend(names.iter().map(String::as_str));
    let comment = "Instructions of the parent's fork() (one instruction is one nanosecond, one CPU), and their share of the \
                   default fork's. The page tables' share is what fork takes beyond that of a small process.";
    markdown_section("Time of fork (Figures 3 and 22)", comment, &header, &rows)
}

fn writes(records: &Records) -> String {
    let mut rows = Vec::new();
    for period_ns in distinct(records.forks(Part::Writes).map(|fork| fork.period_ns)) {
        let of_period = || records.forks(Part::Writes).filter(move |fork| fork.period_ns == period_ns);
        for strategy in distinct(of_period().map(|fork| fork.strategy)) {
            let forks = || of_period().filter(move |fork| fork.strategy == strategy);
            let share = |pick: fn(Shares) -> u64| number(median_of(forks().map(|f| pick(shares(f)) as f64)));
            rows.push(vec![
                strategy.to_string(),
                if period_ns == 0 { "back to back".to_owned() } else { format!("one in {period_ns} ns") },
                share(|s| s.parent),
                share(|s| s.child),
                share(|s| s.helper),
                ns(median_of(forks().map(|fork| fork.sync_ns as f64))),
                ns(median_of(forks().map(|fork| fork.write_p50_ns as f64))),
                ns(median_of(forks().map(|fork| fork.write_p99_ns as f64))),
                ns(median_of(forks().map(|fork| fork.write_max_ns as f64))),
            ]);
        }
    }
    let header = [
        "strategy",
        "2,000 writes",
        "tables copied by the parent",
        "by the child",
        "by its threads",
        "parent out of service",
        "write p50",
        "write p99",
        "write max",
    ];
    let comment = "Emulated time, a thread of the host for each CPU: compare within the table only. The parent's tables are its \
                   interruptions (Figure 11), their time is Figure 20.";
    markdown_section(
        "Tables copied by the parent under random writes (Figures 11 and 20)",
        comment,
        &header,
        &rows,
    )
}

/// Interruptions by length, of the paced writes and of Redis, all rounds together.
fn histogram(records: &Records) -> String {
    let paced_ns = records.forks(Part::Writes).map(|fork| fork.period_ns).last();
    let largest_mb = records.saves(SaveCommand::BgSave).map(|save| save.mb).max();
    let writes = records.forks(Part::Writes).filter(|fork| Some(fork.period_ns) == paced_ns);
    let saves = records.saves(SaveCommand::BgSave).filter(|save| Some(save.mb) == largest_mb);
    let mut columns = by_strategy("writes", writes.map(|fork| (fork.strategy, &fork.histogram)));
    columns.extend(by_strategy("BGSAVE", saves.map(|save| (save.strategy, &save.statistics.sync_histogram))));
    let length = columns.iter().map(|c| c.1 .0.len()).max().unwrap_or(0);
    let count = |column: &Counters, i: usize| column.0.get(i).copied().unwrap_or(0);
    let used: Vec<usize> = (0..length).filter(|i| columns.iter().any(|c| count(&c.1, *i) > 0)).collect();
    let row = |i: usize| {
        let name = format!("{} to {}", human_ns((1u64 << i) as f64), human_ns((1u64 << (i + 1)) as f64));
        std::iter::once(name).chain(columns.iter().map(|c| thousands(count(&c.1, i)))).collect()
    };
    let rows: Vec<Vec<String>> = match (used.first(), used.last()) {
        (Some(first), Some(last)) => (*first..=*last).map(row).collect(),
        _ => Vec::new(),
    };
    let mut header = vec!["length"];
    header.extend(columns.iter().map(|c| c.0.as_str()));
    let comment = "Number of interruptions of the parent by length, all rounds together: the module's own histogram. *Writes*: one in \
                   20 us. *BGSAVE*: Redis at its largest size, emulated time.";
    markdown_section("Interruptions of the parent (Figure 11)", comment, &header, &rows)
}

/// A column for each strategy that interrupts at all, all rounds together.
fn by_strategy<'a>(
    what: &str,
    histograms: impl Iterator<Item = (Strategy, &'a Counters)>,
) -> Vec<(String, Counters)> {
    let histograms: Vec<_> = histograms.filter(|(strategy, _)| *strategy != Strategy::Default).collect();
    let strategies = distinct(histograms.iter().map(|(strategy, _)| *strategy));
    let column = |strategy: Strategy| {
        let own = histograms.iter().filter(|(other, _)| *other == strategy).map(|(_, histogram)| *histogram);
        (format!("{what}: {strategy}"), summed(own))
    };
    strategies.into_iter().map(column).collect()
}

fn threads(records: &Records) -> String {
    let row = |strategy: Strategy| {
        let forks = || records.forks(Part::Threads).filter(move |fork| fork.strategy == strategy);
        vec![
            strategy.into(),
            ns(median_of(forks().map(|fork| fork.child_copy_ns as f64))),
            ns(median_of(forks().map(|fork| fork.fork_ns as f64))),
        ]
    };
    let strategies = distinct(records.forks(Part::Threads).map(|fork| fork.strategy));
    let rows: Vec<_> = strategies.into_iter().map(row).collect();
    let comment = "Emulated time with one thread of the host for each CPU of the machine; more copy threads than CPUs cannot \
                   help. Compare within the table only.";
    markdown_section(
        "Time of the copy over threads (Figure 15a)",
        comment,
        &["threads", "child's copy", "parent's fork()"],
        &rows,
    )
}

fn costs(records: &Records) -> String {
    let row = |what: &str, cost: &dyn Fn(&Measure) -> Option<f64>| {
        let of = |label| records.cost(label, cost);
        let (unloaded, loaded, shared) = (of(Label::Unloaded), of(Label::Loaded), of(Label::Shared));
        let more = loaded.zip(unloaded).map(|(l, u)| l - u);
        let percent = more.zip(unloaded).map(|(m, u)| 100.0 * m / u);
        vec![what.to_owned(), number(unloaded), number(loaded), number(more), number(percent), number(shared)]
    };
    let path = |what: &str, name: &str| {
        row(what, &|measure| match measure {
            Measure::Path { path, ns_each, .. } if path == name => Some(*ns_each),
            _ => None,
        })
    };
    let rows = match records.all().iter().any(|record| record.run == Part::Costs) {
        false => Vec::new(),
        true => vec![
            row("first touch of a page", &fault_ns),
            row("fork() of a small process", &small_fork_ns),
            row("its fork, exit and wait", &small_life_ns),
            path("wake a shared futex: GUP-fast of a page for writing", "futex"),
            path("vmsplice of 16 pages to /dev/null: GUP-fast for reading", "vmsplice"),
            path("reclaim of a page: try_to_unmap_one", "reclaim"),
            path("migration of a page: try_to_migrate_one", "migrate"),
        ],
    };
    let header =
        ["instructions", "module unloaded", "loaded", "more", "more, %", "another process shares tables"];
    markdown_section("Processes that did not opt in", "Instructions, one CPU, medians.", &header, &rows)
}

fn redis(records: &Records, command: SaveCommand, title: &str) -> String {
    let mut rows = Vec::new();
    for mb in distinct(records.saves(command).map(|save| save.mb)) {
        let of_size = || records.saves(command).filter(move |save| save.mb == mb);
        for strategy in distinct(of_size().map(|save| save.strategy)) {
            let saves: Vec<_> = of_size().filter(|save| save.strategy == strategy).collect();
            rows.push(redis_row(&format!("{mb} MB, {strategy}"), &saves));
        }
    }
    let header = [
        "size and strategy",
        "load/s",
        "fork()",
        "save",
        "p99 before",
        "p99 during",
        "p99.9 during",
        "max during",
        "p99 first second",
        "least replies/s in 50 ms",
        "interruptions",
        "out of service",
    ];
    let comment = "Open loop, 50 clients, random SETs of 1 KB values; latency from the time a request was due. Medians over rounds, \
                   emulated time: compare rows of one size only. *Out of service* is fork() and the interruptions together.";
    markdown_section(title, comment, &header, &rows)
}

fn redis_row(name: &str, saves: &[&Save]) -> Vec<String> {
    let median = |of: &dyn Fn(&Save) -> f64| median_of(saves.iter().map(|save| of(save)));
    // The last bin may be cut short.
    let least =
        |save: &&Save| save.replies_of_50_ms.iter().rev().skip(1).min().map(|least| *least as f64 * 20.0);
    vec![
        name.to_owned(),
        median(&|save| save.requests_per_second).map_or_else(|| NONE.to_owned(), |rate| format!("{rate:.0}")),
        ns(median(&|save| save.fork_ns)),
        ns(median(&|save| save.save_ns as f64)),
        ns(median(&|save| save.before.p99_ns as f64)),
        ns(median(&|save| save.during.p99_ns as f64)),
        ns(median(&|save| save.during.p999_ns as f64)),
        ns(median(&|save| save.during.max_ns as f64)),
        ns(median(&|save| save.first_second.p99_ns as f64)),
        number(median_of(saves.iter().filter_map(least))),
        number(median(&|save| save.statistics.sync_histogram.sum() as f64)),
        ns(median(&|save| save.fork_ns + save.statistics.sync_ns_total as f64)),
    ]
}
