//! The catalog: an object of 14 pages that says where everything else is. Workers keep the same in memory; it is
//! written at cuts only.
//!
//! ```text
//! page 0       0 kind u8 | 8 hash seed 2 x u64 | 24 next_tag u32 | 28 database_count u32 | 32 has_garbage u32
//!              36 may_leak u32: pages may be in use to which nothing leads
//!              40 list of the named trees: page u32 | page_count u32; with one the kind is another, and
//!              another again with function libraries
//!              48 libraries u32: with streams, which have a kind of their own, whether there are some
//!              64 heads of the lists of slabs with free slots, u32 for each class
//! pages 1-11   databases, 32 bytes each: root u32 | tag u32 | key_count u64 | deadline_count u64 | reserved u64
//! pages 12-13  the newest of the garbage that has arrived and of what has been put off, see `discards`
//! ```

use stillframe_pagepool::{PageId, Pool, PoolError, PAGE_SIZE};

use crate::blobs::{Discards, GarbageLists, CLASS_COUNT};
use crate::named::NamesPlace;
use crate::page::{
    get_u32, get_u64, put_u32, put_u64, Page, KIND_CATALOG, KIND_CATALOG_WITH_LIBRARIES,
    KIND_CATALOG_WITH_NAMES, KIND_CATALOG_WITH_STREAMS,
};
use crate::stop::Stop;
use crate::DbStats;

pub(crate) const CATALOG_PAGE_COUNT: u32 = 14;
const DB_PAGE: usize = 1;
const DB_BYTES: usize = 32;
const DBS_IN_PAGE: usize = PAGE_SIZE / DB_BYTES;
const ARRIVED_PAGE: usize = 12;
const PUT_OFF_PAGE: usize = 13;
const LIBRARIES: usize = 48;
const SLAB_HEADS: usize = 64;

/// Databases that a catalog has room for.
pub(crate) const CATALOG_DB_MAX: usize = (ARRIVED_PAGE - DB_PAGE) * DBS_IN_PAGE;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Database {
    pub root: u32,
    pub tag: u32,
    pub key_count: u64,
    pub deadline_count: u64,
}

impl Database {
    pub fn stats(&self) -> DbStats {
        DbStats { key_count: self.key_count, deadline_count: self.deadline_count }
    }
}

/// The catalog's content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Catalog {
    pub hash_seed: (u64, u64),
    pub next_tag: u32,
    pub slab_heads: Vec<u32>,
    pub databases: Vec<Database>,
    pub garbage: GarbageLists,
    /// Pages may be in use to which nothing leads, because others are lost.
    pub may_leak: bool,
    /// The list of the named trees, if there are any.
    pub names: Option<NamesPlace>,
    /// Function libraries are among them.
    pub has_libraries: bool,
    /// Some keys have streams, or may.
    pub has_streams: bool,
}

/// Allocates the catalog's pages, all zero.
pub(super) fn allocate(pool: &Pool) -> Result<PageId, PoolError> {
    let mut guard = pool.allocate_object(CATALOG_PAGE_COUNT, CATALOG_PAGE_COUNT)?;
    for index in 0..CATALOG_PAGE_COUNT {
        if let Ok(page) = guard.object_page_mut(index) {
            page.fill(0);
        }
    }
    Ok(guard.id())
}

impl Catalog {
    pub fn empty(database_count: usize) -> Catalog {
        Catalog {
            hash_seed: (fastrand::u64(..), fastrand::u64(..)),
            next_tag: 1,
            slab_heads: vec![0; CLASS_COUNT],
            databases: vec![Database::default(); database_count.clamp(1, CATALOG_DB_MAX)],
            garbage: GarbageLists::default(),
            may_leak: false,
            names: None,
            has_libraries: false,
            has_streams: false,
        }
    }

    /// Reads the catalog whose pages `page_at` gives; at least `database_count` databases.
    pub fn decode<'p>(
        database_count: usize,
        mut page_at: impl FnMut(usize) -> Result<&'p Page, Stop>,
    ) -> Result<Catalog, Stop> {
        let head = page_at(0)?;
        let stored_count = get_u32(head, 28) as usize;
        let has_streams = head[0] == KIND_CATALOG_WITH_STREAMS;
        let has_libraries = match has_streams {
            true => get_u32(head, LIBRARIES) != 0,
            false => head[0] == KIND_CATALOG_WITH_LIBRARIES,
        };
        let may_have_none = has_streams && !has_libraries && get_u32(head, 40) == 0;
        let has_names = has_libraries || has_streams && !may_have_none || head[0] == KIND_CATALOG_WITH_NAMES;
        if !(has_names || may_have_none || head[0] == KIND_CATALOG) || stored_count > CATALOG_DB_MAX {
            return Err(Stop::Damaged("the catalog page is not a catalog".into()));
        }
        let mut catalog = Catalog::empty(database_count.max(stored_count));
        catalog.hash_seed = (get_u64(head, 8), get_u64(head, 16));
        catalog.next_tag = get_u32(head, 24);
        catalog.may_leak = get_u32(head, 36) != 0;
        catalog.has_libraries = has_libraries;
        catalog.has_streams = has_streams;
        if has_names {
            let wrong = || Stop::Damaged("the catalog's list of named trees is nowhere".into());
            catalog.names = Some(NamesPlace::new(get_u32(head, 40), get_u32(head, 44)).ok_or_else(wrong)?);
        }
        for (class, slab_head) in catalog.slab_heads.iter_mut().enumerate() {
            *slab_head = get_u32(head, SLAB_HEADS + 4 * class);
        }
        for db in 0..stored_count {
            let page = page_at(DB_PAGE + db / DBS_IN_PAGE)?;
            let at = db % DBS_IN_PAGE * DB_BYTES;
            catalog.databases[db] = Database {
                root: get_u32(page, at),
                tag: get_u32(page, at + 4),
                key_count: get_u64(page, at + 8),
                deadline_count: get_u64(page, at + 16),
            };
        }
        if get_u32(head, 32) != 0 {
            let mut list = |index| {
                let wrong = || Stop::Damaged("the catalog's page of garbage is none".into());
                Discards::from_page(page_at(index)?).ok_or_else(wrong)
            };
            catalog.garbage = GarbageLists::new(list(ARRIVED_PAGE)?, list(PUT_OFF_PAGE)?);
        }
        Ok(catalog)
    }

    /// Reads the catalog of a pool.
    pub fn read(pool: &Pool, pid: PageId, database_count: usize) -> Result<Catalog, Stop> {
        let guard = pool.shared(pid)?;
        Catalog::decode(database_count, |index| Ok(guard.object_page(index as u32)?))
    }

    fn encode_page(&self, index: usize) -> Page {
        match index {
            0 => self.encode_head(),
            ARRIVED_PAGE => self.garbage.arrived.to_page(),
            PUT_OFF_PAGE => self.garbage.put_off.to_page(),
            _ => self.encode_databases(index - DB_PAGE),
        }
    }

    fn encode_head(&self) -> Page {
        let mut page = [0; PAGE_SIZE];
        page[0] = KIND_CATALOG;
        if let Some(names) = self.names {
            // A version that knows no named trees refuses it, instead of taking their pages for leaks; and one that knows no
            // libraries, instead of serving without them.
            page[0] = if self.has_libraries { KIND_CATALOG_WITH_LIBRARIES } else { KIND_CATALOG_WITH_NAMES };
            put_u32(&mut page, 40, names.pid.0);
            put_u32(&mut page, 44, names.page_count);
        }
        if self.has_streams {
            page[0] = KIND_CATALOG_WITH_STREAMS;
            put_u32(&mut page, LIBRARIES, u32::from(self.has_libraries));
        }
        put_u64(&mut page, 8, self.hash_seed.0);
        put_u64(&mut page, 16, self.hash_seed.1);
        put_u32(&mut page, 24, self.next_tag);
        put_u32(&mut page, 28, self.databases.len() as u32);
        put_u32(&mut page, 32, u32::from(!self.garbage.is_empty()));
        put_u32(&mut page, 36, u32::from(self.may_leak));
        for (class, head) in self.slab_heads.iter().enumerate() {
            put_u32(&mut page, SLAB_HEADS + 4 * class, *head);
        }
        page
    }

    fn encode_databases(&self, page_number: usize) -> Page {
        let mut page = [0; PAGE_SIZE];
        let databases = self.databases.iter().skip(page_number * DBS_IN_PAGE);
        for (db, at) in databases.zip((0..PAGE_SIZE).step_by(DB_BYTES)) {
            put_u32(&mut page, at, db.root);
            put_u32(&mut page, at + 4, db.tag);
            put_u64(&mut page, at + 8, db.key_count);
            put_u64(&mut page, at + 16, db.deadline_count);
        }
        page
    }

    /// Writes it, unchanged pages too: so no two checkpoints share a page of it, and damage to one leaves the other.
    /// Runs in the barrier.
    ///
    /// # Errors
    /// A page of the catalog cannot be had; some may be written then, and are again next time.
    pub fn write(&self, pool: &Pool, pid: PageId) -> Result<(), Stop> {
        let mut guard = pool.exclusive(pid)?;
        let db_pages = self.databases.len().div_ceil(DBS_IN_PAGE);
        let garbage_pages = if self.garbage.is_empty() { 0..0 } else { ARRIVED_PAGE..PUT_OFF_PAGE + 1 };
        for index in (0..=db_pages).chain(garbage_pages) {
            *guard.object_page_mut(index as u32)? = self.encode_page(index);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillframe_pagepool::{Layout, PoolOptions};

    use super::*;
    use crate::blobs::{BlobPlace, Discarded, PAGE_ENTRIES};

    #[test]
    fn a_catalog_that_cannot_be_written_is_an_error() {
        let options = PoolOptions { layout: Layout::TINY, ..PoolOptions::default() };
        let pool = Pool::in_memory(&options).unwrap();
        let pid = allocate(&pool).unwrap();
        pool.free(pool.exclusive(pid).unwrap(), CATALOG_PAGE_COUNT);
        assert!(Catalog::empty(16).write(&pool, pid).is_err());
    }

    #[test]
    fn a_catalog_comes_back_as_it_was() {
        let options = PoolOptions { layout: Layout::TINY, ..PoolOptions::default() };
        let pool = Pool::in_memory(&options).unwrap();
        let pid = allocate(&pool).unwrap();
        let mut catalog = Catalog::empty(300);
        catalog.next_tag = 77;
        catalog.may_leak = true;
        catalog.names = NamesPlace::new(123, 4);
        catalog.has_libraries = true;
        catalog.slab_heads[CLASS_COUNT - 1] = 12;
        for (i, db) in (0u64..).zip(&mut catalog.databases) {
            *db = Database { root: i as u32, tag: 9, key_count: i << 40, deadline_count: i };
        }
        catalog.garbage.arrived.newest = vec![
            Discarded::Tree { root: PageId(3) },
            Discarded::Blob { pid: PageId(4), place: BlobPlace::Object { page_count: 100 } },
            Discarded::Blob { pid: PageId(5), place: BlobPlace::Slab { class: 3, slot: 200 } },
        ];
        catalog.garbage.put_off.newest = vec![Discarded::Tree { root: PageId(8) }; PAGE_ENTRIES];
        catalog.garbage.put_off.older = 99;
        catalog.write(&pool, pid).unwrap();
        assert_eq!(Catalog::read(&pool, pid, 16).unwrap(), catalog);
        for (names, has_libraries) in
            [(NamesPlace::new(123, 4), true), (NamesPlace::new(123, 4), false), (None, false)]
        {
            for has_streams in [true, false] {
                let other = Catalog { names, has_libraries, has_streams, ..catalog.clone() };
                other.write(&pool, pid).unwrap();
                assert_eq!(Catalog::read(&pool, pid, 16).unwrap(), other);
            }
        }
        catalog.write(&pool, pid).unwrap();
        assert_eq!(Catalog::read(&pool, pid, 400).unwrap().databases.len(), 400);
    }
}
