//! The bars that the module has to reach, judged on the records.

use super::records::{Case, Label, Part, Records, Way};
use crate::bar::Bar;

/// Pages of a call that the bars are about: as many as an interface has entries.
pub const JUDGED_BATCH: u32 = 512;
const SHARE_PERCENT: f64 = 5.0;
const SHOOTDOWNS: f64 = 1.0;
const TWO_THREADS: f64 = 0.95;
/// Less than one instruction: rounds of 20,000 faults differ by the odd interrupt of the timer.
const FAULT_INSTRUCTIONS: f64 = 0.5;

pub fn judge(records: &Records) -> Vec<Bar> {
    let mut bars = vec![
        share(records, Way::ExmapNear, "in a row"),
        share(records, Way::Exmap, "scattered, five to a page table"),
        shootdowns(records),
        threads(records),
    ];
    bars.extend(
        [(Label::Loaded, "loaded"), (Label::Used, "used by another process")]
            .map(|(label, state)| fault(records, label, state)),
    );
    bars
}

/// Of calls with an entry for each page.
fn share(records: &Records, way: Way, where_pages_are: &str) -> Bar {
    let ns = |way, batch| records.per_page(Part::Churn, Case::of_one_thread(way, batch), |churn| churn.ns);
    let percent = ns(way, JUDGED_BATCH).zip(ns(Way::Madvise, 1)).map(|(ours, all)| 100.0 * ours / all);
    Bar::at_most(
        format!(
            "allocate and free a page, calls of 512 entries, {where_pages_are}: share of first touch and madvise of one page at \
             a time"
        ),
        SHARE_PERCENT,
        " %",
        percent,
    )
}

/// Also where other processors have to be told.
fn shootdowns(records: &Records) -> Bar {
    let most =
        [Part::Churn, Part::Threads, Part::Interrupts].into_iter().flat_map(|part| records.churns(part));
    let judged = most.filter(|churn| churn.way == Way::Exmap && churn.batch == JUDGED_BATCH);
    let per_call = judged.map(|churn| churn.shootdowns as f64 * f64::from(churn.batch) / churn.pages as f64);
    Bar::at_most("shootdowns for a free of 512 pages", SHOOTDOWNS, "", per_call.reduce(f64::max))
}

/// What a thread gets for its instructions, of what one alone gets.
pub fn efficiency(records: &Records, case: Case) -> Option<f64> {
    let ns = |threads| records.per_page(Part::Threads, Case { threads, ..case }, |churn| churn.ns);
    Some(ns(1)? / ns(case.threads)?)
}

fn threads(records: &Records) -> Bar {
    let case = Case { way: Way::Exmap, batch: JUDGED_BATCH, threads: 2 };
    Bar::at_least(
        "two threads on two interfaces, calls of 512: pages for the same instructions, of what one thread gets",
        TWO_THREADS,
        "",
        efficiency(records, case),
    )
}

fn fault(records: &Records, label: Label, state: &str) -> Bar {
    let more =
        records.fault_ns(label).zip(records.fault_ns(Label::Unloaded)).map(|(with, without)| with - without);
    let what = format!("a process that does not use it, the module {state}: more instructions a fault");
    Bar::at_most(what, FAULT_INSTRUCTIONS, "", more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::exmap::records::tests::churn;
    use crate::commands::exmap::records::{Measure, Record};

    fn verdict(records: Vec<Record>, part: &str) -> &'static str {
        let bars = judge(&Records::new(records));
        bars.iter().find(|bar| bar.what.contains(part)).unwrap().verdict()
    }

    #[test]
    fn shares_are_of_one_page_at_a_time() {
        let of = |way, batch, ns| churn(Part::Churn, Case::of_one_thread(way, batch), 512, ns, 1);
        let stock = || [of(Way::Madvise, 1, 20_000), of(Way::Madvise, 512, 10)];
        assert_eq!(verdict([&stock()[..], &[of(Way::ExmapNear, 512, 1000)]].concat(), "in a row"), "met");
        assert_eq!(verdict([&stock()[..], &[of(Way::Exmap, 512, 1000)]].concat(), "scattered"), "met");
        assert_eq!(verdict([&stock()[..], &[of(Way::Exmap, 512, 1001)]].concat(), "scattered"), "MISSED");
        assert_eq!(verdict(stock().to_vec(), "scattered"), "not measured");
    }

    #[test]
    fn one_shootdown_too_many_is_noticed() {
        let of = |run, count| churn(run, Case::of_one_thread(Way::Exmap, 512), 5120, 1, count);
        assert_eq!(verdict(vec![of(Part::Churn, 10), of(Part::Threads, 10)], "shootdowns"), "met");
        assert_eq!(verdict(vec![of(Part::Churn, 10), of(Part::Interrupts, 11)], "shootdowns"), "MISSED");
    }

    #[test]
    fn threads_are_judged_beside_one_on_the_same_machine() {
        let of = |threads, pages, ns| {
            churn(Part::Threads, Case { way: Way::Exmap, batch: 512, threads }, pages, ns, 1)
        };
        assert_eq!(verdict(vec![of(1, 1000, 95), of(2, 2000, 200)], "two threads"), "met");
        assert_eq!(verdict(vec![of(1, 1000, 94), of(2, 2000, 200)], "two threads"), "MISSED");
        let elsewhere = churn(Part::Churn, Case::of_one_thread(Way::Exmap, 512), 1000, 95, 1);
        assert_eq!(verdict(vec![elsewhere, of(2, 2000, 200)], "two threads"), "not measured");
    }

    #[test]
    fn a_fault_may_cost_nothing_more() {
        let fault = |label, ns_per_fault| Record {
            run: Part::Costs,
            measure: Measure::Fault { label, round: 0, ns_per_fault },
        };
        let both = |loaded| vec![fault(Label::Unloaded, 3000.1), fault(Label::Loaded, loaded)];
        assert_eq!(verdict(both(3000.2), "the module loaded"), "met");
        assert_eq!(verdict(both(3001.0), "the module loaded"), "MISSED");
        assert_eq!(verdict(both(3001.0), "used by another"), "not measured");
    }
}
