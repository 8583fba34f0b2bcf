//! Short runs of the driver, as a benchmark uses it.

use std::time::Duration;

use stillframe_transactional::driver::{run, Keys, Load, LoadError, BUCKET_NS};
use stillframe_transactional::{Kind, MemoryImage, Shape};

fn short() -> Load {
    Load {
        row_count: 5000,
        thread_count: 3,
        duration: Duration::from_millis(300),
        update_words: 3,
        keys: Keys::Zipf { exponent: 0.9 },
        cut_every: Some(Duration::from_millis(20)),
        ..Load::default()
    }
}

#[test]
fn each_kind_runs_with_cuts_and_says_what_happened() {
    for kind in Kind::ALL {
        let load = short();
        let mut image = MemoryImage::new(Shape::new(load.row_count, load.row_bytes).expect("a shape"));
        let report = run(kind, &load, &mut image).expect("a load");
        assert!(report.commits_per_s() > 100.0, "{kind}: {report:?}");
        assert_eq!(report.latency_ns.len(), report.sessions.commit_count);
        let counted: u64 = report.commits_over_time.iter().map(|count| u64::from(*count)).sum();
        assert_eq!(counted, report.sessions.commit_count);
        assert!(report.commits_over_time.len() as u64 >= 300_000_000 / BUCKET_NS);
        assert!(!report.cuts.is_empty() && report.failed_image_count == 0, "{kind}: {:?}", report.cuts);
        for times in report.cuts.iter().map(|cut| cut.report.times) {
            assert!(
                times.total_ns >= times.to_cut_ns + times.drain_ns + times.access_ns,
                "{kind}: {times:?}"
            );
            assert!(times.to_cut_ns > 0 && times.access_ns > 0, "{kind}: {times:?}");
        }
        assert!(report.sessions.stalls.stall_ns() > 0 && report.store_bytes >= 2 * 5000 * 64);
        let last = report.cuts.last().map(|cut| &cut.report.prefix);
        assert_eq!(image.cut().map(|cut| &cut.prefix), last, "{kind}");
    }
}

#[test]
fn an_open_load_keeps_its_rate_and_none_needs_cuts() {
    let load = Load { rate_per_s: Some(2000.0), cut_every: None, keys: Keys::Uniform, ..short() };
    let mut image = MemoryImage::new(Shape::new(load.row_count, load.row_bytes).expect("a shape"));
    let report = run(Kind::Calc, &load, &mut image).expect("a load");
    assert!((100..=600).contains(&report.latency_ns.len()), "{report:?}");
    assert!(report.cuts.is_empty());
}

#[test]
fn loads_that_cannot_be_run_are_refused() {
    let mut image = MemoryImage::new(Shape::new(1, 64).expect("a shape"));
    let few = Load { row_count: 5, ..short() };
    assert_eq!(run(Kind::Cpr, &few, &mut image).err(), Some(LoadError::Count(10.0)));
    for load in [
        Load { thread_count: 0, ..short() },
        Load { update_words: 9, ..short() },
        Load { rate_per_s: Some(0.0), ..short() },
        Load { keys: Keys::Zipf { exponent: -1.0 }, ..short() },
        Load { row_bytes: 63, ..short() },
    ] {
        assert!(run(Kind::VirtualPiggyback, &load, &mut image).is_err(), "{load:?}");
    }
}
