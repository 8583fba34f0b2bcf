//! What the reports of all parts say in the same way.

use crate::chart::{Series, Stroke};
use crate::commands::vmcache::host::Outcome;
use crate::kv::System;
use crate::output::human_bytes;
use crate::stats::median;

/// One a system, told apart in print and by the colour-blind.
pub const COLORS: [&str; 8] =
    ["#c2410c", "#15803d", "#1d4ed8", "#0f766e", "#7e22ce", "#a16207", "#be185d", "#475569"];

/// The line of a system, which is the same in all charts.
pub fn series(system: System, points: Vec<(f64, f64)>) -> Series {
    let index = System::all().iter().position(|one| *one == system).unwrap_or(0);
    Series {
        name: system.name().to_owned(),
        color: COLORS[index % COLORS.len()],
        points,
        stroke: Stroke::Solid,
    }
}

/// Counts of seconds as points.
pub fn seconds(over_time: &[u64]) -> Vec<(f64, f64)> {
    over_time.iter().enumerate().map(|(second, count)| (second as f64, *count as f64)).collect()
}

/// About ten, at whole seconds.
pub fn second_labels(series: &[Series]) -> Vec<(f64, String)> {
    let last = series.iter().flat_map(|one| &one.points).map(|point| point.0 as usize).max().unwrap_or(0);
    (0..=last).step_by((last / 10).max(1)).map(|second| (second as f64, second.to_string())).collect()
}

/// Space on disk, the most memory, and the time of the load, as cells.
pub fn costs<'o>(outcomes: impl Iterator<Item = &'o Outcome> + Clone) -> [String; 3] {
    let disk_bytes: Vec<f64> = outcomes.clone().map(|outcome| outcome.answer.disk_bytes as f64).collect();
    let peak = outcomes.clone().filter_map(|outcome| outcome.memory_peak_bytes).max();
    let load_s: Vec<f64> =
        outcomes.map(|outcome| outcome.answer.load_s).filter(|load_s| *load_s > 0.0).collect();
    [
        human_bytes(median(&disk_bytes)),
        peak.map_or("unknown".to_owned(), |bytes| human_bytes(bytes as f64)),
        format!("{:.1} s", median(&load_s)),
    ]
}
