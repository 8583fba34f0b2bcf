//! A read-only picture of a store at a cut.

use std::time::Duration;

use stillframe_pagepool::device::PageBuf;
use stillframe_pagepool::PageId;

use crate::error::SaveError;
use crate::here::{check_outside, StoreNumber};
use crate::page::Page;
use crate::rdb::Cut;
use crate::source::PageSource;
use crate::walk::{Lost, ViewEntry, Walk};
use crate::{DbId, DbStats, Key};

struct Picture(stillframe_pagepool::View);

impl PageSource for Picture {
    fn read_page(&self, pid: PageId, into: &mut Page) -> Result<(), SaveError> {
        Ok(self.0.read_page(pid, into)?)
    }

    fn read_pages(&self, pages: &mut [(PageId, &mut PageBuf)]) -> Vec<Result<(), SaveError>> {
        self.0.read_pages(pages).into_iter().map(|result| result.map_err(SaveError::from)).collect()
    }
}

/// A read-only picture of the store at a cut.
pub struct View {
    store: StoreNumber,
    picture: Picture,
    catalog: PageId,
    barrier_wait: Duration,
    cut: Option<Cut>,
}

impl View {
    pub(crate) fn new(
        store: StoreNumber,
        pages: stillframe_pagepool::View,
        catalog: PageId,
        barrier_wait: Duration,
        cut: Option<Cut>,
    ) -> Self {
        View { store, picture: Picture(pages), catalog, barrier_wait, cut }
    }

    /// Which state of the store it shows.
    pub fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// Calls `f` for each entry, database by database. Expired entries are included (their deadline says so).
    /// Values over a page come in several chunks ([`StrRef::chunks`](crate::StrRef::chunks)).
    ///
    /// # Errors
    /// Those of `f`, or a damaged page; [`SaveError::Busy`] in a closure that an operation of this thread calls.
    pub fn for_each<E: From<SaveError>>(
        &self,
        f: impl FnMut(ViewEntry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.walk()?.for_each(f)
    }

    /// The same, past pages that cannot be read: `lost` is told what is left out because of them.
    ///
    /// # Errors
    /// Those of `f`; the catalog cannot be read.
    pub fn for_each_readable<E: From<SaveError>>(
        &self,
        f: impl FnMut(ViewEntry<'_>) -> Result<(), E>,
        mut lost: impl FnMut(Lost),
    ) -> Result<(), E> {
        self.walk()?.for_each_readable(f, &mut lost)
    }

    /// Gives `f` names and sources of the function libraries, by ascending names.
    ///
    /// # Errors
    /// As of [`View::for_each`].
    pub fn for_each_library<E: From<SaveError>>(
        &self,
        f: impl FnMut(&str, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.walk()?.for_each_library(f, None)
    }

    /// The same, past what cannot be read: `lost` is told of it.
    ///
    /// # Errors
    /// As of [`View::for_each_readable`].
    pub fn for_each_readable_library<E: From<SaveError>>(
        &self,
        f: impl FnMut(&str, &[u8]) -> Result<(), E>,
        mut lost: impl FnMut(Lost),
    ) -> Result<(), E> {
        self.walk()?.for_each_library(f, Some(&mut lost))
    }

    /// Gives `f` the entry of one key of that store.
    ///
    /// # Errors
    /// A page that cannot be read, before `f` is called. The view is one of another store.
    pub(crate) fn with_entry<R>(
        &self,
        store: StoreNumber,
        db: DbId,
        key: &Key<'_>,
        f: impl FnOnce(Option<ViewEntry<'_>>) -> R,
    ) -> Result<R, SaveError> {
        if self.store != store {
            return Err(SaveError::OtherStore);
        }
        self.walk()?.with_entry(db, key, f)
    }

    /// # Errors
    /// The catalog cannot be read. [`SaveError::Busy`]: what is read may wait for a page that this thread's operation holds.
    fn walk(&self) -> Result<Walk<'_, Picture>, SaveError> {
        check_outside(self.store)?;
        Walk::new(&self.picture, self.catalog)
    }

    /// How long the cut waited for the workers.
    pub fn barrier_wait(&self) -> Duration {
        self.barrier_wait
    }

    /// Counters of each database at the cut.
    pub fn db_stats(&self, db: DbId) -> DbStats {
        Walk::new(&self.picture, self.catalog).map(|walk| walk.db_stats(db)).unwrap_or_default()
    }
}
