//! What holds for page trees of every order: random sequences against a model, with views and restarts between them, and
//! with threads.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::pagefile::USER_HEADER_BYTES;
use stillframe_pagepool::snapshot::Progress;
use stillframe_pagepool::{ExclusiveGuard, Member, PageId, Pool, PoolOptions, View};

use super::hash::{as_leaf, Hashed, Record, RecordKey, RecordValue, Side};
use super::merge::Joining;
use super::order::{LeafView, Order};
use super::ordered::{record_bytes, Next, Ordered, OrderedLeaf, Removal, Seek, Stored, Way, KEY_MAX_BYTES};
use super::room::Divide;
use super::trees::{Scratch, Tree, Trees};
use super::words::Words;
use crate::page::{Page, PAGE_SIZE};
use crate::pages::Pages;
use crate::stop::{retry, Stop};
use crate::{DbId, Key, Options};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// An order under test.
trait Subject: Divide + Send + Sync + 'static {
    /// Levels of nodes that a sequence is to reach.
    const LEVEL_MIN: u8;

    fn put(trees: &Trees<Self>, scratch: &mut Scratch, tree: Tree, key: &[u8], value: &[u8]) -> bool;
    fn get(trees: &Trees<Self>, tree: Tree, key: &[u8]) -> Option<Vec<u8>>;
    fn remove(trees: &Trees<Self>, scratch: &mut Scratch, tree: Tree, key: &[u8]) -> bool;
    /// Adds the records of a leaf to `out`.
    fn take(leaf: Self::Leaf<'_>, out: &mut Vec<(Vec<u8>, Vec<u8>)>);
    /// Whatever else is to hold, while nobody writes.
    fn check(_: &Trees<Self>, _: Tree, _: &Model, _: &mut fastrand::Rng) {}
    /// What a reader can see at any time.
    fn look(_: &Trees<Self>, _: Tree) {}
}

fn done<R>(step: impl FnMut() -> Result<R, Stop>) -> R {
    retry(step).expect("no fault, no damage, room")
}

impl Subject for Hashed {
    const LEVEL_MIN: u8 = 2;

    fn put(trees: &Trees<Self>, scratch: &mut Scratch, tree: Tree, key: &[u8], value: &[u8]) -> bool {
        let hash = trees.order.hash(key);
        let (key, value) = (RecordKey::Inline(key), RecordValue::Bytes(value));
        let record = Record { key, value, raw: true, deadline: None };
        let bytes = record.encoded_bytes();
        loop {
            let stored = done(|| {
                let mut leaf = trees.chain_exclusive(tree, hash, None)?;
                if let Some(at) = find(&leaf, hash, &record)? {
                    let free_bytes = leaf.leaf(at.page)?.free_bytes();
                    let fits = leaf.record(at)?.encoded_bytes() + free_bytes >= bytes;
                    return Ok(if fits { Some(leaf.replace(at, &record).map(|()| true)?) } else { None });
                }
                match trees.page_for(&leaf, hash, bytes)? {
                    Some(page) => leaf.insert(page, hash, &record).map(|()| Some(false)),
                    None => Ok(None),
                }
            });
            match stored {
                Some(was) => return was,
                None => done(|| trees.make_room(scratch, tree, hash, bytes)),
            }
        }
    }

    fn get(trees: &Trees<Self>, tree: Tree, key: &[u8]) -> Option<Vec<u8>> {
        let hash = trees.order.hash(key);
        done(|| {
            let guard = trees.leaf_shared(tree, hash, None)?;
            let leaf = as_leaf(guard.id(), guard.page())?;
            Ok(leaf.find(hash, key).and_then(|slot| leaf.record(slot)).map(value_of))
        })
    }

    fn remove(trees: &Trees<Self>, scratch: &mut Scratch, tree: Tree, key: &[u8]) -> bool {
        let hash = trees.order.hash(key);
        let record =
            Record { key: RecordKey::Inline(key), value: RecordValue::Int(0), raw: false, deadline: None };
        let removed = done(|| {
            let mut leaf = trees.chain_exclusive(tree, hash, None)?;
            let Some(at) = find(&leaf, hash, &record)? else { return Ok(None) };
            leaf.remove(at)?;
            Ok(Some(Joining::Sparse.is_due::<Hashed>(leaf.leaf(0)?)))
        });
        if removed == Some(true) {
            let _ = trees.join_leaves(scratch, tree, hash, Joining::Sparse);
        }
        removed.is_some()
    }

    /// The stages of a batch lead to the record of nearly every key, though nothing else would be wrong without them.
    fn check(trees: &Trees<Self>, tree: Tree, model: &Model, random: &mut fastrand::Rng) {
        let mut missed_count = 0;
        for bytes in random.choose_multiple(model.keys(), 200) {
            let mut key = Key::new(bytes, trees.order.hash(bytes));
            trees.prefetch_node(tree, &mut key);
            trees.prefetch_child(&key);
            trees.prefetch_leaf(tree, &mut key);
            trees.prefetch_slots(&mut key);
            trees.prefetch_record(&mut key);
            let guard = done(|| trees.leaf_shared(tree, key.hash, None));
            let found = as_leaf(guard.id(), guard.page()).unwrap().find(key.hash, bytes);
            let is_hit = key.leaf_hint == Some(guard.id()) && found == Some(usize::from(key.slot_hint));
            missed_count += u32::from(!is_hit);
        }
        assert!(missed_count <= 4, "{missed_count} of 200 hints are wrong");
    }

    fn take(leaf: Self::Leaf<'_>, out: &mut Vec<(Vec<u8>, Vec<u8>)>) {
        for record in (0..leaf.count()).map(|slot| leaf.record(slot).unwrap()) {
            let RecordKey::Inline(key) = record.key else { panic!("a long key") };
            out.push((key.to_vec(), value_of(record)));
        }
    }
}

fn value_of(record: Record<'_>) -> Vec<u8> {
    let RecordValue::Bytes(value) = record.value else { panic!("{record:?}") };
    value.to_vec()
}

fn find(
    leaf: &super::hash::LeafGuard<'_>,
    hash: u64,
    record: &Record<'_>,
) -> Result<Option<super::hash::At>, Stop> {
    let RecordKey::Inline(key) = record.key else { return Ok(None) };
    let slot = leaf.leaf(0)?.find(hash, key);
    Ok(slot.map(|slot| super::hash::At { page: 0, slot }))
}

impl Subject for Ordered {
    const LEVEL_MIN: u8 = 2;

    fn put(trees: &Trees<Self>, scratch: &mut Scratch, tree: Tree, key: &[u8], value: &[u8]) -> bool {
        let value = Stored::inline(value);
        loop {
            match done(|| trees.put(tree, key, value, &mut None, |_| ())) {
                Some(was) => return was,
                None => done(|| trees.make_room(scratch, tree, Seek::Key(key), record_bytes(key, value))),
            }
        }
    }

    fn get(trees: &Trees<Self>, tree: Tree, key: &[u8]) -> Option<Vec<u8>> {
        done(|| trees.look(tree, key, to_vec))
    }

    fn remove(trees: &Trees<Self>, scratch: &mut Scratch, tree: Tree, key: &[u8]) -> bool {
        match done(|| trees.remove(tree, key, &mut None, |_| ())) {
            Removal::WasAbsent => false,
            Removal::Done { is_sparse } => {
                if is_sparse {
                    let _ = trees.join_leaves(scratch, tree, Seek::Key(key), Joining::Sparse);
                }
                true
            }
        }
    }

    fn take(leaf: OrderedLeaf<'_>, out: &mut Vec<(Vec<u8>, Vec<u8>)>) {
        for slot in 0..leaf.count() {
            let key = leaf.key(slot);
            assert!(leaf.lo() <= &key[..] && leaf.hi().is_none_or(|hi| &key[..] < hi), "{key:?}");
            out.push((key, leaf.record(slot).unwrap().1.bytes.to_vec()));
        }
    }

    fn check(trees: &Trees<Self>, tree: Tree, model: &Model, random: &mut fastrand::Rng) {
        let all: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        for _ in 0..4 {
            let bound = random_key(random);
            let at = all.partition_point(|(key, _)| *key < bound);
            assert_eq!(walk_up(trees, tree, &bound), all[at..], "from {bound:?}");
            let mut down = walk_down(trees, tree, Some(&bound));
            down.reverse();
            assert_eq!(down, all[..at], "below {bound:?}");
            if trees.order.counts {
                let is_there = all.get(at).is_some_and(|(key, _)| *key == bound);
                assert_eq!(done(|| trees.rank(tree, &bound)), (at as u64, is_there));
                assert_eq!(nth(trees, tree, at as u64), all.get(at).cloned());
                assert!(is_around(trees, tree, at, &all), "around {at}");
            }
        }
        let mut down = walk_down(trees, tree, None);
        down.reverse();
        assert!(down == all && walk_up(trees, tree, b"") == all);
        if trees.order.counts {
            assert_eq!(done(|| trees.len(tree)), all.len() as u64);
            assert_eq!(nth(trees, tree, all.len() as u64), None);
            assert!(is_around(trees, tree, all.len() + 7, &all), "beyond the end");
        }
        let keys = some_keys(model, random);
        for (key, way) in keys.iter().zip(ways(trees, tree, &keys, || ())) {
            let found = way.and_then(|way| trees.look_at(tree, key, &way, to_vec));
            assert_eq!(found.expect("nobody is in the way"), model.get(key).cloned(), "{key:?}");
        }
    }

    fn look(trees: &Trees<Self>, tree: Tree) {
        let is_sorted = |list: &[(Vec<u8>, Vec<u8>)]| list.windows(2).all(|pair| pair[0].0 < pair[1].0);
        assert!(is_sorted(&walk_up(trees, tree, b"")));
        let mut down = walk_down(trees, tree, None);
        down.reverse();
        assert!(is_sorted(&down));
        for records in down.chunks(32) {
            let keys: Vec<_> = records.iter().map(|(key, _)| key.clone()).collect();
            for (key, way) in keys.iter().zip(ways(trees, tree, &keys, || ())) {
                match way.and_then(|way| trees.look_at(tree, key, &way, to_vec)) {
                    // Each writer fills its values with its number, which its keys end with.
                    Ok(value) => assert!(value.iter().flatten().all(|byte| key.last() == Some(byte))),
                    Err(stop) => assert!(matches!(stop, Stop::Contended), "{stop:?}"),
                }
            }
        }
        if trees.order.counts {
            let rank = done(|| trees.len(tree)) / 2;
            if let Some((key, _)) = nth(trees, tree, rank) {
                done(|| trees.rank(tree, &key));
            }
        }
    }
}

fn to_vec(found: Option<Stored<'_>>) -> Result<Option<Vec<u8>>, Stop> {
    Ok(found.map(|value| value.bytes.to_vec()))
}

/// Some that are there, and some that may not be.
fn some_keys(model: &Model, random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = random.choose_multiple(model.keys(), 100).into_iter().cloned().collect();
    keys.extend((0..100).map(|_| random_key(random)));
    keys
}

type Stage<'f, 'p> = dyn Fn(&[u8], &mut Way<'p>) -> Result<(), Stop> + 'f;

/// The ways to keys, stage by stage; `between` is called after each.
fn ways<'p>(
    trees: &'p Trees<Ordered>,
    tree: Tree,
    keys: &[Vec<u8>],
    mut between: impl FnMut(),
) -> Vec<Result<Way<'p>, Stop>> {
    let mut ways: Vec<_> = keys.iter().map(|key| trees.begin(tree, key)).collect();
    let mut stage = |f: &Stage<'_, 'p>| {
        between();
        for (key, slot) in keys.iter().zip(&mut ways) {
            if let Err(stop) = slot.as_mut().map_or(Ok(()), |way| f(key, way)) {
                *slot = Err(stop);
            }
        }
    };
    stage(&|key, way| trees.at_separators(tree, key, way));
    stage(&|key, way| trees.to_leaf(key, way));
    stage(&|key, way| trees.to_record(key, way));
    between();
    ways
}

fn walk_up(trees: &Trees<Ordered>, tree: Tree, from: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut out, mut next) = (Vec::new(), Next::From(from.to_vec()));
    while let Next::From(bound) = next {
        next = done(|| {
            trees.walk_up(tree, &bound, |key, value| {
                out.push((key.to_vec(), value.bytes.to_vec()));
                Ok(true)
            })
        });
    }
    out
}

fn walk_down(trees: &Trees<Ordered>, tree: Tree, below: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut out = Vec::new();
    let mut bound = below.map(<[u8]>::to_vec);
    loop {
        let next = done(|| {
            trees.walk_down(tree, bound.as_deref(), |key, value| {
                out.push((key.to_vec(), value.bytes.to_vec()));
                Ok(true)
            })
        });
        match next {
            Next::From(lower) => bound = Some(lower),
            Next::End => return out,
        }
    }
}

/// The record that has so many below it.
fn nth(trees: &Trees<Ordered>, tree: Tree, rank: u64) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut found = None;
    done(|| {
        trees.walk_up_from(tree, rank, |key, value| {
            found = Some((key.to_vec(), value.bytes.to_vec()));
            Ok(false)
        })
    });
    found
}

/// Whether the walks of a leaf from a rank on give what is there, and go on where they end.
fn is_around(trees: &Trees<Ordered>, tree: Tree, rank: usize, all: &[(Vec<u8>, Vec<u8>)]) -> bool {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let above = done(|| {
        up.clear();
        trees.walk_up_from(tree, rank as u64, |key, _| {
            up.push(key.to_vec());
            Ok(true)
        })
    });
    let below = done(|| {
        down.clear();
        trees.walk_down_from(tree, rank as u64, |key, _| {
            down.push(key.to_vec());
            Ok(true)
        })
    });
    let keys =
        |records: &[(Vec<u8>, Vec<u8>)]| records.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    let (start, end) = (rank.min(all.len()), all.len().min(rank + 1));
    let rest = |next: Next| match next {
        Next::From(bound) => all.partition_point(|(key, _)| *key < bound),
        Next::End => usize::MAX,
    };
    down.reverse();
    up == keys(&all[start..rest(above).min(all.len())])
        && down == keys(&all[if below == Next::End { 0 } else { rest(below) }..end])
}

/// Keys of few letters, of long common starts, of any bytes, and as long as can be.
fn random_key(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u32(..10) {
        0 => (0..random.usize(..10)).map(|_| [0, b'a', 0xff][random.usize(..3)]).collect(),
        1..=5 => format!("user:{:05}:{}", random.u32(..6_000), random.u32(..3)).into_bytes(),
        6..=8 => (0..random.usize(..40)).map(|_| random.u8(..)).collect(),
        _ => {
            let start = [b'x'; 90][..random.usize(..90)].to_vec();
            [&start[..], &random.u16(..).to_be_bytes(), &[b'y'; 150][..random.usize(..150)]].concat()
        }
    }
}

/// A tree in a pool on a device.
struct Run<O> {
    device: Arc<SimDevice>,
    trees: Arc<Trees<O>>,
    tree: Tree,
    member: Member,
    scratch: Scratch,
}

fn open_pool(device: &Arc<SimDevice>) -> Arc<Pool> {
    let options = PoolOptions { huge_pages: false, ..PoolOptions::default() };
    let (pool, _) = Pool::open(device.clone(), &options).expect("a page file without damage");
    pool.residency().wait_until_warm();
    pool
}

impl<O: Subject> Run<O> {
    fn new(order: &dyn Fn(&Pages) -> O) -> Run<O> {
        let device = Arc::new(SimDevice::new(1));
        Run::on(device, order, None)
    }

    fn on(device: Arc<SimDevice>, order: &dyn Fn(&Pages) -> O, tree: Option<Tree>) -> Run<O> {
        let pool = open_pool(&device);
        let pages = Arc::new(Pages::new(pool.clone(), &Options::default(), false));
        let trees = Arc::new(Trees::new(&pages, order(&pages)));
        let create = || Tree { db: DbId(0), root: trees.create(7).expect("two pages"), tag: 7 };
        let tree = tree.unwrap_or_else(create);
        Run { device, trees, tree, member: pool.join(), scratch: Scratch::new() }
    }

    fn view(&self) -> View {
        self.member.idle(|| self.trees.pool.view_after(|| ())).expect("a view")
    }

    /// What a start finds after a cut and a crash now.
    fn restart(self, order: &dyn Fn(&Pages) -> O) -> Run<O> {
        let cut = || self.trees.pool.checkpoint(|| Ok([0; USER_HEADER_BYTES]), &Progress::default());
        self.member.idle(cut).expect("a save");
        let device = Arc::new(SimDevice::from_image(1, self.device.image()));
        Run::on(device, order, Some(self.tree))
    }

    /// The pages of the tree are consistent, and all that are in use. Returns the records.
    fn check(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let pool = &self.trees.pool;
        let read = |pid: PageId, page: &mut Page| *page = *pool.shared(pid).expect("a page").page();
        let mut walk =
            Walk::<O> { of: PhantomData, read: &read, tag: self.tree.tag, out: Vec::new(), page_count: 0 };
        walk.node(self.tree.root, None);
        assert_eq!(walk.page_count, pool.stats().allocated_pages, "pages that nothing leads to");
        walk.out
    }
}

struct Walk<'a, O> {
    of: PhantomData<O>,
    read: &'a dyn Fn(PageId, &mut Page),
    tag: u32,
    out: Vec<(Vec<u8>, Vec<u8>)>,
    page_count: u64,
}

impl<O: Subject> Walk<'_, O> {
    fn node(&mut self, pid: PageId, level: Option<u8>) {
        let mut page = Box::new([0; PAGE_SIZE]);
        (self.read)(pid, &mut page);
        self.page_count += 1;
        assert!(O::is_inner(&*page, self.tag) && level.is_none_or(|level| level == page.level()));
        for index in 0..O::child_count(&*page) {
            let child = O::child(&*page, index);
            if page.level() > 1 {
                self.node(child, Some(page.level() - 1));
            } else {
                self.leaf(child);
            }
        }
    }

    fn leaf(&mut self, pid: PageId) {
        let mut page = [0; PAGE_SIZE];
        (self.read)(pid, &mut page);
        self.page_count += 1;
        let leaf = O::leaf(&page).expect("a leaf");
        assert!(leaf.is_alone(), "no chains here");
        O::take(leaf, &mut self.out);
    }
}

fn sorted(mut records: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    records.sort();
    records
}

fn check_view<O: Subject>(view: &View, tree: Tree, model: &Model) {
    let read = |pid: PageId, page: &mut Page| view.read_page(pid, page).expect("a page of the view");
    let mut walk = Walk::<O> { of: PhantomData, read: &read, tag: tree.tag, out: Vec::new(), page_count: 0 };
    walk.node(tree.root, None);
    assert!(sorted(walk.out).into_iter().eq(model.clone()), "the view shows something else");
}

fn sequence<O: Subject>(order: &dyn Fn(&Pages) -> O) {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let (mut run, mut model) = (Run::new(order), Model::new());
    let mut views: Vec<(View, Model)> = Vec::new();
    let mut deepest = 0;
    for phase in 0..10 {
        let removes_percent = [5, 30, 97][phase % 3];
        for _ in 0..6_000 {
            let key = random_key(&mut random);
            if random.u32(..100) < removes_percent {
                // One that is there, mostly.
                let key = model.range(key.clone()..).next().map_or(key, |(key, _)| key.clone());
                assert_eq!(
                    O::remove(&run.trees, &mut run.scratch, run.tree, &key),
                    model.remove(&key).is_some()
                );
            } else {
                let most_bytes = if random.u32(..4) == 0 { 40 } else { 400 };
                let value = vec![random.u8(..); random.usize(..most_bytes)];
                let was = O::put(&run.trees, &mut run.scratch, run.tree, &key, &value);
                assert_eq!(was, model.insert(key, value).is_some());
            }
            let key = random_key(&mut random);
            assert_eq!(O::get(&run.trees, run.tree, &key), model.get(&key).cloned());
            run.member.quiesce();
        }
        assert!(sorted(run.check()).into_iter().eq(model.clone()), "phase {phase}");
        O::check(&run.trees, run.tree, &model, &mut random);
        deepest = deepest.max(run.trees.pool.shared(run.tree.root).expect("a root").page().level());
        for (view, then) in views.drain(..) {
            check_view::<O>(&view, run.tree, &then);
        }
        if phase % 3 == 1 {
            run = run.restart(order);
            assert!(sorted(run.check()).into_iter().eq(model.clone()), "after a restart");
        }
        views.push((run.view(), model.clone()));
    }
    assert!(deepest >= O::LEVEL_MIN, "a tree of {deepest} levels has not tried everything");
    drop(views);
    for key in model.keys() {
        assert!(O::remove(&run.trees, &mut run.scratch, run.tree, key));
    }
    let left = run.trees.pool.stats().allocated_pages;
    assert!(run.check().is_empty() && left < 12, "{left} pages of an empty tree");
    for _ in 0..4_000 {
        let key = random_key(&mut random);
        O::put(&run.trees, &mut run.scratch, run.tree, &key, &[0; 300]);
    }
    let (trees, tree) = (&run.trees, run.tree);
    let mut steps = 1;
    while !done(|| trees.free_part(tree.root, 100, |leaf, _| Ok(free_leaf(trees, leaf)))) {
        steps += 1;
    }
    assert!(steps > 2 && trees.pool.stats().allocated_pages == 0, "{steps} steps");
}

fn free_leaf<O: Subject>(trees: &Trees<O>, leaf: ExclusiveGuard<'_>) -> usize {
    trees.order.forget(leaf.id());
    trees.pool.free(leaf, 1);
    1
}

fn threads<O: Subject>(order: &dyn Fn(&Pages) -> O) {
    const WRITERS: u8 = 3;
    let run = Run::new(order);
    let (tree, seed) = (run.tree, stillframe_testkit::seed());
    let stop = Arc::new(AtomicBool::new(false));
    let reader = {
        let (trees, stop, member) = (run.trees.clone(), stop.clone(), run.trees.pool.join());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                O::look(&trees, tree);
                member.quiesce();
            }
        })
    };
    let write = |writer: u8| {
        let (trees, member) = (run.trees.clone(), run.trees.pool.join());
        std::thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(seed ^ u64::from(writer) << 32);
            let (mut scratch, mut model) = (Scratch::new(), Model::new());
            for step in 0..12_000 {
                // Neighbours of other writers' keys, and never the same.
                let key = [&random_key(&mut random)[..], &[writer]].concat();
                if random.u32(..100) < if step / 3_000 % 2 == 0 { 10 } else { 80 } {
                    let key = model.range(key.clone()..).next().map_or(key, |(key, _)| key.clone());
                    assert_eq!(O::remove(&trees, &mut scratch, tree, &key), model.remove(&key).is_some());
                } else {
                    let value = vec![writer; random.usize(..60)];
                    assert_eq!(
                        O::put(&trees, &mut scratch, tree, &key, &value),
                        model.insert(key, value).is_some()
                    );
                }
                member.quiesce();
            }
            model
        })
    };
    let writers: Vec<_> = (0..WRITERS).map(write).collect();
    for _ in 0..5 {
        // What it shows nobody knows, but it is a whole tree.
        let view = run.view();
        let read = |pid: PageId, page: &mut Page| view.read_page(pid, page).expect("a page of the view");
        let mut walk =
            Walk::<O> { of: PhantomData, read: &read, tag: tree.tag, out: Vec::new(), page_count: 0 };
        run.member.idle(|| walk.node(tree.root, None));
        let records = sorted(walk.out);
        assert!(records.windows(2).all(|pair| pair[0].0 < pair[1].0), "a key twice");
    }
    let mut model = Model::new();
    run.member.idle(|| writers.into_iter().for_each(|writer| model.extend(writer.join().expect("no panic"))));
    stop.store(true, Ordering::Relaxed);
    run.member.idle(|| reader.join()).expect("no panic");
    assert!(sorted(run.check()).into_iter().eq(model.clone()));
    O::check(&run.trees, tree, &model, &mut fastrand::Rng::with_seed(seed));
}

fn hashed(pages: &Pages) -> Hashed {
    Hashed::new((3, 4), 64, Side::new(pages.beside_bytes.clone()))
}

#[test]
fn a_tree_of_hashes_is_a_map() {
    sequence(&hashed);
}

#[test]
fn a_tree_of_hashes_is_a_map_to_threads() {
    threads(&hashed);
}

#[test]
fn an_ordered_tree_is_a_sorted_map() {
    sequence(&|_| Ordered { counts: false });
}

#[test]
fn an_ordered_tree_is_a_sorted_map_to_threads() {
    threads(&|_| Ordered { counts: false });
}

#[test]
fn an_ordered_tree_that_counts_knows_ranks() {
    sequence(&|_| Ordered { counts: true });
}

#[test]
fn an_ordered_tree_that_counts_knows_ranks_among_threads() {
    threads(&|_| Ordered { counts: true });
}

/// Writes or removes a few records.
fn change(
    trees: &Trees<Ordered>,
    scratch: &mut Scratch,
    tree: Tree,
    model: &mut Model,
    removes: bool,
    random: &mut fastrand::Rng,
) {
    for _ in 0..random.usize(..60) {
        let key = random_key(random);
        let near = model.range(key.clone()..).next().map(|(key, _)| key.clone());
        match near.filter(|_| removes) {
            Some(key) => {
                assert!(Ordered::remove(trees, scratch, tree, &key));
                model.remove(&key);
            }
            None => {
                let value = vec![random.u8(..); random.usize(..400)];
                Ordered::put(trees, scratch, tree, &key, &value);
                model.insert(key, value);
            }
        }
    }
}

/// Ways beside writes that divide, join and free leaves, which are used again: each leads to what is there in the end, or is
/// given up.
#[test]
fn a_way_that_has_become_wrong_is_given_up() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let (mut run, mut model) = (Run::new(&|_| Ordered { counts: false }), Model::new());
    let (mut right_count, mut given_up_count) = (0, 0);
    for round in 0..600 {
        let keys = some_keys(&model, &mut random);
        let trees = run.trees.clone();
        let mut stages_left = random.usize(..4);
        let ways = ways(&trees, run.tree, &keys, || {
            if stages_left == 0 {
                change(&trees, &mut run.scratch, run.tree, &mut model, round % 3 == 2, &mut random);
            }
            stages_left = stages_left.wrapping_sub(1);
        });
        // What has been freed may be used again from now on: more than a lookup ever sees.
        if round % 2 == 0 {
            run.member.quiesce();
            Ordered::put(&trees, &mut run.scratch, run.tree, b"more", &[1; 400]);
            model.insert(b"more".to_vec(), vec![1; 400]);
        }
        for (key, way) in keys.iter().zip(ways) {
            match way.and_then(|way| trees.look_at(run.tree, key, &way, to_vec)) {
                Ok(value) => {
                    assert_eq!(value, model.get(key).cloned(), "{key:?}");
                    right_count += 1;
                }
                Err(stop) => {
                    assert!(matches!(stop, Stop::Contended), "{stop:?}");
                    given_up_count += 1;
                }
            }
        }
    }
    assert!(right_count > 1_000 && given_up_count > 1_000, "{right_count}, {given_up_count}");
}

#[test]
fn keys_and_values_as_long_as_can_be_always_find_room() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let mut run = Run::new(&|_| Ordered { counts: true });
    let mut model = Model::new();
    for _ in 0..3_000 {
        // Separators that are as long as the keys: all differ at the end only, or nowhere but there.
        let mut key = vec![b'k'; KEY_MAX_BYTES];
        key[KEY_MAX_BYTES - 2..].copy_from_slice(&random.u16(..).to_be_bytes());
        key[random.usize(..4) * 150] = random.u8(..);
        let value = vec![7; random.usize(..=512)];
        Ordered::put(&run.trees, &mut run.scratch, run.tree, &key, &value);
        model.insert(key, value);
        run.member.quiesce();
    }
    assert!(run.check().into_iter().eq(model.clone()));
    Ordered::check(&run.trees, run.tree, &model, &mut random);
    let too_long = run.trees.put(run.tree, &[0; KEY_MAX_BYTES + 1], Stored::inline(b""), &mut None, |_| ());
    assert!(matches!(too_long, Err(Stop::TooLarge)));
}

/// Records between two keys go, and no others, with and without counts.
#[test]
fn records_in_a_row_are_removed_together() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for counts in [true, false] {
        let mut run = Run::new(&|_| Ordered { counts });
        let (mut model, mut removed_count) = (Model::new(), 0);
        for _ in 0..30 {
            for _ in 0..400 {
                let (key, value) = (random_key(&mut random), vec![7; random.usize(..60)]);
                Ordered::put(&run.trees, &mut run.scratch, run.tree, &key, &value);
                model.insert(key, value);
            }
            let mut bounds = [random_key(&mut random), random_key(&mut random)];
            bounds.sort();
            let [from, until] = bounds;
            let gone: Vec<_> = model.range(from.clone()..until.clone()).map(|(key, _)| key.clone()).collect();
            removed_count += gone.len();
            gone.iter().for_each(|key| drop(model.remove(key)));
            let mut next = Next::From(from);
            let mut count = 0;
            while let Next::From(bound) = next {
                let removed = done(|| run.trees.remove_run(run.tree, &bound, &until, |_| Ok(())));
                if removed.is_sparse {
                    let _ =
                        run.trees.join_leaves(&mut run.scratch, run.tree, Seek::Key(&bound), Joining::Sparse);
                }
                count += removed.count;
                next = removed.next;
            }
            assert_eq!(count, gone.len());
            assert!(run.check().into_iter().eq(model.clone()));
            Ordered::check(&run.trees, run.tree, &model, &mut random);
            run.member.quiesce();
        }
        assert!(removed_count > 1_000, "{removed_count}");
    }
}

/// Keys that come in order, in several places by turns, leave full leaves behind. So each leaf is divided once.
#[test]
fn runs_of_keys_leave_full_leaves_behind() {
    let mut run = Run::new(&|_| Ordered { counts: true });
    let mut model = Model::new();
    for number in 0..2_000u32 {
        for group in 0..7 {
            let (key, value) = ([&[group][..], &number.to_be_bytes()].concat(), vec![group; 60]);
            assert!(!Ordered::put(&run.trees, &mut run.scratch, run.tree, &key, &value));
            model.insert(key, value);
        }
        run.member.quiesce();
    }
    assert!(run.check().into_iter().eq(model.clone()));
    // Header, slot, the last three bytes of a key at least, value.
    let record_bytes: usize = model.values().map(|value| 2 + 8 + 3 + value.len()).sum();
    let page_count = run.trees.pool.allocated_pages() as usize;
    let least = record_bytes / Ordered::CAPACITY_BYTES;
    assert!(page_count < least * 11 / 10 + 10, "{page_count} pages for what {least} have room for");
}
