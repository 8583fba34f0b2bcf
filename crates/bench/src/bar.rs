//! What a measurement has to reach, with *met* or *missed*.

use crate::output::markdown_table;

pub struct Bar {
    pub what: String,
    pub limit: String,
    pub measured: Option<f64>,
    pub unit: &'static str,
    pub is_met: Option<bool>,
}

impl Bar {
    pub fn at_most(what: impl Into<String>, limit: f64, unit: &'static str, measured: Option<f64>) -> Self {
        let limit_text = format!("at most {}{unit}", shown(limit));
        Self { what: what.into(), limit: limit_text, measured, unit, is_met: measured.map(|m| m <= limit) }
    }

    pub fn at_least(what: impl Into<String>, limit: f64, unit: &'static str, measured: Option<f64>) -> Self {
        let limit_text = format!("at least {}{unit}", shown(limit));
        Self { what: what.into(), limit: limit_text, measured, unit, is_met: measured.map(|m| m >= limit) }
    }

    pub fn verdict(&self) -> &'static str {
        match self.is_met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        }
    }
}

/// With one place, or two where these say more.
fn shown(limit: f64) -> String {
    let text = format!("{limit:.2}");
    text.strip_suffix('0').map_or_else(|| text.clone(), str::to_owned)
}

pub fn table(bars: &[Bar]) -> String {
    let row = |bar: &Bar| {
        let measured = bar.measured.map_or_else(|| "-".to_owned(), |m| format!("{m:.2}{}", bar.unit));
        vec![bar.what.clone(), bar.limit.clone(), measured, bar.verdict().to_owned()]
    };
    markdown_table(&["bar", "limit", "measured", "verdict"], &bars.iter().map(row).collect::<Vec<_>>())
}
