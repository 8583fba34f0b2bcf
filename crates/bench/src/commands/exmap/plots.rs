//! The figures of the paper as drawings.

use super::records::{Case, Part, Records, Way};
use crate::chart::{draw, Chart, Series, Stroke};
use crate::plot::COLORS;
use crate::stats::distinct;

const FOOTER: &str =
    "stillframe-bench exmap; QEMU software emulation: no TLB misses, no caches. See docs/measured/figures.md";

/// Name and SVG of each figure for which there are records.
pub fn all(records: &Records) -> Vec<(&'static str, String)> {
    let figures = [
        (
            "churn",
            by_batch(
                records,
                Part::Churn,
                &CHURNS,
                Way::name,
                "Pages taken and given back",
                "Figures 8 and 10",
            ),
        ),
        (
            "reads",
            by_batch(
                records,
                Part::Reads,
                &Way::READS,
                Way::read_name,
                "Pages read and given back",
                "Figure 10",
            ),
        ),
        ("threads", threads(records)),
    ];
    figures.into_iter().filter(|(_, c)| !c.series.is_empty()).map(|(name, c)| (name, draw(&c))).collect()
}

/// Those that differ enough to be told apart.
const CHURNS: [Way; 6] =
    [Way::Madvise, Way::Populate, Way::Mmap, Way::ExmapZeroed, Way::ExmapStealing, Way::Exmap];

/// Four colours, then the same dashed.
fn line(index: usize, name: &str, points: Vec<(f64, f64)>) -> Series {
    let color = COLORS[index % COLORS.len()];
    Series { name: short(name), color, points, stroke: Stroke::dashed(index >= COLORS.len()) }
}

/// What fits beside a chart.
fn short(name: &str) -> String {
    const MOST: usize = 28;
    match name.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", name[..at].trim_end_matches([' ', ','])),
        None => name.to_owned(),
    }
}

fn by_batch(
    records: &Records,
    part: Part,
    ways: &[Way],
    name: fn(Way) -> &'static str,
    title: &str,
    figures: &str,
) -> Chart {
    let batches = distinct(records.churns(part).map(|churn| churn.batch));
    let point = |way: Way, (index, batch): (usize, &u32)| {
        let ns = records.per_page(part, Case::of_one_thread(way, *batch), |churn| churn.ns)?;
        Some((index as f64, ns))
    };
    let points =
        |way: Way| batches.iter().enumerate().filter_map(move |at| point(way, at)).collect::<Vec<_>>();
    let lines = ways.iter().enumerate().map(|(index, way)| line(index, name(*way), points(*way)));
    Chart {
        title: title.to_owned(),
        subtitle: format!("instructions a page, one thread (paper: {figures})"),
        x_title: "pages of a call".into(),
        x_labels: batches.iter().enumerate().map(|(i, batch)| (i as f64, batch.to_string())).collect(),
        log: true,
        show: |v| format!("{v:.0}"),
        series: lines.filter(|series| !series.points.is_empty()).collect(),
        footer: FOOTER.into(),
    }
}

fn threads(records: &Records) -> Chart {
    let counts = distinct(records.churns(Part::Threads).map(|churn| churn.threads));
    let cases = distinct(records.churns(Part::Threads).map(|churn| (churn.way, churn.batch)));
    let shown = cases.into_iter().filter(|case| {
        [(Way::Madvise, 1), (Way::Exmap, 1), (Way::Exmap, 512), (Way::ExmapStealing, 512)].contains(case)
    });
    let points = |way: Way, batch: u32| {
        let point = |(index, threads): (usize, &u32)| {
            let ns =
                records.per_page(Part::Threads, Case { way, batch, threads: *threads }, |churn| churn.ns)?;
            Some((index as f64, ns))
        };
        counts.iter().enumerate().filter_map(point).collect()
    };
    let name = |way: Way, batch: u32| match way {
        Way::Madvise => "madvise".to_owned(),
        Way::ExmapStealing => format!("exmap, stealing, {batch} a call"),
        _ => format!("exmap, {batch} a call"),
    };
    Chart {
        title: "Pages taken and given back by several threads".into(),
        subtitle: "instructions a page, one processor (paper: Figures 3, 8 and 10)".into(),
        x_title: "threads, each with an interface".into(),
        x_labels: counts.iter().enumerate().map(|(i, count)| (i as f64, count.to_string())).collect(),
        log: true,
        show: |v| format!("{v:.0}"),
        series: shown
            .enumerate()
            .map(|(i, (way, batch))| line(i, &name(way, batch), points(way, batch)))
            .collect(),
        footer: FOOTER.into(),
    }
}
