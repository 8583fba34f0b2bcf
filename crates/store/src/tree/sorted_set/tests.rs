//! Sorted sets against a model: random members and scores, hashes of 64 bits and of 8, so that most are shared by several.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::{Member, PageId, Pool, PoolOptions};

use super::bounds::{LexBound, Ranking, ScoreBound};
use super::check::check_sorted_set;
use super::key::{sortable, START_BYTES};
use super::trees::{MetMember, Roots, SortedTrees};
use crate::blobs::{Blob, Blobs, Garbage, GarbageLists, Given, Taking, CLASS_COUNT};
use crate::key::Key;
use crate::page::{Page, PAGE_SIZE};
use crate::pages::Pages;
use crate::stop::Stop;
use crate::tree::hash::{Hashed, Side};
use crate::tree::ordered::{Next, Ordered, Stored, Visitor};
use crate::tree::trees::{Scratch, Trees};
use crate::{OpError, Options};

/// Members and their scores.
type Model = BTreeMap<Vec<u8>, f64>;

struct Run {
    pool: Arc<Pool>,
    index: Trees<Hashed>,
    order: Trees<Ordered>,
    blobs: Blobs,
    member: Member,
    scratch: Scratch,
    roots: Roots,
}

impl Run {
    fn new(hash_bits: u32) -> Run {
        let device = Arc::new(SimDevice::new(1));
        let options = PoolOptions { huge_pages: false, ..PoolOptions::default() };
        let (pool, _) = Pool::open(device, &options).expect("a page file without damage");
        let pages = Arc::new(Pages::new(pool.clone(), &Options::default(), false));
        let index = Trees::new(&pages, Hashed::new((3, 5), hash_bits, Side::new(Arc::default())));
        let order = Trees::new(&pages, Ordered { counts: true });
        let garbage = Arc::new(Garbage::new(GarbageLists::default()));
        let blobs = Blobs::new(&pages, &garbage, &[0; CLASS_COUNT]);
        let member = pool.join();
        let trees = SortedTrees { index: &index, order: &order, blobs: &blobs, taking: Taking::Bytes };
        let roots = trees.create((7, 8), |_| panic!("there is room")).unwrap();
        Run { pool, index, order, blobs, member, scratch: Scratch::new(), roots }
    }

    fn trees(&self) -> SortedTrees<'_> {
        SortedTrees { index: &self.index, order: &self.order, blobs: &self.blobs, taking: Taking::Bytes }
    }

    fn put(&mut self, member: &[u8], score: f64) -> bool {
        let trees =
            SortedTrees { index: &self.index, order: &self.order, blobs: &self.blobs, taking: Taking::Bytes };
        let found = trees.find(self.roots, member).unwrap();
        let key = Key::new(member, self.index.order.hash(member));
        trees.put(&mut self.scratch, self.roots, &key, &found, score).unwrap()
    }

    fn remove(&mut self, member: &[u8]) -> bool {
        let trees =
            SortedTrees { index: &self.index, order: &self.order, blobs: &self.blobs, taking: Taking::Bytes };
        let found = trees.find(self.roots, member).unwrap();
        trees.remove(&mut self.scratch, self.roots, &found).unwrap()
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        self.trees().find(self.roots, member).unwrap().score()
    }

    /// Checks both trees; all pages but those of slabs belong to them. The members.
    fn check(&self) -> u64 {
        let mut visitor = EachPage::of(&self.pool);
        check_sorted_set(self.roots, &self.index.order, &mut visitor).unwrap()
    }
}

/// Goes through the pages, each once.
struct EachPage<'a> {
    pool: &'a Pool,
    pages: BTreeSet<u32>,
    blobs: BTreeSet<(u32, u32)>,
}

impl<'a> EachPage<'a> {
    fn of(pool: &'a Pool) -> EachPage<'a> {
        EachPage { pool, pages: BTreeSet::new(), blobs: BTreeSet::new() }
    }
}

impl Visitor for EachPage<'_> {
    fn read(&mut self, pid: PageId, into: &mut Page) -> Result<(), Stop> {
        *into = *self.pool.shared(pid)?.page();
        Ok(())
    }

    fn page(&mut self, pid: PageId) -> Result<(), Stop> {
        assert!(self.pages.insert(pid.0), "{pid:?} twice");
        Ok(())
    }

    fn blob(&mut self, blob: Blob) -> Result<(), Stop> {
        assert!(self.blobs.insert((blob.pid.0, blob.place.to_word())), "{blob:?} twice");
        Ok(())
    }
}

/// A leaf whose neighbour was in somebody's hands when its last record went is joined later, or never.
#[test]
fn names_are_found_beside_empty_leaves() {
    let mut run = Run::new(64);
    (0..600).for_each(|number| assert!(run.put(format!("member:{number:04}").as_bytes(), 1.0)));
    let mut left = 600;
    for _ in 0..2 {
        let (mut keys, mut below) = (Vec::new(), None);
        // Those of the last leaf that has any.
        while keys.is_empty() {
            let take = |key: &[u8], _: Stored<'_>| {
                keys.push(key.to_vec());
                Ok(true)
            };
            match run.order.walk_down(run.roots.order, below.as_deref(), take).unwrap() {
                Next::From(bound) => below = Some(bound),
                Next::End => panic!("one leaf alone has all"),
            }
        }
        for key in &keys {
            run.order.remove(run.roots.order, key, &mut None, |_| ()).unwrap();
        }
        left -= keys.len() as u64;
        let trees = run.trees();
        let order = trees.ranks(run.roots);
        assert_eq!(order.ranks_by_lex(LexBound::Min, LexBound::Max).unwrap(), 0..left);
        assert_eq!(order.ranks_by_lex(LexBound::Included(b"member:0009"), LexBound::Max).unwrap(), 9..left);
    }
}

/// Short ones, some that are met again, some long ones that differ soon.
fn random_member(random: &mut fastrand::Rng) -> Vec<u8> {
    let name = format!("member:{:05}", random.u32(..4_000)).into_bytes();
    match random.u32(..40) {
        0 => Vec::new(),
        1 => (0..random.usize(..40)).map(|_| random.u8(..)).collect(),
        2 => [&name[..], &vec![b'x'; START_BYTES - 1 - name.len()]].concat(),
        3 => [&name[..], &vec![b'x'; START_BYTES - name.len()]].concat(),
        // Long ones that begin alike would be in another order.
        4 => [&name[..], &vec![b'y'; 3_000]].concat(),
        _ => name,
    }
}

fn random_score(random: &mut fastrand::Rng) -> f64 {
    match random.u32(..10) {
        0 => [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324][random.usize(..6)],
        1..=5 => f64::from(random.i32(-50..50)),
        _ => (random.f64() - 0.5) * 1e6,
    }
}

/// Members in order, with the bits of their scores.
fn in_order(model: &Model) -> Vec<(Vec<u8>, u64)> {
    let mut all: Vec<_> = model.iter().map(|(member, score)| (sortable(*score), member, *score)).collect();
    all.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    all.into_iter().map(|(_, member, score)| (member.clone(), score.to_bits())).collect()
}

fn range(run: &Run, ranks: std::ops::Range<u64>, is_downwards: bool) -> Vec<(Vec<u8>, u64)> {
    let mut out = Vec::new();
    let take = |met: MetMember<'_>| {
        out.push((met.member.held().to_vec(), met.score.to_bits()));
        Ok(true)
    };
    run.trees().range(run.roots, ranks, is_downwards, take).unwrap();
    out
}

fn random_ranks(random: &mut fastrand::Rng, count: usize) -> std::ops::Range<u64> {
    let start = random.u64(..=count as u64);
    start..(start + [1, 30, 700, count as u64][random.usize(..4)]).min(count as u64)
}

fn score_bound(random: &mut fastrand::Rng) -> ScoreBound {
    let score = random_score(random);
    if random.bool() {
        ScoreBound::Included(score)
    } else {
        ScoreBound::Excluded(score)
    }
}

fn compare(run: &Run, model: &Model, random: &mut fastrand::Rng) {
    let all = in_order(model);
    assert_eq!(run.check(), all.len() as u64);
    assert!(range(run, 0..all.len() as u64, false) == all);
    for _ in 0..30 {
        let ranks = random_ranks(random, all.len());
        let expected = &all[ranks.start as usize..ranks.end as usize];
        assert_eq!(range(run, ranks.clone(), false), expected, "{ranks:?} of {}", all.len());
        let mut down = range(run, ranks, true);
        down.reverse();
        assert_eq!(down, expected);
        let (min, max) = (score_bound(random), score_bound(random));
        let is_inside = |bits: u64| {
            let score = f64::from_bits(bits);
            let above = match min {
                ScoreBound::Included(min) => score >= min,
                ScoreBound::Excluded(min) => score > min,
            };
            above
                && match max {
                    ScoreBound::Included(max) => score <= max,
                    ScoreBound::Excluded(max) => score < max,
                }
        };
        let ranks = run.trees().ranks(run.roots).ranks_by_score(min, max).unwrap();
        let inside: Vec<_> = all.iter().filter(|(_, bits)| is_inside(*bits)).cloned().collect();
        assert_eq!(ranks.end - ranks.start, inside.len() as u64, "{min:?} {max:?}");
        assert_eq!(range(run, ranks, false), inside);
        let member = random_member(random);
        let found = run.trees().find(run.roots, &member).unwrap();
        let rank = all.iter().position(|(other, _)| *other == member).map(|rank| rank as u64);
        assert_eq!(run.trees().rank(run.roots, &found).unwrap(), rank);
    }
}

fn sequence(hash_bits: u32, step_count: usize) {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let (mut run, mut model) = (Run::new(hash_bits), Model::new());
    for phase in 0..6 {
        let removes_percent = [5, 30, 90][phase % 3];
        for _ in 0..step_count {
            let member = random_member(&mut random);
            assert_eq!(run.score(&member).map(f64::to_bits), model.get(&member).copied().map(f64::to_bits));
            if random.u32(..100) < removes_percent {
                assert_eq!(run.remove(&member), model.remove(&member).is_some());
            } else {
                let score = random_score(&mut random);
                let is_new = run.put(&member, score);
                // Zero and negative zero are one score: the one that is there stays.
                let old = model.get(&member).copied().filter(|old| *old == score);
                assert_eq!(is_new, model.insert(member, old.unwrap_or(score)).is_none());
            }
            run.member.quiesce();
        }
        compare(&run, &model, &mut random);
        let (all, ranks) = (in_order(&model), random_ranks(&mut random, model.len()));
        let mut removed = Vec::new();
        let trees =
            SortedTrees { index: &run.index, order: &run.order, blobs: &run.blobs, taking: Taking::Bytes };
        let note = |member: Given<'_>, score: f64| removed.push((member.held().to_vec(), score.to_bits()));
        trees.remove_range(&mut run.scratch, run.roots, ranks.clone(), note).unwrap();
        assert_eq!(removed, all[ranks.start as usize..ranks.end as usize]);
        for (member, _) in &removed {
            model.remove(member);
        }
        compare(&run, &model, &mut random);
    }
    for member in model.keys() {
        assert!(run.remove(member));
    }
    assert_eq!(run.check(), 0);
    assert!(run.pool.stats().allocated_pages < 12, "an empty set");
}

#[test]
fn a_sorted_set_is_a_map_and_an_order() {
    sequence(64, 6_000);
}

#[test]
fn members_that_share_their_hash_are_told_apart() {
    sequence(8, 1_500);
}

#[test]
fn ranges_by_name_are_those_of_a_list() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let (mut run, mut model) = (Run::new(64), Model::new());
    let trees = |run: &Run| run.trees().ranks(run.roots).ranks_by_lex(LexBound::Min, LexBound::Max).unwrap();
    assert_eq!(trees(&run), 0..0);
    for _ in 0..3_000 {
        let member = random_member(&mut random);
        run.put(&member, 3.5);
        model.insert(member, 3.5);
    }
    let members: Vec<_> = model.keys().cloned().collect();
    for _ in 0..500 {
        let (low, high) = (random_member(&mut random), random_member(&mut random));
        let bound = |member, kind: u32| match kind {
            0 => LexBound::Min,
            1 => LexBound::Max,
            2..=4 => LexBound::Included(member),
            _ => LexBound::Excluded(member),
        };
        let (min, max) = (bound(&low[..], random.u32(..8)), bound(&high[..], random.u32(..8)));
        let first = match min {
            LexBound::Min => 0,
            LexBound::Max => members.len(),
            LexBound::Included(low) => members.partition_point(|member| &member[..] < low),
            LexBound::Excluded(low) => members.partition_point(|member| &member[..] <= low),
        };
        let last = match max {
            LexBound::Min => 0,
            LexBound::Max => members.len(),
            LexBound::Included(high) => members.partition_point(|member| &member[..] <= high),
            LexBound::Excluded(high) => members.partition_point(|member| &member[..] < high),
        };
        let ranks = run.trees().ranks(run.roots).ranks_by_lex(min, max).unwrap();
        let names: Vec<_> = range(&run, ranks, false).into_iter().map(|(member, _)| member).collect();
        assert_eq!(names, members[first..last.max(first)], "{min:?} {max:?}");
    }
}

/// They have one score, one start, and of two hundred and fifty-six hashes one.
#[test]
fn long_members_that_begin_alike_are_told_apart() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let (mut run, mut model) = (Run::new(8), Model::new());
    let start = vec![b's'; START_BYTES];
    for _ in 0..3_000 {
        let member = [&start[..], format!("{}", random.u32(..600)).as_bytes()].concat();
        assert_eq!(run.score(&member), model.get(&member).copied());
        if random.u32(..3) == 0 {
            assert_eq!(run.remove(&member), model.remove(&member).is_some());
        } else {
            let score = f64::from(random.u32(..2));
            assert_eq!(run.put(&member, score), model.insert(member, score).is_none());
        }
        run.member.quiesce();
    }
    assert_eq!(run.check(), model.len() as u64);
    let mut all = range(&run, 0..model.len() as u64, false);
    assert!(all.is_sorted_by_key(|(_, bits)| *bits), "by score");
    all.sort();
    assert!(all.into_iter().eq(model.iter().map(|(member, score)| (member.clone(), score.to_bits()))));
}

/// Members of a set that is to be damaged: of one score and with long names, so that few children fit a node, or any.
fn members_to_damage(is_deep: bool, random: &mut fastrand::Rng) -> Vec<(Vec<u8>, f64)> {
    let deep = |random: &mut fastrand::Rng| {
        let name = format!("{:04}", random.u32(..10_000));
        ([&vec![b'a' + random.u8(..26); 240][..], name.as_bytes()].concat(), 1.0)
    };
    let any = |random: &mut fastrand::Rng| (random_member(random), random_score(random));
    (0..600).map(|_| if is_deep { deep(random) } else { any(random) }).collect()
}

/// Writes nonsense to a page of either tree. In a node, which has little else, mostly to where its parts are told.
fn damage(pool: &Pool, pid: PageId, others: &[u32], random: &mut fastrand::Rng) {
    let mut guard = pool.exclusive(pid).unwrap();
    let page = guard.page_mut();
    match random.u32(..6) {
        0 => page[random.usize(..64)] ^= random.u8(1..),
        1 => page[random.usize(..PAGE_SIZE)] ^= random.u8(1..),
        2 => {
            let at = 4 * random.usize(..PAGE_SIZE / 4);
            page[at..at + 4].copy_from_slice(&others[random.usize(..others.len())].to_le_bytes());
        }
        // The pid of a child, by either format of nodes, or the next leaf of a chain.
        3 => {
            let at = [28, 96, 100, 160, 164, 342 * 8, 342 * 8 + 4][random.usize(..7)];
            page[at..at + 4].copy_from_slice(&others[random.usize(..others.len())].to_le_bytes());
        }
        4 => (0..random.usize(1..200)).for_each(|_| page[random.usize(..PAGE_SIZE)] = random.u8(..)),
        _ => {
            let (from, to) = (random.usize(..PAGE_SIZE - 64), random.usize(..PAGE_SIZE - 64));
            page.copy_within(from..from + random.usize(1..64), to);
        }
    }
}

/// Pages that fit their checksums may hold nonsense all the same.
#[test]
fn damaged_pages_are_met_without_a_panic() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let (mut refused_count, mut found_count) = (0, 0);
    for round in 0..60 {
        let mut run = Run::new(16);
        let members = members_to_damage(round % 2 == 0, &mut random);
        for (member, score) in &members {
            run.put(member, *score);
            run.member.quiesce();
        }
        let mut visitor = EachPage::of(&run.pool);
        check_sorted_set(run.roots, &run.index.order, &mut visitor).unwrap();
        let pages: Vec<u32> = visitor.pages.into_iter().collect();
        let is_inner = |pid: &&u32| matches!(run.pool.shared(PageId(**pid)).unwrap().page()[0], 2 | 10);
        let nodes: Vec<u32> = pages.iter().filter(is_inner).copied().collect();
        assert!(nodes.len() > 2 || round % 2 != 0, "a tree of nodes");
        for _ in 0..random.usize(1..6) {
            let some = if random.bool() { &nodes } else { &pages };
            damage(&run.pool, PageId(some[random.usize(..some.len())]), &pages, &mut random);
        }
        let (refused, found) = use_damaged(&mut run, round % 2 == 0, &members, &mut random);
        (refused_count, found_count) = (refused_count + refused, found_count + found);
    }
    assert!(refused_count > 100 && found_count > 1_000, "{refused_count}, {found_count}");
}

/// Does everything that can be done with a set. How much of it met damage, and how many members were found.
fn use_damaged(
    run: &mut Run,
    is_deep: bool,
    members: &[(Vec<u8>, f64)],
    random: &mut fastrand::Rng,
) -> (u32, u32) {
    let (mut refused_count, mut found_count) = (0, 0);
    let new = members_to_damage(is_deep, random);
    for (member, score) in members.iter().chain(&new) {
        let trees =
            SortedTrees { index: &run.index, order: &run.order, blobs: &run.blobs, taking: Taking::Bytes };
        let key = Key::new(member, run.index.order.hash(member));
        let done = trees.find(run.roots, member).and_then(|found| {
            found_count += u32::from(found.score().is_some());
            trees.rank(run.roots, &found)?;
            match random.u32(..4) {
                0 | 1 => trees.remove(&mut run.scratch, run.roots, &found),
                2 => trees.put(&mut run.scratch, run.roots, &key, &found, *score),
                _ => trees.put(&mut run.scratch, run.roots, &key, &found, random_score(random)),
            }
        });
        refused_count += u32::from(matches!(done, Err(OpError::Damaged(_))));
        run.member.quiesce();
    }
    for is_downwards in [false, true] {
        let _ = run.trees().range(run.roots, 0..1_000, is_downwards, |_| Ok(true));
        let _ = run.trees().range(run.roots, 300..900, is_downwards, |_| Ok(true));
    }
    let _ =
        run.trees().ranks(run.roots).ranks_by_score(ScoreBound::Included(-1.0), ScoreBound::Excluded(1.0));
    let _ = run.trees().ranks(run.roots).ranks_by_lex(LexBound::Included(b"b"), LexBound::Excluded(b"q"));
    let trees =
        SortedTrees { index: &run.index, order: &run.order, blobs: &run.blobs, taking: Taking::Bytes };
    let _ = trees.remove_range(&mut run.scratch, run.roots, 3..250, |_, _| ());
    for root in [run.roots.order.root, run.roots.index.root] {
        let free = |guard| {
            run.pool.free(guard, 1);
            Ok(1)
        };
        let _ = match root == run.roots.order.root {
            true => run.order.free_part(root, 5, |leaf, _| free(leaf)),
            false => run.index.free_part(root, 5, |leaf, _| free(leaf)),
        };
    }
    (refused_count, found_count)
}

/// Bytes an element in leaves, and in all pages with their descriptors.
fn bytes_an_element(score: impl Fn(&mut fastrand::Rng) -> f64) -> (f64, f64) {
    const COUNT: u32 = 100_000;
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let mut run = Run::new(64);
    for number in 0..COUNT {
        // Twenty bytes, in random order.
        let member = format!("{:020}", u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1);
        let score = score(&mut random);
        run.put(member.as_bytes(), score);
        run.member.quiesce();
    }
    let pages = run.pool.stats().allocated_pages as f64;
    let mut leaf_bytes = 0;
    for pid in EachPage::of(&run.pool).all(&run) {
        let guard = run.pool.shared(PageId(pid)).unwrap();
        let is_leaf = matches!(guard.page()[0], 1 | 7);
        leaf_bytes += if is_leaf { PAGE_SIZE } else { 0 };
    }
    let of = |bytes: f64| bytes / f64::from(COUNT);
    (of(leaf_bytes as f64), of(pages * (PAGE_SIZE as f64 + 24.0)))
}

impl EachPage<'_> {
    fn all(mut self, run: &Run) -> BTreeSet<u32> {
        check_sorted_set(run.roots, &run.index.order, &mut self).unwrap();
        self.pages
    }
}

#[test]
fn an_element_takes_less_than_sixty_five_bytes() {
    for score in [
        (|random: &mut fastrand::Rng| random.f64()) as fn(&mut fastrand::Rng) -> f64,
        |random| (random.f64() - 0.5) * 1e9,
        |random| f64::from(random.u32(..500_000)),
    ] {
        let (in_leaves, in_all) = bytes_an_element(score);
        println!("{in_leaves:.1} bytes in leaves, {in_all:.1} in all");
        assert!(in_all < 65.0, "{in_leaves:.1} bytes in leaves, {in_all:.1} in all");
    }
}
