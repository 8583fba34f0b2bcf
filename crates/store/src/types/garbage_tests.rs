//! Garbage across cuts and crashes, one step at a time: the thread that works it off does not run here.

use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::pagefile::USER_HEADER_BYTES;
use stillframe_pagepool::snapshot::Progress;
use stillframe_pagepool::{Pool, PoolOptions};

use super::string;
use crate::blobs::{Blob, Collected, Part, PAGE_ENTRIES};
use crate::keyspace::{check, collect, whole, CollectionChecks, Keyspace, Local, Op, CATALOG_PAGE_COUNT};
use crate::{DbId, Deadline, Key, NewValue, Options};

const DB: DbId = DbId(1);
/// Leaves of a tree that takes several steps.
const TREE_KEYS: u32 = 9_000;

fn options() -> Options {
    Options { database_count: 2, huge_pages: false, ..Options::default() }
}

fn open_pool(device: &Arc<SimDevice>) -> Arc<Pool> {
    let options = PoolOptions { huge_pages: false, ..PoolOptions::default() };
    let (pool, _) = Pool::open(device.clone(), &options).expect("a page file without damage");
    pool
}

struct Run {
    device: Arc<SimDevice>,
    keyspace: Arc<Keyspace>,
    local: Local,
}

impl Run {
    fn create() -> Run {
        let device = Arc::new(SimDevice::new(1));
        let keyspace = Keyspace::create(open_pool(&device), options()).unwrap();
        let local = keyspace.local(keyspace.pool.join());
        Run { device, keyspace: Arc::new(keyspace), local }
    }

    /// What a start finds after a crash now; this run goes on.
    fn after_a_crash(&self) -> Run {
        let device = Arc::new(SimDevice::from_image(1, self.device.image()));
        let pool = open_pool(&device);
        pool.residency().wait_until_warm();
        // The catalog is the first object of a pool.
        let keyspace = Keyspace::attach(pool, options(), self.keyspace.catalog).expect("a catalog");
        let local = keyspace.local(keyspace.pool.join());
        Run { device, keyspace: Arc::new(keyspace), local }
    }

    fn cut(&self) {
        let keyspace = self.keyspace.clone();
        let at_cut = move || {
            keyspace.fold().expect("a catalog");
            Ok([0; USER_HEADER_BYTES])
        };
        let pool = &self.keyspace.pool;
        self.local.holder.member.idle(|| pool.checkpoint(at_cut, &Progress::default())).expect("a save");
    }

    fn blob(&self, len_bytes: usize) -> Blob {
        self.keyspace.blobs.make(&[Part::Bytes(&vec![7; len_bytes])], false).expect("room")
    }

    fn discard(&self, blob: &Blob) {
        self.keyspace.garbage.push_blob(&self.keyspace.pool, blob.pid, blob.place);
    }

    fn flush_keys(&mut self, count: u32) {
        for number in 0..count {
            let bytes = format!("key:{number}").into_bytes();
            let key = Key::new(&bytes, self.keyspace.trees.order.hash(&bytes));
            let value = vec![1; if number % 64 == 0 { 15_000 } else { number as usize % 600 }];
            let value = NewValue::Bytes { bytes: &value, raw: false };
            string::set(
                &mut Op { keyspace: &self.keyspace, local: &mut self.local },
                DB,
                &key,
                value,
                Deadline::Clear,
            )
            .expect("room");
        }
        whole::flush(&self.keyspace, DB, (&self.local.holder.acting, 0));
    }

    /// Whether nothing is lost or there twice.
    fn check(&self) {
        let checks = CollectionChecks {
            is_lower_bound: |_, _, _| true,
            trees: |_, grown, pages| pages.elements(grown.first),
        };
        check::check(&self.keyspace, checks).unwrap_or_else(|stop| panic!("{stop:?}"));
    }

    /// Works all of it off.
    fn finish(&self) {
        while collect::collect_garbage(&self.keyspace).0 != Collected::Nothing {}
        assert!(collect::is_tidy(&self.keyspace));
        self.check();
        assert_eq!(self.keyspace.pool.stats().allocated_pages, u64::from(CATALOG_PAGE_COUNT));
    }
}

#[test]
fn garbage_of_any_length_survives_a_restart() {
    let mut run = Run::create();
    for number in 0..3_000 {
        run.discard(&run.blob(if number % 3 == 0 { 300 } else { 12_000 }));
    }
    run.flush_keys(TREE_KEYS);
    run.check();
    run.cut();
    let again = run.after_a_crash();
    again.check();
    again.cut();
    again.after_a_crash().finish();
    again.finish();
    run.finish();
}

#[test]
fn a_crash_after_any_step_leaks_nothing() {
    let mut run = Run::create();
    let count = PAGE_ENTRIES + 9;
    for _ in 0..count {
        run.discard(&run.blob(400));
    }
    run.flush_keys(TREE_KEYS);
    let mut step_count = 0;
    loop {
        run.cut();
        let crashed = run.after_a_crash();
        crashed.check();
        if step_count % 16 == 0 {
            crashed.finish();
        }
        if collect::collect_garbage(&run.keyspace).0 == Collected::Nothing {
            break;
        }
        run.check();
        step_count += 1;
    }
    assert!(step_count > count + 3, "{step_count} steps");
    run.finish();
}

/// Every order of what can happen between two looks at the barrier, where the list comes to a second page.
#[test]
fn a_cut_between_any_pushes_and_steps_leaks_nothing() {
    const EVENT_COUNT: u32 = 4;
    for order in 0..4u32.pow(EVENT_COUNT) {
        let mut run = Run::create();
        (0..PAGE_ENTRIES - 1).for_each(|_| run.discard(&run.blob(300)));
        for event in (0..EVENT_COUNT).map(|number| order / 4u32.pow(number) % 4) {
            match event {
                0 => run.discard(&run.blob(11_000)),
                1 => run.flush_keys(40),
                2 => _ = collect::collect_garbage(&run.keyspace),
                _ => {
                    run.cut();
                    run.after_a_crash().finish();
                }
            }
        }
        run.check();
    }
}
