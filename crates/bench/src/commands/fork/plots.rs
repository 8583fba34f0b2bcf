//! The figures of the paper as drawings.

use serde_json::{json, Value};

use super::records::{strategy_name, Records, Where};
use super::tables::summed;
use super::text;
use crate::chart::{draw, Chart, Series};
use crate::output::human_ns;
use crate::plot::COLORS;

const FOOTER: &str = "stillframe-bench fork; QEMU software emulation: no TLB, no caches. See docs/figures.md";
const BIN_S: f64 = 0.05;

/// Name and SVG of each figure for which there are records.
pub fn all(records: &Records) -> Vec<(&'static str, String)> {
    let figures = [
        ("time", fork_times(records)),
        ("interruptions", interruptions(records)),
        ("threads", threads(records)),
        ("latency", latency(records)),
        ("throughput", throughput(records)),
        ("aof", log_rewriting(records)),
    ];
    figures.into_iter().filter(|(_, c)| !c.series.is_empty()).map(|(name, c)| (name, draw(&c))).collect()
}

/// Each strategy keeps its colour in all figures; the fourth is also dashed.
fn style(strategy: &str) -> (&'static str, bool) {
    match strategy {
        "default" => (COLORS[0], false),
        "odf" => (COLORS[3], false),
        "1" => (COLORS[1], false),
        "8" => (COLORS[2], false),
        _ => (COLORS[1], true),
    }
}

fn series(strategy: &str, points: Vec<(f64, f64)>) -> Series {
    let (color, dashed) = style(strategy);
    Series { name: strategy_name(strategy), color, points, dashed }
}

fn megabytes(sizes: &[Value]) -> Vec<(f64, String)> {
    sizes.iter().enumerate().map(|(i, mb)| (i as f64, format!("{mb} MB"))).collect()
}

/// A line for each strategy over sizes.
fn over_sizes(records: &Records, wanted: &Where<'_>, field: &str) -> (Vec<(f64, String)>, Vec<Series>) {
    let sizes = records.distinct(wanted, "mb");
    let line = |strategy: &Value| {
        let point = |(i, mb): (usize, &Value)| {
            let wanted = [wanted, &[("mb", mb.clone()), ("strategy", strategy.clone())]].concat();
            Some((i as f64, records.median(&wanted, field)?))
        };
        series(&text(strategy), sizes.iter().enumerate().filter_map(point).collect())
    };
    let lines = records.distinct(wanted, "strategy").iter().map(line).collect();
    (megabytes(&sizes), lines)
}

fn fork_times(records: &Records) -> Chart {
    let (x_labels, series) = over_sizes(records, &[("run", json!("fork"))], "/fork_ns");
    Chart {
        title: "Time of fork in the parent".into(),
        subtitle: "instructions, one a nanosecond (paper: Figures 3 and 22)".into(),
        x_title: "size of the process".into(),
        x_labels,
        log: true,
        show: human_ns,
        series,
        footer: FOOTER.into(),
    }
}

fn interruptions(records: &Records) -> Chart {
    let paced = records.distinct(&[("run", json!("writes"))], "period_ns").pop().unwrap_or(Value::Null);
    let wanted = [("run", json!("writes")), ("period_ns", paced)];
    let strategies = records.distinct(&wanted, "strategy");
    let line = |strategy: &Value| {
        let counts =
            summed(records, &[wanted.as_slice(), &[("strategy", strategy.clone())]].concat(), "/histogram");
        let points = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        series(&text(strategy), points.map(|(i, count)| (i as f64, *count as f64)).collect())
    };
    let lines: Vec<_> = strategies.iter().filter(|s| **s != "default").map(line).collect();
    let buckets = || lines.iter().flat_map(|s| &s.points).map(|p| p.0 as u32);
    let (first, last) = (buckets().min().unwrap_or(0), buckets().max().unwrap_or(0));
    let label = |i: u32| (f64::from(i), human_ns((1u64 << i) as f64));
    Chart {
        title: "Interruptions of the parent".into(),
        subtitle: "2,000 random writes, one in 20 us, all rounds, emulated time (paper: Figure 11)".into(),
        x_title: "length, at least".into(),
        x_labels: (first..=last).map(label).collect(),
        log: true,
        show: |v| format!("{v:.0}"),
        series: lines,
        footer: FOOTER.into(),
    }
}

fn threads(records: &Records) -> Chart {
    let strategies = records.distinct(&[("run", json!("threads"))], "strategy");
    let point = |(i, strategy): (usize, &Value)| {
        let wanted = [("run", json!("threads")), ("strategy", strategy.clone())];
        Some((i as f64, records.median(&wanted, "/child_copy_ns")?))
    };
    let points: Vec<_> = strategies.iter().enumerate().filter_map(point).collect();
    let line = Series { name: "child's copy".into(), color: COLORS[1], points, dashed: false };
    Chart {
        title: "Time of the child's copy".into(),
        subtitle: "emulated time, a CPU for each core of the host (paper: Figure 15a)".into(),
        x_title: "copy threads".into(),
        x_labels: strategies.iter().enumerate().map(|(i, s)| (i as f64, text(s))).collect(),
        log: false,
        show: human_ns,
        series: if strategies.is_empty() { Vec::new() } else { vec![line] },
        footer: FOOTER.into(),
    }
}

fn latency(records: &Records) -> Chart {
    let wanted = [("command", json!("BGSAVE"))];
    let (x_labels, mut series) = over_sizes(records, &wanted, "/during/p99_ns");
    series.iter_mut().for_each(|s| s.name.push_str(", p99"));
    let (_, mut longest) = over_sizes(records, &wanted, "/during/max_ns");
    for line in &mut longest {
        line.name.push_str(", max");
        line.dashed = true;
    }
    series.extend(longest);
    Chart {
        title: "Latency of Redis during BGSAVE".into(),
        subtitle: "emulated time; open loop, 50 clients (paper: Figures 9, 10 and 14)".into(),
        x_title: "size of the values".into(),
        x_labels,
        log: true,
        show: human_ns,
        series,
        footer: FOOTER.into(),
    }
}

/// The paper's Figure 21 is over sizes; here there is one.
fn log_rewriting(records: &Records) -> Chart {
    let wanted = [("command", json!("BGREWRITEAOF"))];
    let size = records.distinct(&wanted, "mb").pop().unwrap_or(Value::Null);
    let shown = [("p50_ns", "p50"), ("p99_ns", "p99"), ("p999_ns", "p99.9"), ("max_ns", "longest")];
    let line = |strategy: &Value| {
        let wanted = [wanted.as_slice(), &[("strategy", strategy.clone())]].concat();
        let point = |(i, (field, _)): (usize, &(&str, &str))| {
            Some((i as f64, records.median(&wanted, &format!("/during/{field}"))?))
        };
        series(&text(strategy), shown.iter().enumerate().filter_map(point).collect())
    };
    Chart {
        title: format!("Latency of Redis during BGREWRITEAOF, {size} MB"),
        subtitle: "emulated time; open loop, 50 clients (paper: Figure 21)".into(),
        x_title: "of the requests due from BGREWRITEAOF to its end".into(),
        x_labels: shown.iter().enumerate().map(|(i, (_, name))| (i as f64, (*name).to_owned())).collect(),
        log: true,
        show: human_ns,
        series: records.distinct(&wanted, "strategy").iter().map(line).collect(),
        footer: FOOTER.into(),
    }
}

/// One save of each strategy at the largest size.
fn throughput(records: &Records) -> Chart {
    let largest = records.distinct(&[("command", json!("BGSAVE"))], "mb").pop().unwrap_or(Value::Null);
    let wanted = [("command", json!("BGSAVE")), ("mb", largest.clone()), ("round", json!(0))];
    let line = |record: &Value| {
        let from_s = record["bins_from_ns"].as_f64().unwrap_or(0.0) / 1e9;
        let bins = super::records::counters(record, "/replies_of_50_ms");
        let point = |(i, count): (usize, &u64)| (i as f64 * BIN_S - from_s, *count as f64 / BIN_S);
        series(&text(&record["strategy"]), bins.iter().enumerate().map(point).collect())
    };
    let lines: Vec<_> = records.select(&wanted).map(line).collect();
    let last_s = lines.iter().flat_map(|s| &s.points).map(|p| p.0).fold(1.0, f64::max);
    let step_s = (last_s / 8.0).ceil().max(1.0);
    let labels = (0..=8).map(|i| f64::from(i) * step_s).filter(|s| *s <= last_s);
    Chart {
        title: format!("Replies of Redis around BGSAVE, {largest} MB"),
        subtitle: "of each 50 ms, a second; emulated time (paper: Figures 17 and 19)".into(),
        x_title: "seconds since BGSAVE".into(),
        x_labels: labels.map(|s| (s, format!("{s:.0}"))).collect(),
        log: false,
        show: |v| format!("{v:.0}"),
        series: lines,
        footer: FOOTER.into(),
    }
}
