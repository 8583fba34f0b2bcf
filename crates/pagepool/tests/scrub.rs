//! Slots that rot while their pages are in memory: found by scrubbing, written anew by the next checkpoint. Replay a
//! failure with `STILLFRAME_SEED=<seed>`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::thread;

use stillframe_pagepool::device::{Device, Gate, HookedDevice, PageBuf, SimDevice};
use stillframe_pagepool::pagefile::{BadSlot, PageFile, USER_HEADER_BYTES};
use stillframe_pagepool::snapshot::Progress;
use stillframe_pagepool::{
    CheckpointStats, Layout, PageId, Pool, PoolOptions, Restart, ScrubReport, SnapshotKind, PAGE_SIZE,
};
use stillframe_testkit::{pool_backend, seed};

mod small_pool;

fn open(device: &Arc<HookedDevice>, snapshot_kind: SnapshotKind) -> Arc<Pool> {
    open_with(device, snapshot_kind, None)
}

fn open_with(
    device: &Arc<HookedDevice>,
    snapshot_kind: SnapshotKind,
    memory_pages: Option<u64>,
) -> Arc<Pool> {
    let as_device: Arc<dyn Device> = device.clone();
    let options = PoolOptions { memory_pages, ..small_pool::small_pool(snapshot_kind, 1 << 20) };
    let (pool, _) = Pool::open(as_device, &options).unwrap();
    pool.residency().wait_until_warm();
    pool
}

fn checkpoint(pool: &Arc<Pool>) -> CheckpointStats {
    pool.checkpoint(|| Ok([0; USER_HEADER_BYTES]), &Progress::default()).unwrap()
}

/// A new object whose pages have the contents `fill`, `fill + 1`, …
fn new_object(pool: &Pool, page_count: u32, fill: u8) -> PageId {
    let mut object = pool.allocate_object(page_count, page_count).unwrap();
    fill_object(&mut object, page_count, fill);
    object.id()
}

fn fill_object(object: &mut stillframe_pagepool::ExclusiveGuard<'_>, page_count: u32, fill: u8) {
    for index in 0..page_count {
        object.object_page_mut(index).unwrap().fill(fill.wrapping_add(index as u8).max(1));
    }
}

fn file(pool: &Pool) -> &PageFile {
    pool.file().unwrap()
}

/// Flips a bit of the page in the file.
fn rot(device: &HookedDevice, pool: &Pool, page: PageId) {
    let slot = file(pool).slot_of(page).unwrap();
    device.inner().corrupt(slot.offset() + 100, 1, |bytes| bytes[0] ^= 1);
}

/// One pass over the file.
fn scrub(pool: &Pool) -> ScrubReport {
    let (mut whole, mut from) = (ScrubReport::default(), Some(PageId(0)));
    while let Some(at) = from {
        let step = pool.scrub(at);
        from = step.next;
        whole.page_count += step.page_count;
        whole.to_heal.extend(step.to_heal);
        whole.lost.extend(step.lost);
    }
    whole
}

fn pids(bad: &[BadSlot]) -> Vec<PageId> {
    bad.iter().map(|bad| bad.pid).collect()
}

/// Contents of the pages of an object by their first bytes.
fn contents(pool: &Pool, head: PageId, page_count: u32) -> Result<Vec<u8>, Restart> {
    let object = pool.shared(head)?;
    (0..page_count).map(|index| object.object_page(index).map(|page| page[0])).collect()
}

fn counted(fill: u8, page_count: u32) -> Vec<u8> {
    (0..page_count).map(|index| fill.wrapping_add(index as u8).max(1)).collect()
}

/// 600 small pages and an object of 20: more than a step of scrubbing.
fn pool_with_object(device: &Arc<HookedDevice>, kind: SnapshotKind) -> (Arc<Pool>, PageId, PageId) {
    let pool = open(device, kind);
    let small: Vec<PageId> = (0..600).map(|_| new_object(&pool, 1, 200)).collect();
    let head = new_object(&pool, 20, 1);
    checkpoint(&pool);
    (pool, small[300], head)
}

fn device() -> Arc<HookedDevice> {
    HookedDevice::new(SimDevice::new(1))
}

#[test]
fn a_checkpoint_writes_anew_what_has_rotted() {
    for kind in small_pool::kinds() {
        let device = device();
        let (pool, small, head) = pool_with_object(&device, kind);
        assert_eq!(scrub(&pool).page_count, 620);
        let inside = PageId(head.0 + 7);
        for page in [small, inside] {
            rot(&device, &pool, page);
        }
        let found = scrub(&pool);
        let mut expected = vec![small, inside];
        expected.sort_unstable();
        let mut found_pids = pids(&found.to_heal);
        found_pids.sort_unstable();
        assert_eq!((found_pids, found.lost.len()), (expected, 0));
        assert!(scrub(&pool).to_heal.is_empty(), "what is known is not told again");
        let stats = checkpoint(&pool);
        assert_eq!((stats.healed_page_count, stats.commit.page_count), (2, 2));
        assert!(found.to_heal.iter().all(|bad| file(&pool).slot_of(bad.pid) != Some(bad.slot)));
        assert_eq!(checkpoint(&pool).healed_page_count, 0);
        let stats = pool.scrub_stats();
        assert_eq!((stats.page_count, stats.bad_page_count, stats.healed_page_count), (3 * 620, 2, 2));
        drop(pool);
        device.inner().crash();
        let pool = open(&device, kind);
        assert_eq!(pool.residency().damaged_pages().page_count, 0);
        assert_eq!(contents(&pool, small, 1).unwrap(), [200]);
        assert_eq!(contents(&pool, head, 20).unwrap(), counted(1, 20));
    }
}

/// What is in memory is the only good copy until a checkpoint has written it elsewhere: it is not evicted before that.
#[test]
fn what_has_rotted_stays_in_memory_until_it_is_healed() {
    let device = device();
    let memory_pages = Some(600);
    let pool = open_with(&device, SnapshotKind::Epoch, memory_pages);
    let rotten = new_object(&pool, 1, 100);
    checkpoint(&pool);
    rot(&device, &pool, rotten);
    assert_eq!(pids(&scrub(&pool).to_heal), [rotten]);
    let fill_memory = || {
        for _ in 0..1000 {
            pool.wait_for_room();
            new_object(&pool, 1, 200);
        }
    };
    fill_memory();
    assert!(pool.room().resident_pages() < 600 && pool.allocated_pages() > 1000, "pages have been evicted");
    assert_eq!(contents(&pool, rotten, 1).unwrap(), [100], "the page is in memory");
    assert_eq!(checkpoint(&pool).healed_page_count, 1);
    // Healed, it goes like any other, and comes back.
    fill_memory();
    assert!(matches!(contents(&pool, rotten, 1), Err(Restart::Fault(_))), "it has been evicted");
    pool.residency().load(&[rotten]);
    assert_eq!(contents(&pool, rotten, 1).unwrap(), [100]);
}

/// What is in memory nowhere is damage, as if a command had asked for it; it is told once.
#[test]
fn what_is_not_in_memory_is_lost() {
    let device = device();
    let pool = open(&device, SnapshotKind::Epoch);
    let pages: Vec<PageId> = (0..3000).map(|_| new_object(&pool, 1, 200)).collect();
    checkpoint(&pool);
    let rotten = pages[2900];
    rot(&device, &pool, rotten);
    drop(pool);
    let gate = Arc::new(Gate::default());
    let at_warm_up = gate.clone();
    device.before_read(Arc::new(move |read| {
        if read.thread == "sf-warm-up" {
            at_warm_up.pass();
        }
    }));
    let as_device: Arc<dyn Device> = device.clone();
    let options = PoolOptions { layout: Layout::TINY, backend: pool_backend(), ..PoolOptions::default() };
    let (pool, _) = Pool::open(as_device, &options).unwrap();
    // The warm-up stands before its first batch, which does not reach so far.
    gate.wait_for_visitor();
    let found = pool.scrub(pages[2800]);
    assert_eq!((pids(&found.lost), found.to_heal.len()), (vec![rotten], 0));
    assert!(found.lost[0].error.to_string().contains(&format!("page {}", rotten.0)));
    assert!(matches!(pool.shared(rotten), Err(Restart::Damaged(_))));
    assert!(!pool.is_resident(pages[2899]), "what is whole is not brought in by scrubbing");
    gate.open();
    pool.residency().wait_until_warm();
    assert!(scrub(&pool).lost.is_empty());
    assert_eq!(pool.residency().damaged_pages().page_count, 1);
    assert_eq!(checkpoint(&pool).healed_page_count, 0);
    assert_eq!(pool.scrub_stats().bad_page_count, 1);
}

/// What happens to the page while a checkpoint is held up.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Meanwhile {
    Nothing,
    Write,
    Free,
    /// Freed, and its number used again.
    Reuse,
}

/// A page is found bad, and changed, before or while a checkpoint stands before each of its steps in turn.
#[test]
fn scrubbing_beside_a_checkpoint() {
    use Meanwhile::{Free, Nothing, Reuse, Write};
    let mut step_count = 0;
    for kind in small_pool::kinds() {
        for (meanwhile, found_before) in
            [Nothing, Write, Free, Reuse].map(|what| [(what, false), (what, true)]).concat()
        {
            for step in 0.. {
                if !beside_a_checkpoint(kind, meanwhile, found_before, step) {
                    break;
                }
                step_count += 1;
            }
        }
    }
    assert!(step_count >= 4 * 2 * 2 * 3, "a checkpoint cuts and syncs twice: {step_count}");
}

/// Step 0 is right after the cut, the others are syncs and changes of the length. False if there are not so many.
fn beside_a_checkpoint(kind: SnapshotKind, meanwhile: Meanwhile, found_before: bool, step: u32) -> bool {
    let what = format!("{kind:?} {meanwhile:?} {found_before} {step}");
    let device = device();
    let (pool, small, head) = pool_with_object(&device, kind);
    [small, PageId(head.0 + 7)].iter().for_each(|page| rot(&device, &pool, *page));
    if found_before {
        assert_eq!(scrub(&pool).to_heal.len(), 2);
    }
    let (gate, steps) = (Arc::new(Gate::default()), AtomicU32::new(0));
    let (at_step, saver) = (gate.clone(), pool.clone());
    let hold = Arc::new(move || {
        if steps.fetch_add(1, Ordering::AcqRel) == step {
            at_step.pass();
        }
    });
    let after_cut = hold.clone();
    device.before_op(Arc::new(move |_| hold()));
    let header = || Ok([0; USER_HEADER_BYTES].into());
    let saving = thread::spawn(move || {
        saver.checkpoint_telling(header, || after_cut(), |_| Ok(()), &Progress::default()).unwrap();
    });
    while !gate.has_visitor() && !saving.is_finished() {
        thread::yield_now();
    }
    if !gate.has_visitor() {
        return false;
    }
    let found = scrub(&pool);
    assert!(found.lost.is_empty() && (found.to_heal.len() == 2) != found_before, "{what}: {found:?}");
    change(&pool, small, head, meanwhile);
    assert!(scrub(&pool).lost.is_empty(), "{what}");
    gate.open();
    saving.join().unwrap();
    checkpoint(&pool);
    let found = scrub(&pool);
    assert!(found.to_heal.is_empty() && found.lost.is_empty(), "{what}: {found:?}");
    let stats = pool.scrub_stats();
    assert_eq!((stats.bad_page_count, stats.healed_page_count), (2, 2), "{what}");
    let expected = if meanwhile == Meanwhile::Nothing { (200, 1) } else { (50, 60) };
    drop(pool);
    device.inner().crash();
    let pool = open(&device, kind);
    assert_eq!(pool.residency().damaged_pages().page_count, 0, "{what}");
    if meanwhile != Meanwhile::Free {
        assert_eq!(contents(&pool, small, 1).unwrap(), [expected.0], "{what}");
        assert_eq!(contents(&pool, head, 20).unwrap(), counted(expected.1, 20), "{what}");
    }
    true
}

fn change(pool: &Pool, small: PageId, head: PageId, meanwhile: Meanwhile) {
    match meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::Write => {
            fill_object(&mut pool.exclusive(small).unwrap(), 1, 50);
            fill_object(&mut pool.exclusive(head).unwrap(), 20, 60);
        }
        Meanwhile::Free | Meanwhile::Reuse => {
            pool.free(pool.exclusive(small).unwrap(), 1);
            pool.free(pool.exclusive(head).unwrap(), 20);
        }
    }
    if meanwhile == Meanwhile::Reuse {
        reuse(pool, small, 1, 50);
        reuse(pool, head, 20, 60);
    }
}

/// Allocates until the same number comes again, which a snapshot may not let go for long.
fn reuse(pool: &Pool, page: PageId, page_count: u32, fill: u8) {
    let mut others = Vec::new();
    for _ in 0..50 {
        let object = new_object(pool, page_count, fill);
        if object == page {
            break;
        }
        others.push(object);
    }
    others.into_iter().for_each(|other| pool.free(pool.exclusive(other).unwrap(), page_count));
}

/// A slot that is used for something else while it is being read is not believed to be bad.
#[test]
fn a_slot_that_is_reused_while_it_is_read() {
    let device = device();
    let pool = open(&device, SnapshotKind::Epoch);
    let page = new_object(&pool, 1, 1);
    checkpoint(&pool);
    let slot = file(&pool).slot_of(page).unwrap();
    let gate = Arc::new(Gate::default());
    let at_read = gate.clone();
    device.before_read(Arc::new(move |read| {
        if read.thread == "scrubber" {
            at_read.pass();
        }
    }));
    let scrubbed = pool.clone();
    let scrubbing = thread::Builder::new().name("scrubber".into()).spawn(move || scrub(&scrubbed)).unwrap();
    gate.wait_for_visitor();
    for fill in 2..6 {
        fill_object(&mut pool.exclusive(page).unwrap(), 1, fill);
        checkpoint(&pool);
    }
    let byte = device.inner().image()[slot.offset() as usize];
    assert_ne!(byte, 1, "the slot has been used for something else");
    gate.open();
    let found = scrubbing.join().unwrap();
    assert!(found.to_heal.is_empty() && found.lost.is_empty(), "{found:?}");
    assert_eq!(checkpoint(&pool).healed_page_count, 0);
}

/// A page whose memory does not fit its checksum either is not written anew: that would make the damage look whole.
#[test]
fn only_what_fits_the_checksum_is_written_anew() {
    let device = device();
    let (pool, small, _) = pool_with_object(&device, SnapshotKind::Epoch);
    let before = file(&pool).slot_of(small);
    let writer = pool.file().unwrap().begin_checkpoint().unwrap();
    let wrong = PageBuf([199; PAGE_SIZE]);
    writer.rewrite_pages(&[(small, &wrong.0)]).unwrap();
    assert!(!writer.has_anew(small));
    writer.commit([0; USER_HEADER_BYTES]).unwrap();
    assert_eq!(file(&pool).slot_of(small), before);
    // Nor what the checkpoint frees: that would bring the page back.
    let writer = pool.file().unwrap().begin_checkpoint().unwrap();
    writer.free_page(small).unwrap();
    writer.rewrite_pages(&[(small, &PageBuf([200; PAGE_SIZE]).0)]).unwrap();
    writer.commit([0; USER_HEADER_BYTES]).unwrap();
    assert!(!file(&pool).is_mapped(small));
}

/// What a second reading does not confirm went wrong on the way.
#[test]
fn a_reading_that_goes_wrong_once_is_not_believed() {
    let device = device();
    let pool = open(&device, SnapshotKind::Epoch);
    let page = new_object(&pool, 1, 1);
    checkpoint(&pool);
    let (at_read, slot) = (device.clone(), file(&pool).slot_of(page).unwrap());
    let readings = Arc::new(AtomicU32::new(0));
    let counted = readings.clone();
    device.before_read(Arc::new(move |read| {
        // Wrong before the first, right again before the second.
        if read.offset == slot.offset() && counted.fetch_add(1, Ordering::AcqRel) < 2 {
            at_read.inner().corrupt(slot.offset(), 1, |bytes| bytes[0] ^= 1);
        }
    }));
    let found = scrub(&pool);
    device.before_read(Arc::new(|_| ()));
    assert_eq!(readings.load(Ordering::Acquire), 2);
    assert!(found.to_heal.is_empty() && found.lost.is_empty(), "{found:?}");
}

/// Rot, writes, frees and checkpoints in any order, while another thread scrubs all the time.
#[test]
fn nothing_is_lost_that_was_in_memory() {
    for kind in small_pool::kinds() {
        let seed = seed();
        let mut rng = fastrand::Rng::with_seed(seed);
        let device = HookedDevice::new(SimDevice::new(seed));
        let pool = open(&device, kind);
        let (stop, at_work) = (AtomicBool::new(false), pool.clone());
        let mut objects: BTreeMap<PageId, (u32, u8)> = BTreeMap::new();
        thread::scope(|scope| {
            let scrubber = scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    assert!(scrub(&at_work).lost.is_empty(), "everything is in memory");
                }
            });
            for _ in 0..40 {
                (0..rng.u32(..60)).for_each(|_| change_any(&pool, &mut objects, &mut rng));
                for _ in 0..rng.u32(..4) {
                    let pages = file(&pool).mapped_from(PageId(0), usize::MAX);
                    rng.choice(pages).into_iter().for_each(|page| rot(&device, &pool, page));
                }
                checkpoint(&pool);
            }
            stop.store(true, Ordering::Release);
            scrubber.join().unwrap();
        });
        scrub(&pool);
        checkpoint(&pool);
        let last = scrub(&pool);
        assert!(last.to_heal.is_empty() && last.lost.is_empty(), "{last:?}");
        drop((pool, at_work));
        device.inner().crash();
        let pool = open(&device, kind);
        assert_eq!(pool.residency().damaged_pages().page_count, 0);
        for (&head, &(page_count, fill)) in &objects {
            assert_eq!(contents(&pool, head, page_count).unwrap(), counted(fill, page_count));
        }
    }
}

fn change_any(pool: &Pool, objects: &mut BTreeMap<PageId, (u32, u8)>, rng: &mut fastrand::Rng) {
    let fill = rng.u8(1..);
    let chosen = rng.choice(objects.iter()).map(|(&head, &(page_count, _))| (head, page_count));
    match (rng.u32(..8), chosen) {
        (0..=2, _) | (_, None) => {
            let page_count = *rng.choice(&[1, 1, 16, 30]).unwrap();
            objects.insert(new_object(pool, page_count, fill), (page_count, fill));
        }
        (3..=4, Some((head, page_count))) => {
            objects.remove(&head);
            pool.free(pool.exclusive(head).unwrap(), page_count);
        }
        (_, Some((head, page_count))) => {
            fill_object(&mut pool.exclusive(head).unwrap(), page_count, fill);
            objects.insert(head, (page_count, fill));
        }
    }
}
