//! Walking all entries through copies of pages, as a view gives them.

use std::cell::RefCell;

use stillframe_pagepool::{PageId, PAGE_SIZE};

use crate::keyspace::{Catalog, Stop, CATALOG_PAGE_COUNT};
use crate::page::inner::Words;
use crate::page::leaf::Leaf;
use crate::page::record::{Blob, Place, Record, RecordKey, RecordValue};
use crate::page::slab::Class;
use crate::page::Page;
use crate::store::{SaveError, ViewEntry};
use crate::value::{PageRun, Repr};
use crate::{DbId, DbStats, StrRef};

/// Deepest tree that is believed: five levels hold 10^14 records.
const LEVEL_MAX: u8 = 16;

/// Where pages come from.
pub(crate) trait PageSource {
    /// Copies a page.
    fn read_page(&self, pid: PageId, into: &mut Page) -> Result<(), SaveError>;
}

/// A blob in a page source.
struct SourceRun<'a, S> {
    source: &'a S,
    pid: PageId,
    /// The page that was read last, and its index.
    page: RefCell<(Option<u32>, Box<Page>)>,
    failed: RefCell<Option<SaveError>>,
}

impl<S: PageSource> PageRun for SourceRun<'_, S> {
    fn with_page(&self, index: u32, f: &mut dyn FnMut(&Page)) -> bool {
        let mut page = self.page.borrow_mut();
        if page.0 != Some(index) {
            page.0 = None;
            if let Err(error) = self.source.read_page(PageId(self.pid.0 + index), &mut page.1) {
                self.failed.borrow_mut().get_or_insert(error);
                return false;
            }
            page.0 = Some(index);
        }
        f(&page.1);
        true
    }
}

fn blob_offset(blob: &Blob) -> u64 {
    match blob.place {
        Place::Slab { class, slot } => Class(class).slot_offset(slot) as u64,
        Place::Object { .. } => 0,
    }
}

fn damaged(pid: PageId, what: &str) -> SaveError {
    SaveError::Io(format!("page {}: {what} was expected", pid.0))
}

/// A catalog and the entries below it.
pub(crate) struct Walk<'a, S> {
    source: &'a S,
    catalog: Catalog,
}

impl<'a, S: PageSource> Walk<'a, S> {
    pub fn new(source: &'a S, catalog_pid: PageId) -> Result<Walk<'a, S>, SaveError> {
        let mut pages = vec![[0; PAGE_SIZE]; CATALOG_PAGE_COUNT as usize];
        for (index, page) in (0..).zip(&mut pages) {
            source.read_page(PageId(catalog_pid.0 + index), page)?;
        }
        let catalog = Catalog::decode(1, |index| Ok(&pages[index])).map_err(|stop| match stop {
            Stop::Damaged(text) => SaveError::Io(text),
            other => SaveError::Io(format!("the catalog cannot be read: {other:?}")),
        })?;
        Ok(Walk { source, catalog })
    }

    pub fn db_stats(&self, db: DbId) -> DbStats {
        self.catalog.databases.get(db.0 as usize).map_or(DbStats::default(), |database| DbStats {
            key_count: database.key_count,
            deadline_count: database.deadline_count,
        })
    }

    /// Calls `f` with each entry, database by database.
    pub fn for_each<E: From<SaveError>>(
        &self,
        mut f: impl FnMut(ViewEntry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (number, database) in (0..).zip(&self.catalog.databases) {
            if database.root != 0 {
                let root = PageId(database.root);
                self.node(DbId(number), database.tag, root, LEVEL_MAX, &mut f)?;
            }
        }
        Ok(())
    }

    fn node<E: From<SaveError>>(
        &self,
        db: DbId,
        tag: u32,
        pid: PageId,
        level_max: u8,
        f: &mut impl FnMut(ViewEntry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut page = Box::new([0; PAGE_SIZE]);
        self.source.read_page(pid, &mut page)?;
        let level = page.level();
        if !page.is_inner(tag) || level == 0 || level > level_max {
            return Err(damaged(pid, "an inner node").into());
        }
        for index in 0..page.child_count() {
            let child = PageId(page.child(index));
            if level > 1 {
                self.node(db, tag, child, level - 1, f)?;
            } else {
                self.leaves(db, tag, child, f)?;
            }
        }
        Ok(())
    }

    fn leaves<E: From<SaveError>>(
        &self,
        db: DbId,
        tag: u32,
        mut pid: PageId,
        f: &mut impl FnMut(ViewEntry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut page = [0; PAGE_SIZE];
        while pid.0 != 0 {
            self.source.read_page(pid, &mut page)?;
            let leaf = Leaf::new(&page).filter(|leaf| leaf.tag() == tag);
            let Some(leaf) = leaf else { return Err(damaged(pid, "a leaf").into()) };
            for slot in 0..leaf.count() {
                let Some(record) = leaf.record(slot) else { return Err(damaged(pid, "a record").into()) };
                self.entry(db, &record, f)?;
            }
            pid = PageId(leaf.chain());
        }
        Ok(())
    }

    fn entry<E: From<SaveError>>(
        &self,
        db: DbId,
        record: &Record<'_>,
        f: &mut impl FnMut(ViewEntry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let long_key;
        let key = match record.key {
            RecordKey::Inline(key) => key,
            RecordKey::Out { blob, .. } => {
                let run = self.run(&blob);
                long_key = as_value(&run, &blob, true).to_vec();
                run.check()?;
                &long_key
            }
        };
        let deadline = record.deadline;
        let inline = |repr| ViewEntry { db, key, value: StrRef { repr, raw: record.raw }, deadline };
        match record.value {
            RecordValue::Int(value) => f(inline(Repr::Int(value))),
            RecordValue::Bytes(bytes) => f(inline(Repr::Bytes(bytes))),
            RecordValue::Blob(blob) => {
                let run = self.run(&blob);
                let result = f(ViewEntry { db, key, value: as_value(&run, &blob, record.raw), deadline });
                run.check()?;
                result
            }
        }
    }

    fn run(&self, blob: &Blob) -> SourceRun<'a, S> {
        SourceRun {
            source: self.source,
            pid: blob.pid,
            page: RefCell::new((None, Box::new([0; PAGE_SIZE]))),
            failed: RefCell::new(None),
        }
    }
}

impl<S> SourceRun<'_, S> {
    fn check(&self) -> Result<(), SaveError> {
        match self.failed.borrow_mut().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

fn as_value<'r, S: PageSource>(run: &'r SourceRun<'_, S>, blob: &Blob, raw: bool) -> StrRef<'r> {
    let repr = Repr::Pages { run, offset: blob_offset(blob), len_bytes: u64::from(blob.len_bytes) };
    StrRef { repr, raw }
}
