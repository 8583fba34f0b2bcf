//! The figures of the paper as tables.

use super::bars::{efficiency, JUDGED_BATCH};
use super::records::{Case, Label, Part, Records, StoreRun, Way, Work};
use crate::output::{human_bytes, markdown_section};
use crate::stats::{distinct, median_of};

const NONE: &str = "-";
const GROUP: f64 = JUDGED_BATCH as f64;

pub fn all(records: &Records) -> String {
    [
        churn(records),
        techniques(records),
        threads(records),
        interrupts(records),
        reads(records),
        accesses(records),
        stores(records),
        costs(records),
    ]
    .concat()
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |v| format!("{v:.0}"))
}

fn precise(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |v| format!("{v:.2}"))
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |v| format!("{v:.2} x"))
}

/// A row a way and a column a batch.
fn by_batch(
    records: &Records,
    part: Part,
    ways: &[Way],
    name: fn(Way) -> &'static str,
) -> (Vec<String>, Vec<Vec<String>>) {
    let batches = distinct(records.churns(part).map(|churn| churn.batch));
    let mut header = vec!["pages a call".to_owned()];
    header.extend(batches.iter().map(u32::to_string));
    let row = |way: &Way| {
        let cell = |batch: &u32| {
            let case = Case::of_one_thread(*way, *batch);
            number(records.per_page(part, case, |churn| churn.ns))
        };
        std::iter::once(name(*way).to_owned()).chain(batches.iter().map(cell)).collect()
    };
    let measured = |way: &&Way| records.churns(part).any(|churn| churn.way == **way);
    (header, ways.iter().filter(measured).map(row).collect())
}

fn borrowed(header: &[String]) -> Vec<&str> {
    header.iter().map(String::as_str).collect()
}

fn churn(records: &Records) -> String {
    let (header, rows) = by_batch(records, Part::Churn, &Way::CHURNS, Way::name);
    let refused = distinct(records.refused())
        .into_iter()
        .map(|(way, why)| format!(" Refused by this kernel: {} ({why}).", way.name()));
    let comment = format!(
        "Instructions to take a page and give it back, one thread, one processor, medians. Pages of a call are scattered, but for \
         those *in a row*. Each page is written to once.{}",
        refused.collect::<String>()
    );
    markdown_section("Pages taken and given back (Figures 8 and 10)", &comment, &borrowed(&header), &rows)
}

/// What each step from the kernel's way to the module's saves.
fn techniques(records: &Records) -> String {
    let steps = [
        ("first touch and madvise, one page at a time", Way::Madvise, 1),
        ("the kernel's best: populate and madvise of rows, calls of 512", Way::Populate, JUDGED_BATCH),
        ("exmap, one page a call: no faults, its own frames", Way::Exmap, 1),
        ("exmap, calls of 512, but frames cleared as the kernel does", Way::ExmapZeroed, JUDGED_BATCH),
        ("exmap, calls of 512", Way::Exmap, JUDGED_BATCH),
        ("exmap, calls of 512, a second interface frees", Way::ExmapTwo, JUDGED_BATCH),
        ("exmap, calls of 512, all frames stolen", Way::ExmapStealing, JUDGED_BATCH),
        ("exmap, 512 pages in a row, an entry a page", Way::ExmapNear, JUDGED_BATCH),
        ("exmap, 512 pages in a row as one entry", Way::ExmapRow, JUDGED_BATCH),
    ];
    let of = |way, batch, what: fn(&super::records::Churn) -> u64| {
        records.per_page(Part::Churn, Case::of_one_thread(way, batch), what)
    };
    let first = of(Way::Madvise, 1, |churn| churn.ns);
    let row = |(name, way, batch): (&str, Way, u32)| {
        let all = of(way, batch, |churn| churn.ns)?;
        let share = first.map(|first| first / all);
        Some(vec![
            name.to_owned(),
            number(of(way, batch, |churn| churn.take_ns)),
            number(of(way, batch, |churn| churn.give_ns)),
            number(Some(all)),
            share.map_or_else(|| NONE.to_owned(), |share| format!("1/{share:.1}")),
            precise(of(way, batch, |churn| churn.shootdowns).map(|count| count * GROUP)),
        ])
    };
    let rows: Vec<_> = steps.into_iter().filter_map(row).collect();
    let header = ["step", "take", "give back", "both", "of the first", "shootdowns of 512 pages"];
    let comment = "Instructions a page, one thread, one processor. Shootdowns are the module's own count; the kernel flushes once a \
                   call of `madvise`, which nobody counts on one processor.";
    markdown_section("What each technique gives (Figure 10, left)", comment, &header, &rows)
}

/// A row for each way, batch and number of threads.
fn by_threads(records: &Records, part: Part, cells: impl Fn(Case) -> Vec<String>) -> Vec<Vec<String>> {
    let cases =
        records.churns(part).map(|churn| Case { way: churn.way, batch: churn.batch, threads: churn.threads });
    let row = |case: Case| {
        let name = vec![format!("{}, {} a call", case.way.name(), case.batch), case.threads.to_string()];
        [name, cells(case)].concat()
    };
    distinct(cases).into_iter().map(row).collect()
}

fn threads(records: &Records) -> String {
    let rows = by_threads(records, Part::Threads, |case| {
        let page = records.per_page(Part::Threads, case, |churn| churn.ns);
        vec![number(page), precise(efficiency(records, case))]
    });
    let header =
        ["way", "threads", "instructions a page", "pages for the same instructions, of one thread's"];
    let comment = "Each thread has an interface of its own, all share one processor: what they do is counted, what they wait for \
                   one another on several processors is not.";
    markdown_section("Several threads (Figures 3, 8 and 10)", comment, &header, &rows)
}

fn interrupts(records: &Records) -> String {
    let rows = by_threads(records, Part::Interrupts, |case| {
        let of_512 = |what: fn(&super::records::Churn) -> u64| {
            precise(records.per_page(Part::Interrupts, case, what).map(|count| count * GROUP))
        };
        let shootdowns =
            if case.way.has_module() { of_512(|churn| churn.shootdowns) } else { NONE.to_owned() };
        vec![of_512(|churn| churn.tlb_interrupts), of_512(|churn| churn.call_interrupts), shootdowns]
    });
    let header = ["way", "threads", "TLB interrupts for 512 pages", "call interrupts", "shootdowns"];
    let comment = "Each thread has a processor, emulated by a thread of the host: only counts mean something. Interrupts are those \
                   of `/proc/interrupts` (TLB, CAL), of all processors; shootdowns are the module's own count. A processor that \
                   is idle at the moment is not interrupted.";
    markdown_section("Shootdowns and interrupts", comment, &header, &rows)
}

fn reads(records: &Records) -> String {
    let (header, rows) = by_batch(records, Part::Reads, &Way::READS, Way::read_name);
    let comment = "Instructions to read a page and give its memory back, one thread, one processor, from a device that completes \
                   each request at once without copying (`null_blk`, `irqmode=0 queue_mode=0`), past the page cache. The first \
                   row gives nothing back.";
    markdown_section("Reads (Figure 10, right)", comment, &borrowed(&header), &rows)
}

fn accesses(records: &Records) -> String {
    let sizes = distinct(records.accesses().map(|access| access.bytes));
    let of = |way: &str, bytes: u64| {
        let own = records.accesses().filter(move |access| access.way == way && access.bytes == bytes);
        median_of(own.map(|access| access.ns))
    };
    let row = |way: &str| {
        let cell = |bytes: &u64| of(way, *bytes).map_or_else(|| NONE.to_owned(), |ns| format!("{ns:.1}"));
        std::iter::once(way.to_owned()).chain(sizes.iter().map(cell)).collect()
    };
    let rows: Vec<Vec<String>> =
        distinct(records.accesses().map(|access| access.way.as_str())).into_iter().map(row).collect();
    let mut header = vec!["access".to_owned()];
    header.extend(sizes.iter().map(|bytes| human_bytes(*bytes as f64)));
    let comment = "Instructions to read a random word of a random page that is in memory, drawing the numbers included.";
    markdown_section("Accesses to pages (Table 2)", comment, &borrowed(&header), &rows)
}

fn stores(records: &Records) -> String {
    let mut rows = Vec::new();
    for work in Work::ALL {
        let of_work = || records.stores().filter(move |run| run.work == work);
        let backends = distinct(of_work().map(|run| run.backend.as_str()));
        let each = |backend: &str, what: fn(&StoreRun) -> u64| {
            let own = of_work().filter(|run| run.backend == backend && run.count > 0);
            median_of(own.map(|run| what(run) as f64 / run.count as f64))
        };
        let of_evicted = |backend: &str, what: fn(&StoreRun) -> u64| {
            let own = of_work().filter(|run| run.backend == backend && run.evicted_pages > 0);
            median_of(own.map(|run| what(run) as f64 / run.evicted_pages as f64))
        };
        let cpu = |backend: &str| each(backend, |run| run.cpu_ns);
        let first = backends.first().and_then(|backend| cpu(backend));
        for backend in backends {
            rows.push(vec![
                format!("{}, {backend}", work.name()),
                number(cpu(backend)),
                ratio(cpu(backend).zip(first).map(|(own, first)| own / first)),
                precise(each(backend, |run| run.loaded_pages)),
                precise(each(backend, |run| run.evicted_pages)),
                number(of_evicted(backend, |run| run.give_back_ns)),
                precise(of_evicted(backend, |run| run.shootdowns)),
            ]);
        }
    }
    let header = [
        "work and backend",
        "instructions each",
        "against the first",
        "pages loaded",
        "pages evicted",
        "give a page back",
        "shootdowns a page evicted",
    ];
    let comment = "A store whose data is several times as large as its memory, on a disk in memory, one thread beside the store's own, \
                   one processor. Instructions are all of the process, its threads and the kernel's work for it included, each \
                   read a copy of 4 KB. *Give a page back* is the time in which its memory was given up, with whatever else ran \
                   then.";
    markdown_section("Lookups and TPC-C under eviction", comment, &header, &rows)
}

fn costs(records: &Records) -> String {
    let of = |label| records.fault_ns(label);
    let rows = match of(Label::Unloaded) {
        None => Vec::new(),
        Some(_) => vec![vec![
            "first touch of a page".to_owned(),
            precise(of(Label::Unloaded)),
            precise(of(Label::Loaded)),
            precise(of(Label::Used)),
        ]],
    };
    let header = ["instructions", "module unloaded", "loaded", "used by another process"];
    markdown_section("Processes that do not use it", "Instructions, one processor, medians.", &header, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::exmap::records::tests::churn as record;
    use crate::commands::exmap::records::{Measure, Record};

    #[test]
    fn what_was_not_measured_is_left_out() {
        assert_eq!(all(&Records::new(Vec::new())), "");
        let case = |way, batch| Case::of_one_thread(way, batch);
        let records = Records::new(vec![
            record(Part::Churn, case(Way::Madvise, 1), 10, 66_000, 0),
            record(Part::Churn, case(Way::Exmap, 512), 512, 153_600, 1),
            Record {
                run: Part::Churn,
                measure: Measure::Refused { way: Way::ProcessMadvise, why: "Invalid argument".to_owned() },
            },
        ]);
        let text = all(&records);
        assert!(text.contains(" 1/22.0 |") && text.contains("1.00 |"), "{text}");
        assert!(text.contains("process_madvise of a batch (Invalid argument)"), "{text}");
        assert!(!text.contains("Table 2") && !text.contains("stolen"), "{text}");
    }
}
