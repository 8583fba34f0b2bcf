//! The bars that the module has to reach, judged on the records.

use serde_json::json;

use super::records::{shares, strategy_name, Records};
use crate::output::markdown_table;

/// Both of the module's fork bars and the table bar are about one gigabyte.
pub const JUDGED_MB: u64 = 1024;
const ASYNC_FORK_PERCENT: f64 = 1.5;
const ODF_FORK_PERCENT: f64 = 1.2;
const COPIED_SHARE_PERCENT: f64 = 100.0 / 3.0;
const FAULT_INSTRUCTIONS: f64 = 60.0;
const SMALL_FORK_PERCENT: f64 = 2.0;
const P99_REDUCTION_PERCENT: f64 = 80.0;

pub struct Bar {
    pub what: String,
    pub limit: String,
    pub measured: Option<f64>,
    pub unit: &'static str,
    pub is_met: Option<bool>,
}

impl Bar {
    fn at_most(what: impl Into<String>, limit: f64, unit: &'static str, measured: Option<f64>) -> Self {
        let limit_text = format!("at most {limit:.1}{unit}");
        Self { what: what.into(), limit: limit_text, measured, unit, is_met: measured.map(|m| m <= limit) }
    }

    fn at_least(what: impl Into<String>, limit: f64, unit: &'static str, measured: Option<f64>) -> Self {
        let limit_text = format!("at least {limit:.1}{unit}");
        Self { what: what.into(), limit: limit_text, measured, unit, is_met: measured.map(|m| m >= limit) }
    }

    fn verdict(&self) -> &'static str {
        match self.is_met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        }
    }
}

fn percent(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    Some(part? / whole.filter(|w| *w > 0.0)? * 100.0)
}

pub fn judge(records: &Records) -> Vec<Bar> {
    let mut bars = fork_time(records);
    bars.extend(tables_copied(records));
    bars.extend(not_opted_in(records));
    bars.extend(redis(records));
    bars
}

fn async_strategies(records: &Records, run: &str) -> Vec<String> {
    let found = records.distinct(&[("run", json!(run))], "strategy");
    let names = found.iter().filter_map(|v| v.as_str());
    names.filter(|s| s.parse::<u32>().is_ok()).map(str::to_owned).collect()
}

fn fork_time(records: &Records) -> Vec<Bar> {
    let time = |strategy: &str| {
        let wanted = [("run", json!("fork")), ("mb", json!(JUDGED_MB)), ("strategy", json!(strategy))];
        records.median(&wanted, "/fork_ns")
    };
    let share = |strategy: &str| percent(time(strategy), time("default"));
    let of = |strategy: &str| {
        format!("parent's fork() at 1 GB, share of the default's: {}", strategy_name(strategy))
    };
    let mut bars: Vec<_> = async_strategies(records, "fork")
        .iter()
        .map(|s| Bar::at_most(of(s), ASYNC_FORK_PERCENT, " %", share(s)))
        .collect();
    bars.push(Bar::at_most(of("odf"), ODF_FORK_PERCENT, " %", share("odf")));
    bars
}

fn tables_copied(records: &Records) -> Vec<Bar> {
    let by_parent = |strategy: &str| {
        let wanted = [
            ("run", json!("writes")),
            ("mb", json!(JUDGED_MB)),
            ("strategy", json!(strategy)),
            ("period_ns", json!(0)),
        ];
        records.median_of(&wanted, |record| Some(shares(record, "").parent as f64))
    };
    let bar = |strategy: &String| {
        let what = format!(
            "tables the parent copies, 2,000 random writes, 1 GB, share of ODF's: {}",
            strategy_name(strategy)
        );
        Bar::at_most(what, COPIED_SHARE_PERCENT, " %", percent(by_parent(strategy), by_parent("odf")))
    };
    async_strategies(records, "writes").iter().map(bar).collect()
}

fn not_opted_in(records: &Records) -> Vec<Bar> {
    let of = |kind: &str, label: &str, field: &str| {
        records.median(&[("run", json!("costs")), ("kind", json!(kind)), ("label", json!(label))], field)
    };
    let more = |kind: &str, field: &str| Some(of(kind, "loaded", field)? - of(kind, "unloaded", field)?);
    let small = |field: &str| percent(more("small", field), of("small", "unloaded", field));
    vec![
        Bar::at_most(
            "not opted in: more instructions a fault",
            FAULT_INSTRUCTIONS,
            "",
            more("fault", "/ns_per_fault"),
        ),
        Bar::at_most(
            "not opted in: fork() of a small process, more instructions",
            SMALL_FORK_PERCENT,
            " %",
            small("/fork_ns"),
        ),
        Bar::at_most(
            "not opted in: its fork, exit and wait together",
            SMALL_FORK_PERCENT,
            " %",
            small("/life_ns"),
        ),
    ]
}

fn redis(records: &Records) -> Vec<Bar> {
    let sizes = records.distinct(&[("command", json!("BGSAVE"))], "mb");
    let Some(largest) = sizes.iter().filter_map(|v| v.as_u64()).max() else { return Vec::new() };
    let p99 = |strategy: &str| {
        let wanted = [("command", json!("BGSAVE")), ("mb", json!(largest)), ("strategy", json!(strategy))];
        records.median(&wanted, "/during/p99_ns")
    };
    let bar = |strategy: &String| {
        let less = percent(p99(strategy), p99("default")).map(|share| 100.0 - share);
        let what = format!(
            "Redis p99 during BGSAVE, {largest} MB, less than with the default fork: {}",
            strategy_name(strategy)
        );
        Bar::at_least(what, P99_REDUCTION_PERCENT, " %", less)
    };
    async_strategies(records, "redis").iter().map(bar).collect()
}

pub fn table(bars: &[Bar]) -> String {
    let row = |bar: &Bar| {
        let measured = bar.measured.map_or_else(|| "-".to_owned(), |m| format!("{m:.2}{}", bar.unit));
        vec![bar.what.clone(), bar.limit.clone(), measured, bar.verdict().to_owned()]
    };
    markdown_table(&["bar", "limit", "measured", "verdict"], &bars.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn fork(strategy: &str, ns: u64) -> Value {
        json!({"run": "fork", "mb": 1024, "strategy": strategy, "fork_ns": ns})
    }

    fn verdicts(records: Vec<Value>) -> Vec<(String, &'static str)> {
        judge(&Records::new(records)).iter().map(|b| (b.what.clone(), b.verdict())).collect()
    }

    fn verdict(records: Vec<Value>, part: &str) -> &'static str {
        verdicts(records).iter().find(|(what, _)| what.contains(part)).unwrap().1
    }

    #[test]
    fn fork_times_are_judged_as_shares_of_the_default() {
        let records =
            || vec![fork("default", 1_000_000), fork("1", 15_000), fork("4", 15_100), fork("odf", 12_001)];
        assert_eq!(verdict(records(), "1 thread"), "met");
        assert_eq!(verdict(records(), "4 threads"), "MISSED");
        assert_eq!(verdict(records(), "On-Demand-Fork"), "MISSED");
        assert_eq!(verdict(vec![], "On-Demand-Fork"), "not measured");
        assert_eq!(verdict(vec![fork("odf", 5)], "On-Demand-Fork"), "not measured");
    }

    #[test]
    fn costs_are_judged_as_differences() {
        let fault = |label: &str, ns: f64| json!({"run": "costs", "kind": "fault", "label": label, "ns_per_fault": ns});
        assert_eq!(verdict(vec![fault("unloaded", 6000.0), fault("loaded", 6060.0)], "a fault"), "met");
        assert_eq!(verdict(vec![fault("unloaded", 6000.0), fault("loaded", 6061.0)], "a fault"), "MISSED");
    }

    #[test]
    fn redis_is_judged_at_the_largest_size() {
        let save = |mb: u64, strategy: &str, ns: u64| json!({"run": "redis", "command": "BGSAVE", "mb": mb, "strategy": strategy, "during": {"p99_ns": ns}});
        let small = [save(64, "default", 10), save(64, "1", 10)];
        let good = [save(512, "default", 100), save(512, "1", 20)];
        let bad = [save(512, "default", 100), save(512, "1", 21)];
        assert_eq!(verdict([small.clone(), good].concat(), "Redis p99"), "met");
        assert_eq!(verdict([small, bad].concat(), "Redis p99"), "MISSED");
    }
}
