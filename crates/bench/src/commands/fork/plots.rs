//! The figures of the paper as drawings.

use super::records::{summed, Fork, Latencies, Part, Records, Save, SaveCommand, Strategy};
use crate::chart::{draw, Chart, Series, Stroke};
use crate::output::human_ns;
use crate::plot::COLORS;
use crate::stats::{distinct, median_of};

const FOOTER: &str =
    "stillframe-bench fork; QEMU software emulation: no TLB, no caches. See docs/measured/figures.md";
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
fn style(strategy: Strategy) -> (&'static str, bool) {
    match strategy {
        Strategy::Default => (COLORS[0], false),
        Strategy::Odf => (COLORS[3], false),
        Strategy::Async { copy_threads: 1 } => (COLORS[1], false),
        Strategy::Async { copy_threads: 8 } => (COLORS[2], false),
        Strategy::Async { .. } => (COLORS[1], true),
    }
}

fn series(strategy: Strategy, points: Vec<(f64, f64)>) -> Series {
    let (color, dashed) = style(strategy);
    Series { name: strategy.to_string(), color, points, stroke: Stroke::dashed(dashed) }
}

/// A line for each strategy over sizes.
fn over_sizes(figures: &[(u64, Strategy, f64)]) -> (Vec<(f64, String)>, Vec<Series>) {
    let sizes = distinct(figures.iter().map(|(mb, ..)| *mb));
    let line = |strategy: Strategy| {
        let point = |(i, mb): (usize, &u64)| {
            let of = figures.iter().filter(|(size, s, _)| size == mb && *s == strategy);
            Some((i as f64, median_of(of.map(|(.., value)| *value))?))
        };
        series(strategy, sizes.iter().enumerate().filter_map(point).collect())
    };
    let lines = distinct(figures.iter().map(|(_, strategy, _)| *strategy)).into_iter().map(line).collect();
    (sizes.iter().enumerate().map(|(i, mb)| (i as f64, format!("{mb} MB"))).collect(), lines)
}

fn fork_times(records: &Records) -> Chart {
    let figure = |fork: &Fork| (fork.mb, fork.strategy, fork.fork_ns as f64);
    let (x_labels, series) = over_sizes(&records.forks(Part::Fork).map(figure).collect::<Vec<_>>());
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
    let paced_ns = records.forks(Part::Writes).map(|fork| fork.period_ns).last();
    let forks = || {
        let paced = records.forks(Part::Writes).filter(move |fork| Some(fork.period_ns) == paced_ns);
        paced.filter(|fork| fork.strategy != Strategy::Default)
    };
    let line = |strategy: Strategy| {
        let counts = summed(forks().filter(|fork| fork.strategy == strategy).map(|fork| &fork.histogram));
        let points = counts.0.iter().enumerate().filter(|(_, count)| **count > 0);
        series(strategy, points.map(|(i, count)| (i as f64, *count as f64)).collect())
    };
    let lines: Vec<_> = distinct(forks().map(|fork| fork.strategy)).into_iter().map(line).collect();
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
    let strategies = distinct(records.forks(Part::Threads).map(|fork| fork.strategy));
    let point = |(i, strategy): (usize, &Strategy)| {
        let forks = records.forks(Part::Threads).filter(|fork| fork.strategy == *strategy);
        Some((i as f64, median_of(forks.map(|fork| fork.child_copy_ns as f64))?))
    };
    let points: Vec<_> = strategies.iter().enumerate().filter_map(point).collect();
    let line = Series { name: "child's copy".into(), color: COLORS[1], points, stroke: Stroke::Solid };
    Chart {
        title: "Time of the child's copy".into(),
        subtitle: "emulated time, a CPU for each core of the host (paper: Figure 15a)".into(),
        x_title: "copy threads".into(),
        x_labels: strategies.iter().enumerate().map(|(i, s)| (i as f64, String::from(*s))).collect(),
        log: false,
        show: human_ns,
        series: if strategies.is_empty() { Vec::new() } else { vec![line] },
        footer: FOOTER.into(),
    }
}

fn latency(records: &Records) -> Chart {
    let saves = || records.saves(SaveCommand::BgSave);
    let figures = |of: fn(&Latencies) -> u64| {
        let figure = |save: &Save| (save.mb, save.strategy, of(&save.during) as f64);
        saves().map(figure).collect::<Vec<_>>()
    };
    let (x_labels, mut series) = over_sizes(&figures(|during| during.p99_ns));
    series.iter_mut().for_each(|s| s.name.push_str(", p99"));
    let (_, mut longest) = over_sizes(&figures(|during| during.max_ns));
    for line in &mut longest {
        line.name.push_str(", max");
        line.stroke = Stroke::Dashed;
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
    let saves = || records.saves(SaveCommand::BgRewriteAof);
    let size = saves().map(|save| save.mb).max().unwrap_or(0);
    type Of = fn(&Latencies) -> u64;
    let shown: [(Of, &str); 4] =
        [(|l| l.p50_ns, "p50"), (|l| l.p99_ns, "p99"), (|l| l.p999_ns, "p99.9"), (|l| l.max_ns, "longest")];
    let line = |strategy: Strategy| {
        let point = |(i, (of, _)): (usize, &(Of, &str))| {
            let own = saves().filter(|save| save.strategy == strategy && save.mb == size);
            Some((i as f64, median_of(own.map(|save| of(&save.during) as f64))?))
        };
        series(strategy, shown.iter().enumerate().filter_map(point).collect())
    };
    Chart {
        title: format!("Latency of Redis during BGREWRITEAOF, {size} MB"),
        subtitle: "emulated time; open loop, 50 clients (paper: Figure 21)".into(),
        x_title: "of the requests due from BGREWRITEAOF to its end".into(),
        x_labels: shown.iter().enumerate().map(|(i, (_, name))| (i as f64, (*name).to_owned())).collect(),
        log: true,
        show: human_ns,
        series: distinct(saves().map(|save| save.strategy)).into_iter().map(line).collect(),
        footer: FOOTER.into(),
    }
}

/// One save of each strategy at the largest size.
fn throughput(records: &Records) -> Chart {
    let largest = records.saves(SaveCommand::BgSave).map(|save| save.mb).max().unwrap_or(0);
    let line = |save: &Save| {
        let from_s = save.bins_from_ns as f64 / 1e9;
        let point = |(i, count): (usize, &u64)| (i as f64 * BIN_S - from_s, *count as f64 / BIN_S);
        series(save.strategy, save.replies_of_50_ms.iter().enumerate().map(point).collect())
    };
    let first = records.saves(SaveCommand::BgSave).filter(|save| save.mb == largest && save.round == 0);
    let lines: Vec<_> = first.map(line).collect();
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
