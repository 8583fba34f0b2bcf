//! Checks the invariants of all trees, of the slabs and of the page accounting. Pages are looked at in copies, so that none
//! needs to be in memory, or to stay there.

use std::collections::{BTreeMap, BTreeSet};

use stillframe_pagepool::device::PageBuf;
use stillframe_pagepool::{PageId, Reason};

use super::catalog::CATALOG_PAGE_COUNT;
use super::scan;
use super::state::Keyspace;
use crate::blobs::{
    not_discards, Blob, BlobPlace, Class, Discarded, Discards, GarbageLists, Slab, OBJECT_PAGES_MAX,
    SLAB_PAGE_COUNT,
};
use crate::named::NamedTree;
use crate::page::{Page, PAGE_SIZE};
use crate::stop::Stop;
use crate::tree::hash::{
    as_leaf, Content, Grown, Hashed, Inner, Leaf, Record, Reference, HEADER_BYTES, SLOT_BYTES,
};
use crate::tree::ordered::{check_tree, Visitor};
use crate::tree::{bad_record, not_inner, visit_rest, Tree, Words};
use crate::value::ValueType;
use crate::{DbId, UnixMillis};

/// What is to be checked of collections by their types.
#[derive(Clone, Copy)]
pub(crate) struct CollectionChecks {
    /// Whether no element of a packed one has a deadline before the earliest that its body tells.
    pub is_lower_bound: fn(ValueType, UnixMillis, &[u8]) -> bool,
    /// Checks the trees of a large one, each of which has all of its elements; how many these are.
    pub trees: fn(ValueType, &Grown, &mut PageCheck<'_>) -> Result<u64, Stop>,
}

/// What a check counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    pub key_count: u64,
    pub deadline_count: u64,
    pub leaf_count: u64,
    pub inner_count: u64,
    pub slab_count: u64,
    pub object_page_count: u64,
    /// Bytes of records and slots in leaves.
    pub live_leaf_bytes: u64,
    /// Of collections that have trees; their pages are in no other count.
    pub element_count: u64,
    pub element_page_count: u64,
    /// Named trees, which the counts above leave out but for slabs and objects.
    pub tree_count: u64,
    pub tree_record_count: u64,
    pub tree_page_count: u64,
}

/// A collection whose trees are still to be looked at.
struct Large {
    value_type: ValueType,
    grown: Grown,
    /// The earliest deadline of an element that its body tells.
    earliest: Option<UnixMillis>,
}

struct Check {
    collections: CollectionChecks,
    report: CheckReport,
    pages: BTreeSet<u32>,
    /// Slots that records refer to, by slab.
    slots: BTreeMap<u32, (u8, BTreeSet<u16>)>,
    large: Vec<Large>,
    /// Of the records that have been looked at.
    earliest_deadline: Option<UnixMillis>,
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Stop> {
    if holds {
        Ok(())
    } else {
        Err(Stop::Damaged(what().into()))
    }
}

impl Check {
    fn claim(&mut self, pid: PageId, page_count: u32) -> Result<(), Stop> {
        ensure(page_count <= OBJECT_PAGES_MAX, || {
            format!("{page_count} pages at {pid:?} are more than a value has")
        })?;
        for page in pid.0..pid.0.saturating_add(page_count) {
            ensure(self.pages.insert(page), || format!("page {page} is referred to twice"))?;
        }
        Ok(())
    }

    /// Claims what a record refers to.
    fn claim_record(&mut self, record: &Record<'_>) -> Result<(), Stop> {
        if let Some(collection) = record.collection() {
            if let Content::Trees(grown) = collection.content {
                let (value_type, earliest) = (record.value_type(), collection.earliest);
                self.large.push(Large { value_type, grown, earliest });
            }
        }
        record.references().try_for_each(|reference| match reference {
            Reference::Blob(blob) => self.claim_blob(&blob),
            Reference::Tree(_) => Ok(()),
        })
    }

    fn claim_blob(&mut self, blob: &Blob) -> Result<(), Stop> {
        match blob.place {
            BlobPlace::Object { page_count } => {
                let room = u64::from(page_count) * PAGE_SIZE as u64;
                ensure(u64::from(blob.len_bytes) <= room, || format!("{blob:?} is longer than its pages"))?;
                self.report.object_page_count += u64::from(page_count);
                self.claim(blob.pid, page_count)
            }
            BlobPlace::Slab { class, slot } => {
                let fits = blob.len_bytes as usize <= Class(class).slot_bytes();
                ensure(fits, || format!("{blob:?} is longer than its slot"))?;
                let (known_class, slots) =
                    self.slots.entry(blob.pid.0).or_insert_with(|| (class, BTreeSet::new()));
                let new = slots.insert(slot) && *known_class == class;
                ensure(new, || format!("{blob:?} shares its slot"))
            }
        }
    }
}

/// Goes through the pages of a tree.
pub(crate) struct PageCheck<'a> {
    keyspace: &'a Keyspace,
    check: &'a mut Check,
}

impl<'a> PageCheck<'a> {
    /// How names are hashed.
    pub fn hashes(&self) -> &'a Hashed {
        &self.keyspace.trees.order
    }

    /// Checks a tree of elements in the order of their hashes; how many there are.
    ///
    /// # Errors
    /// [`Stop::Damaged`] says what is wrong and where.
    pub fn elements(&mut self, tree: Tree) -> Result<u64, Stop> {
        let (before, level) = (self.check.report.key_count, copied(self.keyspace, tree.root)?.0.level());
        check_node(self.keyspace, self.check, tree, tree.root, level, 0, u64::MAX)?;
        Ok(self.check.report.key_count - before)
    }
}

impl Visitor for PageCheck<'_> {
    fn read(&mut self, pid: PageId, into: &mut Page) -> Result<(), Stop> {
        *into = copied(self.keyspace, pid)?.0;
        Ok(())
    }

    fn page(&mut self, pid: PageId) -> Result<(), Stop> {
        self.check.report.tree_page_count += 1;
        self.check.claim(pid, 1)
    }

    fn blob(&mut self, blob: Blob) -> Result<(), Stop> {
        self.check.claim_blob(&blob)
    }

    fn hashed_leaf(&mut self, pid: PageId, page: &Page) -> Result<(), Stop> {
        let leaf = as_leaf(pid, page)?;
        (0..leaf.count()).try_for_each(|slot| {
            let record = leaf.record(slot).ok_or_else(|| bad_record(pid))?;
            self.check.claim_record(&record)
        })
    }
}

/// Checks everything, while nobody writes. The text of an error says what is wrong and where.
pub fn check(keyspace: &Keyspace, collections: CollectionChecks) -> Result<CheckReport, Stop> {
    let _held = keyspace.garbage.stand_still();
    let mut check = Check {
        collections,
        report: CheckReport::default(),
        pages: BTreeSet::new(),
        slots: BTreeMap::new(),
        large: Vec::new(),
        earliest_deadline: None,
    };
    check.claim(keyspace.catalog, CATALOG_PAGE_COUNT)?;
    for db in (0..keyspace.database_count()).map(|db| DbId(db as u32)) {
        let before = check.report.clone();
        if let Some(tree) = keyspace.tree(db) {
            let level = copied(keyspace, tree.root)?.0.level();
            check_node(keyspace, &mut check, tree, tree.root, level, 0, u64::MAX)?;
        }
        let stats = keyspace.db_stats(db);
        let keys = check.report.key_count - before.key_count;
        let deadlines = check.report.deadline_count - before.deadline_count;
        ensure(keys == stats.key_count && deadlines == stats.deadline_count, || {
            format!("{db:?} has {keys} keys, {deadlines} deadlines; the counters say {stats:?}")
        })?;
    }
    check_named(keyspace, &mut check)?;
    claim_garbage(keyspace, &mut check)?;
    while let Some(large) = check.large.pop() {
        check.earliest_deadline = None;
        check_collection(keyspace, &mut check, &large)?;
        let (Large { grown, earliest, .. }, found) = (large, check.earliest_deadline);
        ensure(found.is_none_or(|found| earliest.is_some_and(|earliest| earliest <= found)), || {
            format!("{grown:?} has an element with the deadline {found:?}; its key says {earliest:?}")
        })?;
    }
    check_slabs(keyspace, &mut check)?;
    let (reached, allocated) = (check.pages.len() as u64, keyspace.pool.stats().allocated_pages);
    ensure(reached == allocated, || {
        format!("{reached} pages can be reached, but {allocated} are allocated")
    })?;
    Ok(check.report)
}

/// What a page has now, wherever it is.
fn copied(keyspace: &Keyspace, pid: PageId) -> Result<Box<PageBuf>, Stop> {
    let mut copy = Box::new(PageBuf::ZERO);
    keyspace.pool.residency().copy_unchanging(&mut [(pid, &mut copy)])?;
    Ok(copy)
}

/// Does what needs a few pages in memory.
fn brought_in<R>(keyspace: &Keyspace, mut step: impl FnMut() -> Result<R, Stop>) -> Result<R, Stop> {
    loop {
        match step() {
            Err(Stop::Fault(pid)) => keyspace.pool.residency().load_at_once(&[pid]),
            Err(Stop::Missing(pages)) => keyspace.pool.residency().load_at_once(&pages),
            done => return done,
        }
    }
}

fn check_named(keyspace: &Keyspace, check: &mut Check) -> Result<(), Stop> {
    if let Some(place) = keyspace.named.place() {
        check.claim(place.pid, place.page_count)?;
    }
    let trees = keyspace.named.all().map_err(|error| Stop::Damaged(Reason::of(&error)))?;
    trees.iter().try_for_each(|tree| check_named_tree(keyspace, check, tree))
}

fn check_named_tree(keyspace: &Keyspace, check: &mut Check, named: &NamedTree) -> Result<(), Stop> {
    let (tree, counted) = (named.tree(), named.record_count());
    let found = check_tree(tree.root, tree.tag, false, &mut PageCheck { keyspace, check })?;
    check.report.tree_count += 1;
    check.report.tree_record_count += found;
    let name = String::from_utf8_lossy(named.name());
    ensure(found == counted, || format!("tree {name} has {found} records; its counter says {counted}"))
}

fn check_collection(keyspace: &Keyspace, check: &mut Check, large: &Large) -> Result<(), Stop> {
    let (grown, report) = (&large.grown, check.report.clone());
    let page_count = check.pages.len() as u64;
    let trees = check.collections.trees;
    let found = trees(large.value_type, grown, &mut PageCheck { keyspace, check })?;
    ensure(found == grown.element_count, || format!("{grown:?} has {found} elements"))?;
    check.report = CheckReport {
        slab_count: check.report.slab_count,
        object_page_count: check.report.object_page_count,
        element_count: report.element_count + grown.element_count,
        element_page_count: report.element_page_count + check.pages.len() as u64 - page_count,
        ..report
    };
    Ok(())
}

/// Garbage is not in the report, but its pages are accounted for.
fn claim_garbage(keyspace: &Keyspace, check: &mut Check) -> Result<(), Stop> {
    let report = check.report.clone();
    let lists = brought_in(keyspace, || keyspace.garbage.to_lists(&keyspace.pool))?;
    let GarbageLists { arrived, put_off, .. } = lists;
    for mut list in [arrived, put_off] {
        loop {
            list.newest.iter().try_for_each(|entry| claim_discarded(keyspace, check, *entry))?;
            if list.older == 0 {
                break;
            }
            let pid = PageId(list.older);
            check.claim(pid, 1)?;
            list = Discards::from_page(&copied(keyspace, pid)?.0).ok_or_else(|| not_discards(pid))?;
        }
    }
    check.report = report;
    Ok(())
}

fn claim_discarded(keyspace: &Keyspace, check: &mut Check, entry: Discarded) -> Result<(), Stop> {
    match entry {
        Discarded::Blob { pid, place } => check.claim_blob(&Blob { pid, len_bytes: 0, place }),
        Discarded::Tree { root } => visit_rest(root, &mut PageCheck { keyspace, check }),
    }
}

fn check_node(
    keyspace: &Keyspace,
    check: &mut Check,
    tree: Tree,
    pid: PageId,
    level: u8,
    lo: u64,
    hi: u64,
) -> Result<(), Stop> {
    check.claim(pid, 1)?;
    check.report.inner_count += 1;
    let copy = copied(keyspace, pid)?;
    let node = &copy.0;
    let sane = node.is_inner(tree.tag) && node.level() == level && node.lo() == lo && node.hi() == hi;
    ensure(sane, || format!("{} at level {level}, hashes {lo:x} to {hi:x}", text(not_inner(pid))))?;
    for index in 0..node.child_count() {
        let (child, lo, hi) = (PageId(node.child(index)), node.separator(index), node.child_hi(index));
        ensure(lo <= hi, || format!("page {}: separators {index} are out of order", pid.0))?;
        if level > 1 {
            check_node(keyspace, check, tree, child, level - 1, lo, hi)?;
        } else {
            check_leaves(keyspace, check, tree, child, lo, hi)?;
        }
    }
    Ok(())
}

fn check_leaves(
    keyspace: &Keyspace,
    check: &mut Check,
    tree: Tree,
    head: PageId,
    lo: u64,
    hi: u64,
) -> Result<(), Stop> {
    let mut pid = head;
    let mut keys = BTreeSet::new();
    loop {
        check.claim(pid, 1)?;
        check.report.leaf_count += 1;
        let copy = copied(keyspace, pid)?;
        let leaf = as_leaf(pid, &copy.0)?;
        let fences = leaf.tag() == tree.tag && (pid != head || (leaf.lo(), leaf.hi()) == (lo, hi));
        ensure(fences, || format!("leaf {}: other fences than its node's", pid.0))?;
        let alone = leaf.chain() == 0 && pid == head;
        ensure(alone || leaf.count() > 0 || pid == head, || format!("leaf {}: empty in a chain", pid.0))?;
        check_leaf(keyspace, check, pid, leaf, lo, hi, &mut keys)?;
        if leaf.chain() == 0 {
            break;
        }
        pid = PageId(leaf.chain());
    }
    let hashes: BTreeSet<u64> = keys.iter().map(|(hash, _)| *hash).collect();
    ensure(pid == head || hashes.len() == 1, || format!("leaf {}: several hashes in a chain", head.0))
}

fn check_leaf(
    keyspace: &Keyspace,
    check: &mut Check,
    pid: PageId,
    leaf: Leaf<'_>,
    lo: u64,
    hi: u64,
    keys: &mut BTreeSet<(u64, Vec<u8>)>,
) -> Result<(), Stop> {
    let mut record_bytes = 0;
    let (mut deadline_count, mut timed_count, mut outside_count) = (0, 0, 0);
    let mut extents = Vec::new();
    for slot in 0..leaf.count() {
        let record = leaf.record(slot).ok_or_else(|| bad_record(pid))?;
        let key =
            brought_in(keyspace, || scan::with_key(keyspace, &record, &mut Vec::new(), <[u8]>::to_vec))?;
        let hash = keyspace.trees.order.hash(&key);
        let placed = (lo..=hi).contains(&hash)
            && hash == keyspace.trees.order.hash_of(&record)
            && leaf.first_at_or_above(hash) <= slot
            && leaf.least_hash(slot) <= hash;
        ensure(placed, || format!("leaf {}: a key in slot {slot} belongs elsewhere", pid.0))?;
        ensure(keys.insert((hash, key)), || format!("leaf {}: a key is there twice", pid.0))?;
        check.claim_record(&record)?;
        check_packed(keyspace, check, pid, &record)?;
        check.earliest_deadline = check.earliest_deadline.into_iter().chain(record.deadline).min();
        deadline_count += usize::from(record.deadline.is_some());
        timed_count += usize::from(record.header().is_timed());
        outside_count += usize::from(record.header().is_outside());
        record_bytes += record.encoded_bytes();
        extents.push((leaf.record_offset(slot), record.encoded_bytes()));
    }
    extents.sort_unstable();
    let apart = extents.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
    ensure(apart, || format!("leaf {}: records overlap", pid.0))?;
    let accounted = leaf.deadline_count() == timed_count
        && leaf.outside_count() == outside_count
        && leaf.live_bytes() == record_bytes + SLOT_BYTES * leaf.count()
        && HEADER_BYTES + leaf.live_bytes() + leaf.free_bytes() == PAGE_SIZE;
    ensure(accounted, || format!("leaf {}: its header miscounts", pid.0))?;
    check.report.key_count += leaf.count() as u64;
    check.report.deadline_count += deadline_count as u64;
    check.report.live_leaf_bytes += leaf.live_bytes() as u64;
    Ok(())
}

/// Checks the deadlines of packed elements.
fn check_packed(keyspace: &Keyspace, check: &Check, pid: PageId, record: &Record<'_>) -> Result<(), Stop> {
    let Some(collection) = record.collection() else { return Ok(()) };
    let Some(earliest) = collection.earliest else { return Ok(()) };
    let mut run = Vec::new();
    let run = match collection.content {
        Content::Packed(run) => run,
        Content::Outside(blob) => {
            brought_in(keyspace, || {
                run.clear();
                keyspace.blobs.read(&blob, &mut run)
            })?;
            &run
        }
        Content::Trees(_) => return Ok(()),
    };
    let is_lower_bound = check.collections.is_lower_bound;
    ensure(is_lower_bound(record.value_type(), earliest, run), || {
        format!("leaf {}: a collection has an element with a deadline before {earliest}", pid.0)
    })
}

fn check_slabs(keyspace: &Keyspace, check: &mut Check) -> Result<(), Stop> {
    let mut listed = BTreeSet::new();
    for (class, head) in (0u8..).zip(keyspace.blobs.slabs.heads()) {
        let (mut pid, mut prev) = (head, 0);
        while pid != 0 {
            let copy = copied(keyspace, PageId(pid))?;
            let slab = Slab::new(&copy.0).filter(|slab| slab.class() == Class(class));
            let linked = slab.is_some_and(|slab| slab.prev() == prev && !slab.is_full());
            ensure(linked && listed.insert(pid), || format!("slab {pid}: a bad link in class {class}"))?;
            prev = pid;
            pid = slab.map_or(0, |slab| slab.next());
        }
    }
    for (pid, (class, slots)) in std::mem::take(&mut check.slots) {
        check.claim(PageId(pid), SLAB_PAGE_COUNT)?;
        check.report.slab_count += 1;
        let copy = copied(keyspace, PageId(pid))?;
        let slab = Slab::new(&copy.0).filter(|slab| slab.class() == Class(class));
        let same = slab.is_some_and(|slab| {
            let used = (0..slab.class().slot_count() as u16).filter(|slot| slab.is_used(*slot));
            used.collect::<BTreeSet<_>>() == slots && slab.used_count() == slots.len()
        });
        ensure(same, || format!("slab {pid}: other slots are used than referred to"))?;
        let full = slab.is_some_and(|slab| slab.is_full());
        ensure(listed.remove(&pid) != full, || format!("slab {pid}: full and listed, or neither"))?;
    }
    ensure(listed.is_empty(), || format!("slabs {listed:?} are listed, but nothing is in them"))
}

fn text(stop: Stop) -> String {
    format!("{stop:?}")
}
