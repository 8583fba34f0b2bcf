//! Races between the parts of a snapshot, each arranged on purpose.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::pagefile::{PageFile, Spilled};
use stillframe_pagepool::snapshot::Spill;
use stillframe_pagepool::{
    CheckpointError, Epoch, Layout, PageBytes, PageId, Pool, PoolOptions, SnapshotKind,
};

use crate::support::*;

/// A view that ends while a stream runs takes no part in the stream: whatever it held back would be missing.
#[test]
fn a_stream_is_complete_when_a_view_ends_beside_it() {
    let pool = Pool::in_memory(&options(SnapshotKind::Epoch, 16 << 20)).unwrap();
    fill_pool(&pool, 300);
    let object = new_object(&pool, 16, 2);
    let view = pool.view_after(|| ()).unwrap();
    let (saver_gate, viewer_gate) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let image = Arc::new(Image::default());
    let hook = {
        let (saver_gate, viewer_gate) = (saver_gate.clone(), viewer_gate.clone());
        move |_: &[PageId]| match thread::current().name() {
            Some("viewer") => viewer_gate.pass(),
            _ => saver_gate.pass(),
        }
    };
    let sink = Arc::new(Hooked { inner: image.clone(), hook });
    let saver = {
        let pool = pool.clone();
        thread::spawn(move || stream(&pool, Epoch(0), sink).unwrap())
    };
    saver_gate.wait_for_visitor();
    free_object(&pool, object, 16);
    let viewer = thread::Builder::new().name("viewer".into()).spawn(move || drop(view)).unwrap();
    while !viewer.is_finished() && !viewer_gate.has_visitor() {
        thread::yield_now();
    }
    saver_gate.open();
    saver.join().unwrap();
    let emitted = image.emitted();
    let missing: Vec<_> = (0..16).map(|i| PageId(object.0 + i)).filter(|p| !emitted.contains(p)).collect();
    viewer_gate.open();
    viewer.join().unwrap();
    assert!(missing.is_empty(), "freed after the cut and not in the picture: {missing:?}");
    assert_eq!(pool.stats().snapshot_held_bytes, 0);
}

/// Spills to a page file; releases and reads can be held up.
struct GatedSpill {
    file: Arc<PageFile>,
    gate: Gate,
    release_armed: AtomicBool,
    read_armed: AtomicBool,
    spilled_count: AtomicU64,
}

impl GatedSpill {
    fn new(file: Arc<PageFile>) -> GatedSpill {
        GatedSpill {
            file,
            gate: Gate::default(),
            release_armed: AtomicBool::new(false),
            read_armed: AtomicBool::new(false),
            spilled_count: AtomicU64::new(0),
        }
    }
}

impl Spill for GatedSpill {
    fn spill(&self, bytes: &PageBytes) -> Result<Spilled, CheckpointError> {
        self.spilled_count.fetch_add(1, Ordering::Relaxed);
        Spill::spill(&*self.file, bytes)
    }

    fn read_spill(&self, spilled: &Spilled, into: &mut PageBytes) -> Result<(), CheckpointError> {
        if self.read_armed.load(Ordering::Relaxed) {
            self.gate.pass();
        }
        Spill::read_spill(&*self.file, spilled, into)
    }

    fn release_spill(&self, spilled: Spilled) {
        if self.release_armed.load(Ordering::Relaxed) {
            self.gate.pass();
        }
        Spill::release_spill(&*self.file, spilled);
    }
}

/// The end of one view keeps the before-images that a view begun meanwhile needs.
#[test]
fn a_view_keeps_its_images_when_another_ends() {
    let (file, _) = PageFile::create_or_open(Arc::new(SimDevice::new(1))).unwrap();
    let spill = Arc::new(GatedSpill::new(file));
    let pool = Arc::new(Pool::new(&options(SnapshotKind::Epoch, 0), spill.clone()).unwrap());
    let pages: Vec<PageId> = (0..200).map(|_| new_object(&pool, 1, 1)).collect();
    let first = pool.view_after(|| ()).unwrap();
    pages.iter().for_each(|&page| fill_page(&pool, page, 2));
    spill.release_armed.store(true, Ordering::Relaxed);
    let ender = thread::spawn(move || drop(first));
    spill.gate.wait_for_visitor();
    let second = pool.view_after(|| ()).unwrap();
    // Those whose images the first view's end is at just now have to wait for it.
    let pages: Vec<PageId> = pages[64..].iter().copied().filter(|page| page.0 % 64 > 48).collect();
    let (writer_pool, written) = (pool.clone(), pages.clone());
    let writer = thread::spawn(move || written.iter().for_each(|&page| fill_page(&writer_pool, page, 3)));
    writer.join().unwrap();
    spill.gate.open();
    ender.join().unwrap();
    for &page in &pages {
        let mut bytes = filled(0);
        second.read_page(page, &mut bytes).unwrap();
        assert!(bytes == filled(2), "{page:?} as of the second cut, found {}", bytes[0]);
    }
    drop(second);
    assert_eq!(pool.stats().snapshot_held_bytes, 0);
}

/// A freed object is not handed out again before all its pages are marked as freed.
#[test]
fn a_freed_object_is_not_reused_before_it_is_marked() {
    let layout = Layout { small_end: 1 << 18, region_len: 1 << 18, max_order: 18 };
    let pool = Pool::in_memory(&PoolOptions { layout, ..options(SnapshotKind::Epoch, 0) }).unwrap();
    let page_count = layout.region_len;
    let object = pool.allocate_object(page_count, page_count).unwrap().id();
    let durable = stream(&pool, Epoch(0), Arc::new(Discard)).unwrap();
    let first = new_object(&pool, 1, 1);
    fill_page(&pool, object, 1);
    let gate = Arc::new(Gate::default());
    let saver_gate = gate.clone();
    let hook = move |pages: &[PageId]| {
        if pages.contains(&first) {
            saver_gate.pass();
        }
    };
    let (saver_pool, sink) = (pool.clone(), Arc::new(Hooked { inner: Arc::new(Discard), hook }));
    let saver = thread::spawn(move || stream(&saver_pool, durable, sink).unwrap());
    gate.wait_for_visitor();
    let reuser_pool = pool.clone();
    let reuser = thread::spawn(move || loop {
        // There is room for one such object: the one that is being freed.
        match reuser_pool.allocate_object(page_count, page_count) {
            Ok(object) => break object.id(),
            Err(_) => thread::yield_now(),
        }
    });
    let guard = pool.exclusive(object).unwrap();
    gate.open();
    pool.free(guard, page_count);
    assert_eq!(reuser.join().unwrap(), object);
    saver.join().unwrap();
    let guard = pool.shared(object).unwrap();
    let absent = (0..page_count).filter(|&i| guard.object_page(i).is_err()).count();
    assert_eq!(absent, 0, "pages of an object in use are marked as freed");
}

/// A stream does not end before a page that a writer hands over itself has been taken.
#[test]
fn a_stream_waits_for_writers_that_help() {
    let pool = Pool::in_memory(&options(SnapshotKind::Epoch, 0)).unwrap();
    let pages = fill_pool(&pool, 400);
    let (saver_gate, writer_gate) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let image = Arc::new(Image::default());
    let hook = {
        let (saver_gate, writer_gate) = (saver_gate.clone(), writer_gate.clone());
        move |_: &[PageId]| match thread::current().name() {
            Some("writer") => writer_gate.pass(),
            _ => saver_gate.pass(),
        }
    };
    let (saver_pool, sink) = (pool.clone(), Arc::new(Hooked { inner: image.clone(), hook }));
    let saver = thread::spawn(move || stream(&saver_pool, Epoch(0), sink).unwrap());
    saver_gate.wait_for_visitor();
    // Those from page 256 on are not swept yet. There are 64 frames; who finds none hands over the page itself.
    pages[256..320].iter().for_each(|&page| fill_page(&pool, page, 2));
    let (writer_pool, last) = (pool.clone(), pages[399]);
    let writer = thread::Builder::new().name("writer".into());
    let writer = writer.spawn(move || fill_page(&writer_pool, last, 2)).unwrap();
    writer_gate.wait_for_visitor();
    saver_gate.open();
    thread::sleep(std::time::Duration::from_millis(20));
    assert!(!saver.is_finished(), "the writer is still at it");
    writer_gate.open();
    saver.join().unwrap();
    assert!(image.emitted().contains(&last));
    writer.join().unwrap();
}

/// Streams may be asked for at any time: one at a time is taken, and each is whole.
#[test]
fn streams_follow_each_other_closely() {
    let pool = Pool::in_memory(&options(SnapshotKind::Epoch, 1 << 20)).unwrap();
    let pages = Arc::new(fill_pool(&pool, 500));
    let stop = Arc::new(AtomicBool::new(false));
    let savers: Vec<_> = (0..2)
        .map(|_| {
            let (pool, stop) = (pool.clone(), stop.clone());
            thread::spawn(move || {
                let mut streams = 0;
                while !stop.load(Ordering::Relaxed) {
                    let image = Arc::new(Image::default());
                    match stream(&pool, Epoch(0), image.clone()) {
                        Ok(_) => assert_eq!(image.emitted().len(), 500),
                        Err(CheckpointError::InProgress) => continue,
                        Err(other) => panic!("{other}"),
                    }
                    streams += 1;
                }
                streams
            })
        })
        .collect();
    let writer = {
        let (pool, stop) = (pool.clone(), stop.clone());
        thread::spawn(move || {
            let (member, mut rng) = (pool.join(), fastrand::Rng::with_seed(1));
            while !stop.load(Ordering::Relaxed) {
                fill_page(&pool, *rng.choice(&*pages).unwrap(), rng.u8(..));
                member.quiesce();
            }
        })
    };
    thread::sleep(std::time::Duration::from_millis(700));
    stop.store(true, Ordering::Relaxed);
    let streams: u32 = savers.into_iter().map(|saver| saver.join().unwrap()).sum();
    writer.join().unwrap();
    assert!(streams > 10);
}

/// The thread in which the cut was taken may end while the picture is taken.
#[test]
fn a_fork_outlives_the_thread_that_forked() {
    if !kinds().any(|kind| kind == SnapshotKind::Fork) {
        return;
    }
    let pool = Pool::in_memory(&options(SnapshotKind::Fork, 0)).unwrap();
    fill_pool(&pool, 3000);
    let gate = Arc::new(Gate::default());
    let member_pool = pool.clone();
    let running = Arc::new(Gate::default());
    let member_runs = running.clone();
    let forker = thread::spawn(move || {
        let member = member_pool.join();
        member_runs.pass();
        while member_pool.barrier().wait.summary().count == 0 {
            member.quiesce();
        }
    });
    running.wait_for_visitor();
    let saver_gate = gate.clone();
    let image = Arc::new(Image::default());
    let sink = Arc::new(Hooked { inner: image.clone(), hook: move |_: &[PageId]| saver_gate.pass() });
    let saver_pool = pool.clone();
    let saver = thread::spawn(move || stream(&saver_pool, Epoch(0), sink));
    running.open();
    forker.join().unwrap();
    gate.wait_for_visitor();
    gate.open();
    saver.join().unwrap().unwrap();
    assert_eq!(image.emitted().len(), 3000);
}

/// At the end of a stream only the saver waits for a writer that hands over its page itself: others go on writing.
#[test]
fn writers_do_not_wait_for_one_that_helps() {
    let pool = Pool::in_memory(&options(SnapshotKind::Epoch, 0)).unwrap();
    let pages = fill_pool(&pool, 400);
    let (saver_gate, writer_gate) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let image = Arc::new(Image::default());
    let hook = {
        let (saver_gate, writer_gate) = (saver_gate.clone(), writer_gate.clone());
        move |_: &[PageId]| match thread::current().name() {
            Some("writer") => writer_gate.pass(),
            _ => saver_gate.pass(),
        }
    };
    let (saver_pool, sink) = (pool.clone(), Arc::new(Hooked { inner: image.clone(), hook }));
    let saver = thread::spawn(move || stream(&saver_pool, Epoch(0), sink).unwrap());
    saver_gate.wait_for_visitor();
    pages[256..320].iter().for_each(|&page| fill_page(&pool, page, 2));
    let (writer_pool, last) = (pool.clone(), pages[399]);
    let writer = thread::Builder::new().name("writer".into());
    let writer = writer.spawn(move || fill_page(&writer_pool, last, 2)).unwrap();
    writer_gate.wait_for_visitor();
    saver_gate.open();
    thread::sleep(Duration::from_millis(50));
    assert!(!saver.is_finished(), "the saver has come to the end and waits for the writer");
    let (wrote, has_written) = mpsc::channel();
    let (other_pool, freed) = (pool.clone(), pages[1]);
    let swept = pages[0];
    let other = thread::spawn(move || {
        fill_page(&other_pool, swept, 2);
        free_object(&other_pool, freed, 1);
        wrote.send(()).unwrap();
    });
    let result = has_written.recv_timeout(Duration::from_secs(10));
    writer_gate.open();
    assert!(result.is_ok(), "a first write waits for another's");
    [other, writer].into_iter().for_each(|thread| thread.join().unwrap());
    saver.join().unwrap();
    assert_eq!(image.emitted().len(), 400);
}

/// While a view reads a before-image from the page file others keep theirs.
#[test]
fn writers_do_not_wait_for_a_view_that_reads() {
    let (file, _) = PageFile::create_or_open(Arc::new(SimDevice::new(1))).unwrap();
    let spill = Arc::new(GatedSpill::new(file));
    let pool = Arc::new(Pool::new(&options(SnapshotKind::Epoch, 0), spill.clone()).unwrap());
    let pages: Vec<PageId> = (0..200).map(|_| new_object(&pool, 1, 1)).collect();
    let view = pool.view_after(|| ()).unwrap();
    // There are 64 frames; the images of the others are spilled.
    pages[..100].iter().for_each(|&page| fill_page(&pool, page, 2));
    spill.read_armed.store(true, Ordering::Relaxed);
    let spilled = pages[99];
    let reader = thread::spawn(move || {
        let mut bytes = filled(0);
        view.read_page(spilled, &mut bytes).unwrap();
        bytes
    });
    spill.gate.wait_for_visitor();
    let (wrote, has_written) = mpsc::channel();
    let (writer_pool, rest) = (pool.clone(), pages[100..].to_vec());
    let writer = thread::spawn(move || {
        rest.iter().for_each(|&page| fill_page(&writer_pool, page, 2));
        wrote.send(()).unwrap();
    });
    let result = has_written.recv_timeout(Duration::from_secs(10));
    spill.gate.open();
    assert!(result.is_ok(), "a writer waits for a view's disk");
    writer.join().unwrap();
    assert!(reader.join().unwrap() == filled(1));
}

/// What a cut itself writes finds a frame, however much snapshots hold: nobody waits for the disk in the barrier.
#[test]
fn a_cut_does_not_wait_for_the_disk() {
    let (file, _) = PageFile::create_or_open(Arc::new(SimDevice::new(1))).unwrap();
    let spill = Arc::new(GatedSpill::new(file));
    let pool = Arc::new(Pool::new(&options(SnapshotKind::Epoch, 0), spill.clone()).unwrap());
    let pages: Vec<PageId> = (0..100).map(|_| new_object(&pool, 1, 1)).collect();
    let catalog = pages[0];
    let first = pool.view_after(|| ()).unwrap();
    pages[1..].iter().for_each(|&page| fill_page(&pool, page, 2));
    let spilled_count = spill.spilled_count.load(Ordering::Relaxed);
    assert!(spilled_count > 0, "the budget is used up");
    let mut views = vec![first];
    for round in 2..6 {
        let (at_cut, counted) = (pool.clone(), spill.clone());
        let view = pool.view_after(move || {
            fill_page(&at_cut, catalog, round);
            assert_eq!(
                counted.spilled_count.load(Ordering::Relaxed),
                spilled_count,
                "no spill in the barrier"
            );
        });
        views.push(view.unwrap());
    }
    for (fill, view) in (1..).zip(&views) {
        let mut bytes = filled(0);
        view.read_page(catalog, &mut bytes).unwrap();
        assert!(bytes == filled(fill), "view {fill} found {}", bytes[0]);
    }
    drop(views);
    assert_eq!(pool.stats().snapshot_held_bytes, 0);
}
