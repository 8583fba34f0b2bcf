//! Random sequences against a double-ended queue, fills from both ends, damage.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use stillframe_pagepool::{Member, PageId, Pool, PoolOptions};

use super::block::{Block, Element, ELEMENT_INLINE_MAX_BYTES};
use super::bulk::Bulk;
use super::cut::CutOff;
use super::path::Lists;
use super::search::Wanted;
use super::walk::{check_tree, visit_rest};
use crate::blobs::{Blob, BlobPlace};
use crate::effect::End;
use crate::error::SaveError;
use crate::page::{Page, PAGE_SIZE};
use crate::pages::Pages;
use crate::stop::{retry, Stop};
use crate::tree::leaves as copies;
use crate::tree::ordered::Visitor;
use crate::tree::trees::{Tree, NO_DATABASE};
use crate::tree::{blank, LeafWalk};
use crate::Options;

const TAG: u32 = 7;

/// An element of the model.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Item {
    Inline(Vec<u8>),
    Outside(Blob),
}

impl Item {
    fn of(element: Element<'_>) -> Item {
        match element {
            Element::Inline(bytes) => Item::Inline(bytes.to_vec()),
            Element::Outside(blob) => Item::Outside(blob),
        }
    }

    fn element(&self) -> Element<'_> {
        match self {
            Item::Inline(bytes) => Element::Inline(bytes),
            Item::Outside(blob) => Element::Outside(*blob),
        }
    }
}

type Model = VecDeque<Item>;

fn done<R>(step: impl FnMut() -> Result<R, Stop>) -> R {
    retry(step).expect("no fault, no damage, room")
}

/// Pages of a pool, as they are, and what was met in them.
struct Reached<'a> {
    pool: &'a Pool,
    pages: BTreeSet<PageId>,
    blobs: BTreeSet<u32>,
}

impl<'a> Reached<'a> {
    fn of(pool: &'a Pool) -> Reached<'a> {
        let (pages, blobs) = Default::default();
        Reached { pool, pages, blobs }
    }
}

impl Visitor for Reached<'_> {
    fn read(&mut self, pid: PageId, into: &mut Page) -> Result<(), Stop> {
        *into = *self.pool.shared(pid)?.page();
        Ok(())
    }

    fn page(&mut self, pid: PageId) -> Result<(), Stop> {
        match self.pages.insert(pid) {
            true => Ok(()),
            false => Err(Stop::Damaged(format!("{pid:?} twice").into())),
        }
    }

    fn blob(&mut self, blob: Blob) -> Result<(), Stop> {
        match self.blobs.insert(blob.pid.0) {
            true => Ok(()),
            false => Err(Stop::Damaged(format!("{blob:?} twice").into())),
        }
    }
}

/// Pages of a pool as copies.
struct Copies<'a>(&'a Pool);

impl copies::Pages for Copies<'_> {
    fn read(&self, pid: PageId, into: &mut Page) -> Result<(), SaveError> {
        let page = self.0.shared(pid).map_err(|stop| SaveError::Damaged(format!("{stop:?}").into()))?;
        *into = *page.page();
        Ok(())
    }

    fn expect(&self, _: &mut dyn Iterator<Item = PageId>) {}
}

/// All elements of a list, from copies of its pages.
fn copied(pool: &Pool, tree: Tree) -> Option<Vec<Item>> {
    let (mut walk, mut page, mut items) = (LeafWalk::new(tree), blank(), Vec::new());
    while walk.next_leaf(&Copies(pool), &mut page).ok()?.is_some() {
        for element in Block::new(&page)?.elements(0) {
            items.push(Item::of(element?));
        }
    }
    Some(items)
}

/// A list in a pool.
struct Run {
    lists: Lists,
    tree: Tree,
    member: Member,
    next_blob: u32,
    /// Blobs that have been given to be discarded.
    discarded: Vec<u32>,
}

impl Run {
    fn new() -> Run {
        let pool = Pool::in_memory(&PoolOptions { huge_pages: false, ..PoolOptions::default() });
        let pool: Arc<Pool> = pool.expect("address space");
        let member = pool.join();
        let pages = Arc::new(Pages::new(pool, &Options::default(), false));
        let lists = Lists::new(&pages);
        let root = done(|| lists.create(TAG));
        let tree = Tree { db: NO_DATABASE, root, tag: TAG };
        Run { lists, tree, member, next_blob: 0, discarded: Vec::new() }
    }

    /// Mostly small elements, some large ones, some that lie outside.
    fn item(&mut self, random: &mut fastrand::Rng) -> Item {
        let most_bytes = match random.u32(..100) {
            0..3 => {
                self.next_blob += 1;
                let place = BlobPlace::Object { page_count: 1 };
                return Item::Outside(Blob { pid: PageId(self.next_blob), len_bytes: 513, place });
            }
            3..10 => ELEMENT_INLINE_MAX_BYTES,
            10..15 => 260,
            15..25 => 1,
            _ => 40,
        };
        let bytes = if random.bool() { most_bytes } else { random.usize(..=most_bytes) };
        Item::Inline(vec![random.u8(..); bytes])
    }

    fn push(&self, end: End, items: &[Item]) {
        let elements: Vec<Element<'_>> = items.iter().map(Item::element).collect();
        done(|| self.lists.push(self.tree, end, &elements));
    }

    fn pop(&mut self, end: End) -> Option<Item> {
        let mut popped = None;
        let was_there = done(|| {
            self.lists.pop(self.tree, end, |element| {
                popped = Some(Item::of(element));
                Ok(())
            })
        });
        assert_eq!(was_there, popped.is_some());
        self.discard(popped.as_ref());
        popped
    }

    fn discard(&mut self, item: Option<&Item>) {
        if let Some(Item::Outside(blob)) = item {
            self.discarded.push(blob.pid.0);
        }
    }

    fn remove(&mut self, index: u64) -> Option<Item> {
        let mut removed = None;
        let was_there = done(|| {
            self.lists.remove(self.tree, index, |element| {
                removed = Some(Item::of(element));
                Ok(())
            })
        });
        assert_eq!(was_there, removed.is_some());
        self.discard(removed.as_ref());
        removed
    }

    fn set(&mut self, index: u64, item: &Item) -> Option<Item> {
        let mut old = None;
        let was_there = done(|| {
            self.lists.set(self.tree, index, item.element(), |element| old = Some(Item::of(element)))
        });
        assert_eq!(was_there, old.is_some());
        self.discard(old.as_ref());
        old
    }

    /// Removes a range, and frees what has been cut off.
    fn remove_range(&mut self, range: Range<u64>) {
        let CutOff { trees, blobs } = done(|| self.lists.remove_range(self.tree, range.clone()));
        self.discarded.extend(blobs.iter().map(|blob| blob.pid.0));
        assert!(trees.len() <= 8, "{} trees", trees.len());
        for root in trees {
            self.free(root);
        }
    }

    /// Frees a tree in steps; between them what is left can be gone through.
    fn free(&mut self, root: PageId) {
        loop {
            let mut rest = Reached::of(&self.lists.pool);
            visit_rest(root, &mut rest).expect("what is left of a list");
            let before = self.discarded.len();
            let discarded = &mut self.discarded;
            let is_gone = done(|| self.lists.free_part(root, 100, |blob| discarded.push(blob.pid.0)));
            assert!(self.discarded[before..].iter().all(|blob| rest.blobs.contains(blob)));
            if is_gone {
                break;
            }
        }
    }

    fn get(&self, index: u64) -> Option<Item> {
        done(|| self.lists.get(self.tree, index, |element| Ok(element.map(Item::of))))
    }

    fn level(&self) -> u8 {
        self.lists.pool.shared(self.tree.root).expect("a root").page()[1]
    }

    /// The list has what the model has, whichever way it is read, its pages are consistent, and they are all that are in use.
    fn check(&self, model: &Model) {
        let pool = &self.lists.pool;
        let mut visitor = Reached::of(pool);
        assert_eq!(check_tree(self.tree.root, TAG, &mut visitor).expect("a whole list"), model.len() as u64);
        assert_eq!(visitor.pages.len() as u64, pool.allocated_pages(), "pages that nothing leads to");
        let copied = copied(pool, self.tree).expect("a whole list");
        assert!(copied.iter().eq(model), "copies have other elements");
        let mut blobs: BTreeSet<u32> = visitor.blobs;
        assert!(
            self.discarded.iter().all(|blob| blobs.insert(*blob)),
            "a blob is discarded and used, or twice"
        );
        assert_eq!(blobs.len(), self.next_blob as usize, "a blob is lost");
        assert!(self.up(0).iter().eq(model) && self.up(model.len() as u64).is_empty());
        assert!(self.down(model.len() as u64).iter().rev().eq(model));
        let (len, one) = (model.len() as u64, Item::Inline(vec![1]));
        for item in [model.front(), model.get(model.len() / 2), Some(&one)].into_iter().flatten() {
            self.check_search(model, item, 0..len);
            self.check_search(model, item, len / 3..len - len / 5);
        }
    }

    /// A search of a range finds what the model has there, both ways, and stops where it is told to.
    fn check_search(&self, model: &Model, item: &Item, range: Range<u64>) {
        let places = range.clone().zip(model.range(range.start as usize..range.end as usize));
        let expected: Vec<u64> = places.filter(|(_, other)| *other == item).map(|(index, _)| index).collect();
        assert_eq!(self.search(item, range.clone(), true, usize::MAX), expected);
        let (backwards, most) = (expected.iter().rev(), expected.len().div_ceil(2));
        let found = self.search(item, range.clone(), false, usize::MAX);
        assert!(backwards.eq(&found));
        assert_eq!(self.search(item, range.clone(), true, most.max(1)), expected[..most]);
        assert_eq!(self.search(item, range, false, most.max(1)), found[..most]);
    }

    /// Indices of elements of a range that are `item`, in the order of the search, up to `most` of them.
    fn search(&self, item: &Item, mut range: Range<u64>, is_upwards: bool, most: usize) -> Vec<u64> {
        let wanted = match item {
            Item::Inline(bytes) => Wanted::new(&bytes.into()),
            Item::Outside(blob) => Wanted::new(&(&vec![0; blob.len_bytes as usize]).into()),
        };
        let mut found = Vec::new();
        done(|| {
            self.lists.search(self.tree, &wanted, &mut range, is_upwards, |index, outside| {
                if outside.is_none_or(|blob| *item == Item::Outside(blob)) {
                    found.push(index);
                }
                Ok(found.len() < most)
            })
        });
        found
    }

    fn up(&self, mut from: u64) -> Vec<Item> {
        let mut items = Vec::new();
        loop {
            let next = done(|| {
                self.lists.walk_up(self.tree, from, |element| {
                    items.push(Item::of(element));
                    Ok(true)
                })
            });
            if next == from {
                return items;
            }
            from = next;
        }
    }

    fn down(&self, mut below: u64) -> Vec<Item> {
        let mut items = Vec::new();
        while below > 0 {
            let next = done(|| {
                self.lists.walk_down(self.tree, below, |element| {
                    items.push(Item::of(element));
                    Ok(true)
                })
            });
            assert!(next < below);
            below = next;
        }
        items
    }

    /// Does something at random. `grows`: more is put than taken.
    fn step(&mut self, model: &mut Model, grows: bool, random: &mut fastrand::Rng) {
        let len = model.len() as u64;
        let index = random.u64(..len + 2);
        let end = if random.bool() { End::Left } else { End::Right };
        let items: Vec<Item> = (0..random.usize(1..8)).map(|_| self.item(random)).collect();
        match random.u32(..if grows { 100 } else { 160 }) {
            0..25 => {
                self.push(end, &items);
                for item in items {
                    match end {
                        End::Left => model.push_front(item),
                        End::Right => model.push_back(item),
                    }
                }
                return;
            }
            25..75 => {
                let inserted = done(|| self.lists.insert(self.tree, index, items[0].element()));
                assert_eq!(inserted, index <= len);
                if inserted {
                    model.insert(index as usize, items[0].clone());
                    self.undo_blobs(&items[1..]);
                    return;
                }
            }
            75..90 => {
                let old = self.set(index, &items[0]);
                assert_eq!(old, model.get(index as usize).cloned());
                if old.is_some() {
                    model[index as usize] = items[0].clone();
                    self.undo_blobs(&items[1..]);
                    return;
                }
            }
            90..125 => assert_eq!(self.remove(index), model.remove(index as usize)),
            125..155 => {
                let popped = self.pop(end);
                let expected = if end == End::Left { model.pop_front() } else { model.pop_back() };
                assert_eq!(popped, expected);
            }
            _ => {
                let from = index.min(len);
                let count = if random.bool() { random.u64(..20) } else { random.u64(..2_000) };
                let to = (from + count).min(len);
                self.remove_range(from..to);
                model.drain(from as usize..to as usize);
            }
        }
        self.undo_blobs(&items);
    }

    /// Items that were made and not used.
    fn undo_blobs(&mut self, items: &[Item]) {
        items.iter().for_each(|item| self.discard(Some(item)));
    }
}

#[test]
fn a_list_is_a_double_ended_queue() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let (mut run, mut model) = (Run::new(), Model::new());
    let mut longest = 0;
    for phase in 0..6 {
        for step in 0..6_000 {
            run.step(&mut model, phase % 3 != 2, &mut random);
            let index = random.u64(..model.len() as u64 + 2);
            assert_eq!(run.get(index), model.get(index as usize).cloned());
            if step % 500 == 0 {
                run.check(&model);
                let from = random.usize(..=model.len());
                assert!(run.up(from as u64).iter().eq(model.range(from..)));
                assert!(run.down(from as u64).iter().rev().eq(model.range(..from)));
            }
            run.member.quiesce();
        }
        longest = longest.max(model.len());
        run.check(&model);
    }
    assert!(longest > 10_000, "{longest} elements have not tried everything");
    run.remove_range(0..model.len() as u64);
    run.check(&Model::new());
    assert_eq!(run.lists.pool.allocated_pages(), 2, "an empty list");
}

fn opposite(end: End) -> End {
    match end {
        End::Left => End::Right,
        End::Right => End::Left,
    }
}

fn number(number: u32) -> Item {
    Item::Inline(format!("{number:020}").into_bytes())
}

#[test]
fn a_list_that_is_filled_from_its_ends_has_full_blocks() {
    const ELEMENTS: u32 = 300_000;
    for ends in [vec![End::Right], vec![End::Left], vec![End::Left, End::Right]] {
        let (run, mut model) = (Run::new(), Model::new());
        for (index, end) in (0..ELEMENTS).zip(ends.iter().cycle()) {
            run.push(*end, &[number(index)]);
            match end {
                End::Left => model.push_front(number(index)),
                End::Right => model.push_back(number(index)),
            }
        }
        assert_eq!(run.level(), 2, "{ends:?}");
        run.check(&model);
        let bytes = run.lists.pool.allocated_pages() * PAGE_SIZE as u64;
        let per_element = bytes as f64 / f64::from(ELEMENTS);
        assert!(per_element < 21.3, "{per_element} bytes an element of 20, filled at {ends:?}");
    }
}

/// Elements whose bytes look like other elements, within one and across two.
#[test]
fn a_search_finds_elements_alone() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for letters in [1, 2, 4] {
        let (run, mut model) = (Run::new(), Model::new());
        for _ in 0..20_000 {
            let most_bytes = if random.u32(..50) == 0 { 300 } else { 5 };
            let bytes = (0..random.usize(..=most_bytes)).map(|_| random.u8(..letters)).collect();
            model.push_back(Item::Inline(bytes));
        }
        let items: Vec<Item> = model.iter().cloned().collect();
        run.push(End::Right, &items);
        for _ in 0..300 {
            let (start, end) = (random.u64(..20_000), random.u64(..=20_000));
            let item = &items[random.usize(..items.len())];
            run.check_search(&model, item, start.min(end)..end);
        }
    }
}

/// Full nodes of more than one level, from either end and in the middle.
#[test]
fn nodes_are_divided_and_joined() {
    // Seven in a block: nodes of 511 children are full after 3,577 of them.
    let large = |number: u32| Item::Inline(vec![number as u8; ELEMENT_INLINE_MAX_BYTES]);
    let (mut run, mut model) = (Run::new(), Model::new());
    for index in 0..12_000 {
        run.push(End::Right, &[large(index)]);
        run.push(End::Left, &[large(index)]);
        model.push_back(large(index));
        model.push_front(large(index));
    }
    for index in 0..6_000 {
        let at = 12_000 + u64::from(index % 5);
        assert!(done(|| run.lists.insert(run.tree, at, large(index).element())));
        model.insert(at as usize, large(index));
    }
    assert_eq!(run.level(), 2);
    run.check(&model);
    let bytes = run.lists.pool.allocated_pages() as usize * PAGE_SIZE;
    while model.len() > 600 {
        let at = model.len() as u64 / 3;
        assert_eq!(run.remove(at), model.remove(at as usize));
        // A range with whole nodes in it.
        if model.len() == 20_000 {
            run.remove_range(2_000..14_000);
            model.drain(2_000..14_000);
            run.check(&model);
        }
        run.member.quiesce();
    }
    run.check(&model);
    let left = run.lists.pool.allocated_pages() as usize * PAGE_SIZE;
    assert!(left < bytes / 20 && run.level() == 1, "{left} bytes of {bytes} are left");
}

#[test]
fn many_elements_at_once_take_the_pages_that_were_expected() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for end in [End::Right, End::Left] {
        let (mut run, mut model) = (Run::new(), Model::new());
        // An end block with room on the wrong side, or half empty.
        for _ in 0..40 {
            for _ in 0..random.usize(..400) {
                assert_eq!(
                    run.pop(opposite(end)),
                    if end == End::Right { model.pop_front() } else { model.pop_back() }
                );
            }
            let items: Vec<Item> = (0..random.usize(..6_000)).map(|_| run.item(&mut random)).collect();
            run.push(end, &items);
            for item in items {
                if end == End::Right {
                    model.push_back(item)
                } else {
                    model.push_front(item)
                }
            }
            run.check(&model);
        }
        assert_eq!(run.level(), 2, "full nodes");
    }
}

#[test]
fn a_list_that_is_built_is_full_and_whole_at_any_time() {
    let (run, mut model) = (Run::new(), Model::new());
    let mut bulk = done(|| Bulk::begin(&run.lists, run.tree));
    for index in 0..250_000 {
        bulk.add(number(index).element()).expect("a page");
        model.push_back(number(index));
        if index % 60_000 == 777 {
            assert_eq!(bulk.seal().expect("pages"), u64::from(index) + 1);
            run.check(&model);
        }
    }
    assert_eq!(bulk.seal().expect("pages"), 250_000);
    run.check(&model);
    assert!(run.lists.pool.allocated_pages() * PAGE_SIZE as u64 <= 250_000 * 213 / 10);
    let too_long = [0; ELEMENT_INLINE_MAX_BYTES + 1];
    assert!(matches!(bulk.add(Element::Inline(&too_long)), Err(Stop::TooLarge)));
    let pushed = run.lists.push(run.tree, End::Right, &[Element::Inline(&too_long)]);
    assert!(matches!(pushed, Err(Stop::TooLarge)));
}

/// A queue of a few elements takes a few pages, and elements are not moved each time.
#[test]
fn a_short_queue_stays_short() {
    for (into, out) in [(End::Right, End::Left), (End::Left, End::Right)] {
        let (mut run, mut model) = (Run::new(), Model::new());
        for index in 0..5_000 {
            run.push(into, &[number(index)]);
            if into == End::Right {
                model.push_back(number(index))
            } else {
                model.push_front(number(index))
            }
            if index >= 300 {
                let expected = if out == End::Left { model.pop_front() } else { model.pop_back() };
                assert_eq!(run.pop(out), expected);
            }
        }
        run.check(&model);
        assert!(run.lists.pool.allocated_pages() <= 4);
    }
}

#[test]
fn without_pages_nothing_happens() {
    let (run, mut model) = (Run::new(), Model::new());
    let mut refused = 0;
    for index in 0..5_000 {
        // Every other block has to wait for a page.
        let limit_bytes = if index % 2 == 0 { run.lists.pages.used_bytes() } else { 0 };
        run.lists.pages.set_limit_bytes(limit_bytes);
        let pushed = run.lists.push(run.tree, End::Right, &[number(index).element()]);
        match pushed {
            Ok(()) => model.push_back(number(index)),
            Err(Stop::OutOfMemory { .. }) => refused += 1,
            Err(stop) => panic!("{stop:?}"),
        }
        let middle = model.len() as u64 / 2;
        match run.lists.insert(run.tree, middle, number(index).element()) {
            Ok(true) => model.insert(middle as usize, number(index)),
            Err(Stop::OutOfMemory { .. }) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused > 5);
    run.check(&model);
    // A cut needs no room.
    run.lists.pages.set_limit_bytes(run.lists.pages.used_bytes());
    let cut_off = done(|| run.lists.remove_range(run.tree, 100..model.len() as u64 - 100));
    assert!(!cut_off.trees.is_empty());
}

/// Writes random bytes to pages of a list, and then does everything with it that can be done.
#[test]
fn damage_is_met_without_a_panic() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let mut found = 0;
    for _ in 0..60 {
        let (mut run, mut model) = (Run::new(), Model::new());
        while model.len() < 4_000 {
            run.step(&mut model, true, &mut random);
        }
        let mut whole = Reached::of(&run.lists.pool);
        check_tree(run.tree.root, TAG, &mut whole).expect("a whole list");
        let pids: Vec<PageId> = whole.pages.iter().copied().collect();
        for _ in 0..random.usize(1..6) {
            let pid = if random.u32(..4) == 0 { run.tree.root } else { pids[random.usize(..pids.len())] };
            damage(&run.lists.pool, pid, &pids, &mut random);
        }
        found += use_damaged(&run, &mut random);
        run.member.quiesce();
    }
    assert!(found > 30, "damage was found {found} times");
}

fn damage(pool: &Pool, pid: PageId, others: &[PageId], random: &mut fastrand::Rng) {
    let mut guard = pool.exclusive(pid).expect("a page");
    let page = guard.page_mut();
    match random.u32(..4) {
        // A header that may still pass for one.
        0 => page[random.usize(..16)] = random.u8(..),
        1 => {
            let at = 8 * random.usize(1..PAGE_SIZE / 8);
            page[at..at + 4].copy_from_slice(&others[random.usize(..others.len())].0.to_le_bytes());
        }
        2 => page[16..].iter_mut().for_each(|byte| *byte = random.u8(..)),
        _ => (0..40).for_each(|_| page[random.usize(..PAGE_SIZE)] = random.u8(..)),
    }
}

/// How many of the ways to read it find the damage.
fn use_damaged(run: &Run, random: &mut fastrand::Rng) -> usize {
    let (lists, tree, pool) = (&run.lists, run.tree, &run.lists.pool);
    let is_checked = check_tree(tree.root, TAG, &mut Reached::of(pool)).is_ok();
    let _ = visit_rest(tree.root, &mut Reached::of(pool));
    // What may be a circle is left by its levels.
    let copied_count = copied(pool, tree).map_or(0, |items| items.len());
    for _ in 0..300 {
        let (index, end) = (random.u64(..5_000), if random.bool() { End::Left } else { End::Right });
        let bytes = vec![1; random.usize(..400)];
        let element = Element::Inline(&bytes);
        // None of these waits for what it has itself, and none is contended: nobody else is there.
        let results = [
            lists.get(tree, index, |_| Ok(())).err(),
            lists.walk_up(tree, index, |_| Ok(true)).err(),
            lists.walk_down(tree, index, |_| Ok(true)).err(),
            lists.blocks_ahead(tree, index, random.bool(), 20).err(),
            lists
                .search(tree, &Wanted::new(&(&bytes).into()), &mut (index..5_000), random.bool(), |_, _| {
                    Ok(true)
                })
                .err(),
            lists
                .search(tree, &Wanted::new(&(&[0; 513]).into()), &mut (0..index), random.bool(), |_, _| {
                    Ok(true)
                })
                .err(),
            lists.push(tree, end, &[element]).err(),
            lists.insert(tree, index, element).err(),
            lists.set(tree, index, element, |_| ()).err(),
            lists.remove(tree, index, |_| Ok(())).err(),
            lists.pop(tree, end, |_| Ok(())).err(),
            lists.remove_range(tree, index..index + random.u64(..50)).err(),
        ];
        assert!(!results.iter().flatten().any(|stop| matches!(stop, Stop::Contended)), "{results:?}");
    }
    for _ in 0..100 {
        if !matches!(lists.free_part(tree.root, 100, |_| ()), Ok(false)) {
            break;
        }
    }
    usize::from(!is_checked || copied_count < 4_000)
}

#[test]
fn elements_of_a_block_are_what_was_put_in() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for _ in 0..2_000 {
        let mut page = [0; PAGE_SIZE];
        random.fill(&mut page[..64]);
        // Whatever bytes there are, they are read or refused.
        page[0] = crate::page::KIND_LIST_LEAF;
        if let Some(block) = Block::new(&page) {
            block.elements(0).take_while(Option::is_some).count();
            let _ = block.elements_down(block.count());
            let _ = (block.element(random.usize(..4_096)), block.offset(block.count()), block.is_whole());
        }
    }
}
