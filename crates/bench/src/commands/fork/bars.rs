//! The bars that the module has to reach, judged on the records.

use super::records::{
    fault_ns, shares, small_fork_ns, small_life_ns, Label, Measure, Part, Records, SaveCommand, Strategy,
};
use crate::bar::Bar;
use crate::stats::{distinct, median_of};

/// Both of the module's fork bars and the table bar are about one gigabyte.
pub const JUDGED_MB: u64 = 1024;
const ASYNC_FORK_PERCENT: f64 = 1.5;
const ODF_FORK_PERCENT: f64 = 1.2;
const COPIED_SHARE_PERCENT: f64 = 100.0 / 3.0;
const FAULT_INSTRUCTIONS: f64 = 60.0;
const SMALL_FORK_PERCENT: f64 = 2.0;
const P99_REDUCTION_PERCENT: f64 = 80.0;

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

fn async_only(strategies: impl Iterator<Item = Strategy>) -> Vec<Strategy> {
    distinct(strategies.filter(|strategy| matches!(strategy, Strategy::Async { .. })))
}

fn fork_time(records: &Records) -> Vec<Bar> {
    let judged = || records.forks(Part::Fork).filter(|fork| fork.mb == JUDGED_MB);
    let time = |strategy: Strategy| {
        median_of(judged().filter(|fork| fork.strategy == strategy).map(|fork| fork.fork_ns as f64))
    };
    let share = |strategy| percent(time(strategy), time(Strategy::Default));
    let of = |strategy: Strategy| format!("parent's fork() at 1 GB, share of the default's: {strategy}");
    let mut bars: Vec<_> = async_only(records.forks(Part::Fork).map(|fork| fork.strategy))
        .into_iter()
        .map(|s| Bar::at_most(of(s), ASYNC_FORK_PERCENT, " %", share(s)))
        .collect();
    bars.push(Bar::at_most(of(Strategy::Odf), ODF_FORK_PERCENT, " %", share(Strategy::Odf)));
    bars
}

fn tables_copied(records: &Records) -> Vec<Bar> {
    let judged = || records.forks(Part::Writes).filter(|fork| fork.mb == JUDGED_MB && fork.period_ns == 0);
    let by_parent = |strategy: Strategy| {
        median_of(judged().filter(|fork| fork.strategy == strategy).map(|fork| shares(fork).parent as f64))
    };
    let bar = |strategy: Strategy| {
        let what = format!("tables the parent copies, 2,000 random writes, 1 GB, share of ODF's: {strategy}");
        Bar::at_most(what, COPIED_SHARE_PERCENT, " %", percent(by_parent(strategy), by_parent(Strategy::Odf)))
    };
    async_only(records.forks(Part::Writes).map(|fork| fork.strategy)).into_iter().map(bar).collect()
}

fn not_opted_in(records: &Records) -> Vec<Bar> {
    type Cost = fn(&Measure) -> Option<f64>;
    let more = |cost: Cost| Some(records.cost(Label::Loaded, cost)? - records.cost(Label::Unloaded, cost)?);
    let percent_more = |cost: Cost| percent(more(cost), records.cost(Label::Unloaded, cost));
    vec![
        Bar::at_most("not opted in: more instructions a fault", FAULT_INSTRUCTIONS, "", more(fault_ns)),
        Bar::at_most(
            "not opted in: fork() of a small process, more instructions",
            SMALL_FORK_PERCENT,
            " %",
            percent_more(small_fork_ns),
        ),
        Bar::at_most(
            "not opted in: its fork, exit and wait together",
            SMALL_FORK_PERCENT,
            " %",
            percent_more(small_life_ns),
        ),
    ]
}

fn redis(records: &Records) -> Vec<Bar> {
    let saves = || records.saves(SaveCommand::BgSave);
    let Some(largest) = saves().map(|save| save.mb).max() else { return Vec::new() };
    let p99 = |strategy: Strategy| {
        let wanted = saves().filter(|save| save.mb == largest && save.strategy == strategy);
        median_of(wanted.map(|save| save.during.p99_ns as f64))
    };
    let bar = |strategy: Strategy| {
        let less = percent(p99(strategy), p99(Strategy::Default)).map(|share| 100.0 - share);
        let what =
            format!("Redis p99 during BGSAVE, {largest} MB, less than with the default fork: {strategy}");
        Bar::at_least(what, P99_REDUCTION_PERCENT, " %", less)
    };
    async_only(saves().map(|save| save.strategy)).into_iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::fork::records::{Fork, Latencies, Record, Save};

    fn strategy(name: &str) -> Strategy {
        Strategy::try_from(name.to_owned()).unwrap()
    }

    fn fork(name: &str, fork_ns: u64) -> Record {
        let fork = Fork { mb: JUDGED_MB, strategy: strategy(name), fork_ns, ..Fork::default() };
        Record { run: Part::Fork, measure: Measure::Fork(fork) }
    }

    fn verdicts(records: Vec<Record>) -> Vec<(String, &'static str)> {
        judge(&Records::new(records)).iter().map(|b| (b.what.clone(), b.verdict())).collect()
    }

    fn verdict(records: Vec<Record>, part: &str) -> &'static str {
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
        let fault = |label, ns_per_fault| Record {
            run: Part::Costs,
            measure: Measure::Fault { label, round: 0, ns_per_fault },
        };
        assert_eq!(
            verdict(vec![fault(Label::Unloaded, 6000.0), fault(Label::Loaded, 6060.0)], "a fault"),
            "met"
        );
        assert_eq!(
            verdict(vec![fault(Label::Unloaded, 6000.0), fault(Label::Loaded, 6061.0)], "a fault"),
            "MISSED"
        );
    }

    #[test]
    fn redis_is_judged_at_the_largest_size() {
        let save = |mb, name: &str, p99_ns| {
            let during = Latencies { p99_ns, ..Latencies::default() };
            let save = Save { mb, strategy: strategy(name), during, ..Save::default() };
            Record { run: Part::Redis, measure: Measure::Redis(Box::new(save)) }
        };
        let small = [save(64, "default", 10), save(64, "1", 10)];
        let good = [save(512, "default", 100), save(512, "1", 20)];
        let bad = [save(512, "default", 100), save(512, "1", 21)];
        assert_eq!(verdict([small.clone(), good].concat(), "Redis p99"), "met");
        assert_eq!(verdict([small, bad].concat(), "Redis p99"), "MISSED");
    }
}
