//! What a part of a measurement has found, and a report of several.

use serde_json::Value;

use crate::bar::{self, Bar};
use crate::error::Result;
use crate::output::Output;
use crate::stats::with_range;

/// What a part has found.
pub struct Section {
    pub title: String,
    pub table: String,
    pub bars: Vec<Bar>,
    pub records: Vec<Value>,
}

/// Writes the raw results, then the tables and all bars under them.
pub fn report(out: &mut Output, is_small: bool, sections: Vec<Section>) -> Result<()> {
    let records: Vec<&Value> = sections.iter().flat_map(|section| &section.records).collect();
    out.write_json(&records)?;
    let mut text = if is_small { "A small run: no measure.\n\n".to_owned() } else { String::new() };
    for Section { title, table, .. } in &sections {
        text.push_str(&format!("## {title}\n\n{table}\n"));
    }
    let bars: Vec<Bar> = sections.into_iter().flat_map(|section| section.bars).collect();
    out.write_markdown(&format!("{text}{}", bar::table(&bars)))
}

/// A line of a table: what was measured, and of each round's value the median and the range.
pub fn row(name: &str, values: &[Vec<f64>], show: impl Fn(f64) -> String + Copy) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(values.iter().map(|of| with_range(of, show))).collect()
}
