//! The figures of the paper as tables.

use serde_json::{json, Value};

use super::records::{counters, shares, strategy_name, Records, Where};
use super::text;
use crate::output::{human_ns, markdown_table, thousands};
use crate::stats::median;

const NONE: &str = "-";

pub fn all(records: &Records) -> String {
    [
        fork_times(records),
        writes(records),
        histogram(records),
        threads(records),
        costs(records),
        redis(records, "BGSAVE", "Redis during BGSAVE (Figures 9, 10, 14, 15b, 19, 20)"),
        redis(records, "BGREWRITEAOF", "Redis during BGREWRITEAOF (Figure 21)"),
    ]
    .concat()
}

fn section(title: &str, comment: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    match rows.is_empty() {
        true => String::new(),
        false => format!("## {title}\n\n{comment}\n\n{}\n", markdown_table(header, rows)),
    }
}

fn ns(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), human_ns)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |v| format!("{v:.1}"))
}

fn fork_times(records: &Records) -> String {
    let run = ("run", json!("fork"));
    let small = records.median(&[("run", json!("costs")), ("label", json!("unloaded"))], "/fork_ns");
    let strategies = records.distinct(std::slice::from_ref(&run), "strategy");
    let mut rows = Vec::new();
    for mb in records.distinct(std::slice::from_ref(&run), "mb") {
        let time = |strategy: &Value| {
            records.median(&[run.clone(), ("mb", mb.clone()), ("strategy", strategy.clone())], "/fork_ns")
        };
        let default = time(&json!("default"));
        let tables_share =
            default.zip(small).map(|(all, rest)| format!("{:.1} %", 100.0 * (1.0 - rest / all)));
        let mut row = vec![format!("{mb} MB"), tables_share.unwrap_or_else(|| NONE.to_owned())];
        for strategy in &strategies {
            let share = time(strategy).zip(default).map(|(t, d)| format!(" ({:.2} %)", 100.0 * t / d));
            row.push(format!("{}{}", ns(time(strategy)), share.unwrap_or_default()));
        }
        rows.push(row);
    }
    let names: Vec<_> = strategies.iter().map(|s| strategy_name(&text(s))).collect();
    let mut header = vec!["size", "page tables' share of the default fork"];
    header.extend(names.iter().map(String::as_str));
    let comment = "Instructions of the parent's fork() (one instruction is one nanosecond, one CPU), and their share of the \
                   default fork's. The page tables' share is what fork takes beyond that of a small process.";
    section("Time of fork (Figures 3 and 22)", comment, &header, &rows)
}

fn writes(records: &Records) -> String {
    let mut rows = Vec::new();
    for period in records.distinct(&[("run", json!("writes"))], "period_ns") {
        let of_period = [("run", json!("writes")), ("period_ns", period.clone())];
        for strategy in records.distinct(&of_period, "strategy") {
            let wanted = [of_period.as_slice(), &[("strategy", strategy.clone())]].concat();
            let share = |pick: fn(stillframe_fork::status::Shares) -> u64| {
                number(records.median_of(&wanted, |r| Some(pick(shares(r, "")) as f64)))
            };
            rows.push(vec![
                strategy_name(&text(&strategy)),
                if period == 0 { "back to back".to_owned() } else { format!("one in {period} ns") },
                share(|s| s.parent),
                share(|s| s.child),
                share(|s| s.helper),
                ns(records.median(&wanted, "/sync_ns")),
                ns(records.median(&wanted, "/write_p50_ns")),
                ns(records.median(&wanted, "/write_p99_ns")),
                ns(records.median(&wanted, "/write_max_ns")),
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
    section("Tables copied by the parent under random writes (Figures 11 and 20)", comment, &header, &rows)
}

/// Interruptions by length, of the paced writes and of Redis, all rounds together.
fn histogram(records: &Records) -> String {
    let largest = records.distinct(&[("command", json!("BGSAVE"))], "mb").pop().unwrap_or(Value::Null);
    let paced = records.distinct(&[("run", json!("writes"))], "period_ns").pop().unwrap_or(Value::Null);
    let mut columns: Vec<(String, Vec<u64>)> = Vec::new();
    for (what, wanted, field) in [
        ("writes", [("run", json!("writes")), ("period_ns", paced)], "/histogram"),
        ("BGSAVE", [("command", json!("BGSAVE")), ("mb", largest)], "/statistics/sync_histogram"),
    ] {
        for strategy in records.distinct(&wanted, "strategy").iter().filter(|s| **s != "default") {
            let wanted = [wanted.as_slice(), &[("strategy", strategy.clone())]].concat();
            columns.push((
                format!("{what}: {}", strategy_name(&text(strategy))),
                summed(records, &wanted, field),
            ));
        }
    }
    let length = columns.iter().map(|c| c.1.len()).max().unwrap_or(0);
    let count = |column: &Vec<u64>, i: usize| column.get(i).copied().unwrap_or(0);
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
    section("Interruptions of the parent (Figure 11)", comment, &header, &rows)
}

pub fn summed(records: &Records, wanted: &Where<'_>, field: &str) -> Vec<u64> {
    let mut sum: Vec<u64> = Vec::new();
    for record in records.select(wanted) {
        let values = counters(record, field);
        sum.resize(sum.len().max(values.len()), 0);
        sum.iter_mut().zip(values).for_each(|(total, value)| *total += value);
    }
    sum
}

fn threads(records: &Records) -> String {
    let run = ("run", json!("threads"));
    let row = |strategy: &Value| {
        let wanted = [run.clone(), ("strategy", strategy.clone())];
        vec![
            text(strategy),
            ns(records.median(&wanted, "/child_copy_ns")),
            ns(records.median(&wanted, "/fork_ns")),
        ]
    };
    let rows: Vec<_> = records.distinct(std::slice::from_ref(&run), "strategy").iter().map(row).collect();
    let comment = "Emulated time with one thread of the host for each CPU of the machine; more copy threads than CPUs cannot \
                   help. Compare within the table only.";
    section(
        "Time of the copy over threads (Figure 15a)",
        comment,
        &["threads", "child's copy", "parent's fork()"],
        &rows,
    )
}

fn costs(records: &Records) -> String {
    let row = |what: &str, wanted: &[(&str, Value)], field: &str| {
        let of = |label: &str| {
            let wanted = [&[("run", json!("costs")), ("label", json!(label))], wanted].concat();
            records.median(&wanted, field)
        };
        let (unloaded, loaded, shared) = (of("unloaded"), of("loaded"), of("shared"));
        let more = loaded.zip(unloaded).map(|(l, u)| l - u);
        let percent = more.zip(unloaded).map(|(m, u)| 100.0 * m / u);
        vec![what.to_owned(), number(unloaded), number(loaded), number(more), number(percent), number(shared)]
    };
    let (fault, small) = ([("kind", json!("fault"))], [("kind", json!("small"))]);
    let path =
        |what: &str, path: &str| row(what, &[("kind", json!("path")), ("path", json!(path))], "/ns_each");
    let rows = match records.select(&[("run", json!("costs"))]).next() {
        None => Vec::new(),
        Some(_) => vec![
            row("first touch of a page", &fault, "/ns_per_fault"),
            row("fork() of a small process", &small, "/fork_ns"),
            row("its fork, exit and wait", &small, "/life_ns"),
            path("wake a shared futex: GUP-fast of a page for writing", "futex"),
            path("vmsplice of 16 pages to /dev/null: GUP-fast for reading", "vmsplice"),
            path("reclaim of a page: try_to_unmap_one", "reclaim"),
            path("migration of a page: try_to_migrate_one", "migrate"),
        ],
    };
    let header =
        ["instructions", "module unloaded", "loaded", "more", "more, %", "another process shares tables"];
    section("Processes that did not opt in", "Instructions, one CPU, medians.", &header, &rows)
}

fn redis(records: &Records, command: &str, title: &str) -> String {
    let mut rows = Vec::new();
    for mb in records.distinct(&[("command", json!(command))], "mb") {
        let of_size = [("command", json!(command)), ("mb", mb.clone())];
        for strategy in records.distinct(&of_size, "strategy") {
            let wanted = [of_size.as_slice(), &[("strategy", strategy.clone())]].concat();
            rows.push(redis_row(records, &format!("{mb} MB, {}", strategy_name(&text(&strategy))), &wanted));
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
    section(title, comment, &header, &rows)
}

fn redis_row(records: &Records, name: &str, wanted: &Where<'_>) -> Vec<String> {
    let time = |field: &str| ns(records.median(wanted, field));
    let least = records.median_of(wanted, |record| {
        let bins = counters(record, "/replies_of_50_ms");
        // The last one may be cut short.
        bins.iter().rev().skip(1).min().map(|least| *least as f64 * 20.0)
    });
    let interruptions = records.median_of(wanted, |record| {
        Some(counters(record, "/statistics/sync_histogram").iter().sum::<u64>() as f64)
    });
    let out_of_service = records.median_of(wanted, |record| {
        Some(record.pointer("/fork_ns")?.as_f64()? + record.pointer("/statistics/sync_ns_total")?.as_f64()?)
    });
    let rate: Vec<f64> = records.select(wanted).filter_map(|r| r["requests_per_second"].as_f64()).collect();
    vec![
        name.to_owned(),
        format!("{:.0}", median(&rate)),
        time("/fork_ns"),
        time("/save_ns"),
        time("/before/p99_ns"),
        time("/during/p99_ns"),
        time("/during/p999_ns"),
        time("/during/max_ns"),
        time("/first_second/p99_ns"),
        number(least),
        number(interruptions),
        ns(out_of_service),
    ]
}
