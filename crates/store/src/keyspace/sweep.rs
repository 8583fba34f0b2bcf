//! Finding what nothing refers to any more because the pages that did are lost.
//!
//! A picture of the pages at a cut is walked while the store goes on. What is in use then and nothing leads to stays
//! so (invariant C7): nobody can come to refer to it again. Catalogs say whether there may be such pages (MAY LEAK).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_pagepool::{Member, PageId, Reason, View, PAGE_SIZE};

use super::catalog::{Catalog, CATALOG_PAGE_COUNT};
use super::state::Keyspace;
use crate::blobs::{
    not_discards, Blob, BlobPlace, Class, Discarded, Discards, GarbageLists, Slab, OBJECT_PAGES_MAX,
    SLAB_PAGE_COUNT,
};
use crate::named::NameEntry;
use crate::page::Page;
use crate::stop::Stop;
use crate::tree::hash::{as_leaf, Leaf, Reference};
use crate::tree::ordered::{check_tree, Visitor};
use crate::tree::{bad_record, visit_rest};

const CHUNK_PAGES: u32 = 4096;

/// A set of pages: a bit a page, by chunk.
#[derive(Default)]
struct PageSet {
    chunks: BTreeMap<u32, Box<[u64; CHUNK_PAGES as usize / 64]>>,
}

impl PageSet {
    fn insert(&mut self, pid: u32) {
        let chunk = self.chunks.entry(pid / CHUNK_PAGES).or_insert_with(|| Box::new([0; 64]));
        chunk[(pid % CHUNK_PAGES / 64) as usize] |= 1 << (pid % 64);
    }

    fn contains(&self, pid: u32) -> bool {
        let chunk = self.chunks.get(&(pid / CHUNK_PAGES));
        chunk.is_some_and(|chunk| chunk[(pid % CHUNK_PAGES / 64) as usize] & 1 << (pid % 64) != 0)
    }
}

/// Slots of a slab that are referred to: a bit each.
struct KnownSlab {
    class: u8,
    slots: [u64; 4],
}

/// What leads to all pages at a cut.
struct Content {
    catalog: Catalog,
    named: Vec<NameEntry>,
}

/// A walk over everything that the catalog of a cut leads to.
struct Marking<'a> {
    keyspace: &'a Keyspace,
    member: &'a Member,
    view: &'a View,
    pages: PageSet,
    slabs: BTreeMap<u32, KnownSlab>,
    /// Of the tree that is walked.
    keys: i64,
    deadlines: i64,
}

impl Marking<'_> {
    fn read(&self, pid: PageId, page: &mut Page) -> Result<(), Stop> {
        self.member.quiesce();
        if self.keyspace.garbage.is_stopping() {
            return Err(Stop::Contended);
        }
        self.view.read_page(pid, page).map_err(|error| Stop::Damaged(Reason::of(&error)))
    }

    fn mark(&mut self, pid: PageId, page_count: u32) {
        // More have been made up.
        let page_count = page_count.min(OBJECT_PAGES_MAX);
        (pid.0..pid.0.saturating_add(page_count)).for_each(|page| self.pages.insert(page));
    }

    fn records(&mut self, pid: PageId, leaf: Leaf<'_>) -> Result<(), Stop> {
        self.keys += leaf.count() as i64;
        let is_looked_at = leaf.outside_count() + leaf.deadline_count() > 0;
        for slot in 0..if is_looked_at { leaf.count() } else { 0 } {
            let record = leaf.record(slot).ok_or_else(|| bad_record(pid))?;
            self.deadlines += i64::from(record.deadline.is_some());
            record.references().try_for_each(|reference| self.reference(reference))?;
        }
        Ok(())
    }

    fn reference(&mut self, reference: Reference) -> Result<(), Stop> {
        match reference {
            Reference::Blob(Blob { pid, place, .. }) => self.blob(pid, place),
            Reference::Tree(root) => {
                // The elements of a collection are no keys.
                let counted = (self.keys, self.deadlines);
                visit_rest(root, self)?;
                (self.keys, self.deadlines) = counted;
            }
        }
        Ok(())
    }

    fn blob(&mut self, pid: PageId, place: BlobPlace) {
        match place {
            BlobPlace::Object { page_count } => self.mark(pid, page_count),
            BlobPlace::Slab { class, slot } => {
                let slab = self.slab(pid.0, class);
                if let Some(word) = slab.slots.get_mut(usize::from(slot) / 64) {
                    *word |= 1 << (slot % 64);
                }
            }
        }
    }

    fn slab(&mut self, pid: u32, class: u8) -> &mut KnownSlab {
        if !self.slabs.contains_key(&pid) {
            self.mark(PageId(pid), SLAB_PAGE_COUNT);
        }
        self.slabs.entry(pid).or_insert(KnownSlab { class, slots: [0; 4] })
    }

    fn garbage(&mut self, lists: &GarbageLists) -> Result<(), Stop> {
        for list in [&lists.arrived, &lists.put_off] {
            let mut list = list.clone();
            loop {
                for entry in &list.newest {
                    match *entry {
                        Discarded::Blob { pid, place } => self.blob(pid, place),
                        Discarded::Tree { root } => visit_rest(root, self)?,
                    }
                }
                if list.older == 0 {
                    break;
                }
                let (pid, mut page) = (PageId(list.older), [0; PAGE_SIZE]);
                self.read(pid, &mut page)?;
                self.mark(pid, 1);
                list = Discards::from_page(&page).ok_or_else(|| not_discards(pid))?;
            }
        }
        Ok(())
    }

    /// Slabs with free slots, as far as their list can be followed.
    fn slab_lists(&mut self, heads: &[u32]) -> Result<(), Stop> {
        let (mut page, mut met) = ([0; PAGE_SIZE], BTreeSet::new());
        for (class, head) in (0u8..).zip(heads) {
            let mut pid = *head;
            while pid != 0 && met.insert(pid) {
                self.slab(pid, class);
                pid = match self.slab_header(pid, class, &mut page)? {
                    Some(slab) => slab.next(),
                    None => 0,
                };
            }
        }
        Ok(())
    }

    /// `None` if the slab's first page is lost: nobody gets at its slots.
    fn slab_header<'p>(&self, pid: u32, class: u8, page: &'p mut Page) -> Result<Option<Slab<'p>>, Stop> {
        match self.read(PageId(pid), page) {
            Ok(()) => Ok(Slab::new(page).filter(|slab| slab.class() == Class(class))),
            Err(Stop::Damaged(_)) => {
                // It may be there at the next start.
                if !self.keyspace.pool.residency().give_up(PageId(pid)) {
                    self.keyspace.pages.leaks.note_leak();
                }
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// Slots that are in use and that nothing refers to, but for those that cannot be used again as their pages are lost:
    /// they go with their slab.
    fn lost_slots(&self) -> Result<Vec<(PageId, BlobPlace)>, Stop> {
        let (mut page, mut lost) = ([0; PAGE_SIZE], Vec::new());
        for (&pid, known) in &self.slabs {
            let Some(slab) = self.slab_header(pid, known.class, &mut page)? else { continue };
            let is_known = |slot: u16| known.slots[usize::from(slot) / 64] & 1 << (slot % 64) != 0;
            let is_empty = known.slots == [0; 4];
            let may_be_reused = |slot: u16| {
                is_empty || self.keyspace.blobs.slabs.may_be_reused(PageId(pid), slab.class(), slot)
            };
            let slots = (0..slab.class().slot_count() as u16).filter(|&slot| slab.is_used(slot));
            let slots = slots.filter(|&slot| !is_known(slot) && may_be_reused(slot));
            lost.extend(slots.map(|slot| (PageId(pid), BlobPlace::Slab { class: known.class, slot })));
        }
        Ok(lost)
    }
}

impl Visitor for Marking<'_> {
    fn read(&mut self, pid: PageId, into: &mut Page) -> Result<(), Stop> {
        Marking::read(self, pid, into)
    }

    fn page(&mut self, pid: PageId) -> Result<(), Stop> {
        self.mark(pid, 1);
        Ok(())
    }

    fn blob(&mut self, blob: Blob) -> Result<(), Stop> {
        Marking::blob(self, blob.pid, blob.place);
        Ok(())
    }

    fn hashed_leaf(&mut self, pid: PageId, page: &Page) -> Result<(), Stop> {
        self.records(pid, as_leaf(pid, page)?)
    }
}

/// Frees what nothing refers to, if there may be such pages and it is time to look. For the thread that collects
/// garbage, between two steps.
pub(super) fn sweep_if_due(keyspace: &Arc<Keyspace>, member: &Member) {
    if !keyspace.pages.leaks.is_due()
        || keyspace.pool.residency().is_warming_up()
        || keyspace.garbage.is_stopping()
    {
        return;
    }
    keyspace.pages.leaks.begin();
    match sweep(keyspace, member) {
        Ok(()) => keyspace.pages.leaks.end(),
        // There may be less to see another time.
        Err(Stop::Contended) => keyspace.pages.leaks.ask(),
        // What cannot be read may refer to anything: it waits until that page is given up.
        Err(_) => {}
    }
}

fn sweep(keyspace: &Arc<Keyspace>, member: &Member) -> Result<(), Stop> {
    let (view, Content { catalog, named }) = picture(keyspace, member)?;
    let mut marking = Marking {
        keyspace,
        member,
        view: &view,
        pages: PageSet::default(),
        slabs: BTreeMap::new(),
        keys: 0,
        deadlines: 0,
    };
    marking.mark(keyspace.catalog, CATALOG_PAGE_COUNT);
    marking.garbage(&catalog.garbage)?;
    let mut miscounts = Vec::new();
    for database in catalog.databases.iter().filter(|database| database.root != 0) {
        (marking.keys, marking.deadlines) = (0, 0);
        visit_rest(PageId(database.root), &mut marking)?;
        let keys = marking.keys - database.key_count as i64;
        miscounts.push((database.tag, keys, marking.deadlines - database.deadline_count as i64));
    }
    if let Some(place) = catalog.names {
        marking.mark(place.pid, place.page_count);
    }
    let mut named_miscounts = Vec::new();
    for NameEntry { root, tag, record_count, .. } in named {
        let found = check_tree(root, tag, false, &mut marking)?;
        named_miscounts.push((tag, found as i64 - record_count as i64));
    }
    marking.slab_lists(&catalog.slab_heads)?;
    let slots = marking.lost_slots()?;
    let known = marking.pages;
    if !keyspace.blobs.none_is_sent() {
        // What led to it may be lost, and it is in use all the same.
        return Err(Stop::Contended);
    }
    let orphans = member.idle(|| view.in_use_but(|pid| known.contains(pid.0)));
    // What it would keep for its cut is of no use to anybody.
    drop(view);
    for (mut start, end) in orphans {
        // Leaves among them would be looked at by the active expiry.
        (start..end).for_each(|page| keyspace.trees.order.side.forget(PageId(page)));
        while start < end {
            start = keyspace.pool.free_orphans(start, end);
            member.quiesce();
        }
    }
    slots.into_iter().for_each(|(pid, place)| keyspace.garbage.push_blob(&keyspace.pool, pid, place));
    miscounts.into_iter().for_each(|(tag, keys, deadlines)| correct(keyspace, tag, keys, deadlines));
    named_miscounts.into_iter().for_each(|(tag, records)| correct_named(keyspace, tag, records));
    Ok(())
}

fn correct_named(keyspace: &Keyspace, tag: u32, records: i64) {
    let trees = keyspace.named.all().unwrap_or_default();
    trees.iter().filter(|tree| tree.tree().tag == tag).for_each(|tree| tree.correct(records));
}

/// What the catalog would say now, and the list of named trees. Runs in the barrier.
fn content_now(keyspace: &Keyspace) -> Result<Content, Stop> {
    let trees = keyspace.named.all().map_err(|error| Stop::Damaged(Reason::of(&error)))?;
    Ok(Content { catalog: keyspace.content()?, named: trees.iter().map(|tree| tree.entry()).collect() })
}

/// All pages as of a cut, and what leads to them there.
fn picture(keyspace: &Arc<Keyspace>, member: &Member) -> Result<(View, Content), Stop> {
    let (keyspace, pool) = (keyspace.clone(), keyspace.pool.clone());
    let content = Arc::new(Mutex::new(None));
    let at_cut = content.clone();
    let view = member.idle(|| pool.view_after(move || *at_cut.lock() = Some(content_now(&keyspace))));
    let view = view.map_err(|error| Stop::Damaged(Reason::of(&error)))?;
    let content = content.lock().take().unwrap_or(Err(Stop::Contended));
    Ok((view, content?))
}

/// Corrects the counters of the tree with this tag by what was found at a cut.
fn correct(keyspace: &Keyspace, tag: u32, keys: i64, deadlines: i64) {
    // While this thread is between two standstills nobody exchanges or empties databases.
    if let Some(tree) = keyspace.databases.trees().find(|tree| tree.tag == tag) {
        keyspace.counters.correct(tree.db, keys, deadlines);
    }
}

/// All databases are empty, there are no named trees, and pages have been lost: everything but the catalog is garbage, also what only lost pages
/// led to, and no list that goes through them is followed any more. Runs in the barrier.
pub(super) fn abandon_all(keyspace: &Keyspace) {
    keyspace.garbage.forget();
    keyspace.blobs.slabs.forget();
    keyspace.pages.leaks.ask();
    keyspace.garbage.wake();
}
