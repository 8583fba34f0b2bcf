//! What a run leaves behind: tables and findings, raw data, a drawing a figure, the page.

use serde_json::{json, Value};

use super::args::Args;
use super::bars;
use super::choice;
use super::drawn::{title, Drawn};
use super::figure::Figure;
use super::figures::Figures;
use super::page;
use super::quoted::Quoted;
use super::records::Records;
use crate::bar::{self, Bar};
use crate::error::{BenchError, Result};
use crate::output::{human_bytes, human_ns, markdown_table, Output};
use crate::stats::median_of;
use crate::study::{Outcome, Subject};

pub const PAGE: &str = "report.html";

/// # Errors
/// A file cannot be written, or nothing could be measured.
pub fn write(
    args: &Args,
    figures: &[Figure],
    records: &Records,
    quoted: &[Quoted],
    out: &Output,
) -> Result<()> {
    let source = Figures { args, records, quoted };
    let drawn: Vec<Drawn> = figures.iter().filter_map(|figure| source.draw(*figure)).collect();
    let bars = if figures.contains(&Figure::Bars) { bars::judge(args, records) } else { Vec::new() };
    let mut body = String::new();
    if !bars.is_empty() {
        body.push_str(&format!("## Bars\n\n{}\n", bar::table(&bars)));
    }
    let choice = choice::paragraph(args, records);
    if let Some(choice) = &choice {
        body.push_str(&format!("## Which to take\n\n{choice}\n\n"));
    }
    let default_point = default_point(args, records);
    if let Some(table) = &default_point {
        body.push_str(&format!("## At the default point\n\n{table}\n"));
    }
    for drawn in &drawn {
        body.push_str(&section(drawn));
        out.write(&format!("figure-{}.svg", drawn.figure.name()), drawn.svg().as_bytes())?;
    }
    let failures: String = records.failures().map(|(what, why)| format!("- {what}: {why}\n")).collect();
    if !failures.is_empty() {
        body.push_str(&format!("## What was not measured\n\n{failures}\n"));
    }
    out.write_json(&raw(records, &drawn, &bars, quoted)?)?;
    if args.report || figures.len() == Figure::all().len() {
        let header: Vec<(String, String)> =
            out.header().map(|(name, text)| (name.to_owned(), text)).collect();
        out.write(
            PAGE,
            page::page(&header, &drawn, &bars, choice.as_deref().unwrap_or_default()).as_bytes(),
        )?;
    }
    out.write_markdown(&body)?;
    match (drawn.is_empty(), records.failures().next()) {
        (true, Some((what, why))) => Err(BenchError::Failed(format!("nothing was measured: {what}: {why}"))),
        _ => Ok(()),
    }
}

fn section(drawn: &Drawn) -> String {
    // A trace has a column for each stretch of time: the drawing says more.
    let table = if drawn.figure == Figure::Trace { String::new() } else { format!("{}\n", drawn.table()) };
    format!(
        "## {}\n\n{table}- The paper: {}\n- Here: {}.\n\n",
        title(drawn.figure),
        drawn.figure.paper(),
        drawn.finding()
    )
}

/// All algorithms where the axes meet, medians over the rounds.
fn default_point(args: &Args, records: &Records) -> Option<String> {
    let row = |subject: Subject| {
        let case = args.base_case(subject);
        let of = |metric: fn(&Outcome) -> f64| median_of(records.rounds_of(&case, false).map(metric));
        let time = |metric| Some(human_ns(of(metric)?));
        let count = |metric| Some(format!("{:.0}", of(metric)?));
        Some(vec![
            subject.name().to_owned(),
            time(|outcome| outcome.mean_ns)?,
            time(|outcome| outcome.p50_ns as f64)?,
            time(|outcome| outcome.p99_ns as f64)?,
            time(|outcome| outcome.p999_ns as f64)?,
            time(|outcome| outcome.p9999_ns as f64)?,
            time(|outcome| outcome.max_ns as f64)?,
            time(|outcome| outcome.stage_mean_ns)?,
            time(Outcome::cut_median_ns)?,
            time(|outcome| super::figure::Metric::Checkpoint.of(outcome))?,
            count(|outcome| outcome.client_copies as f64)?,
            human_bytes(of(|outcome| outcome.memory_bytes as f64)?),
            count(|outcome| outcome.tick_count as f64)?,
            count(|outcome| outcome.stopped_tick_count as f64)?,
        ])
    };
    let rows: Vec<_> = args.all_subjects().into_iter().filter_map(row).collect();
    let head = [
        "algorithm",
        "mean tick",
        "p50",
        "p99",
        "p99.9",
        "p99.99",
        "longest",
        "mean by stage",
        "cut",
        "checkpoint",
        "client's copies",
        "memory",
        "ticks",
        "left out",
    ];
    (!rows.is_empty()).then(|| markdown_table(&head, &rows))
}

fn raw(records: &Records, drawn: &[Drawn], bars: &[Bar], quoted: &[Quoted]) -> Result<Vec<Value>> {
    let failed = |error| BenchError::failed("write the results as JSON", error);
    let mut raw = Vec::new();
    for record in records.all() {
        raw.push(serde_json::to_value(record).map_err(failed)?);
    }
    raw.extend(quoted.iter().map(|quoted| json!({ "part": "quoted", "fork": quoted })));
    raw.extend(drawn.iter().map(|drawn| {
        let (name, paper, here) = (drawn.figure.name(), drawn.figure.paper(), drawn.finding());
        json!({ "part": "finding", "figure": name, "paper": paper, "here": here })
    }));
    raw.extend(bars.iter().map(|bar| {
        json!({ "part": "bar", "what": bar.what, "limit": bar.limit, "measured": bar.measured, "unit": bar.unit.trim(),
                "verdict": bar.verdict() })
    }));
    Ok(raw)
}
