//! A page file without a server: what is wrong with it, and what can be had from it.

use std::path::Path;
use std::sync::Arc;

use stillframe_pagepool::device::FileDevice;
use stillframe_pagepool::pagefile::{
    OpenOptions, PageBuf, PageError, PageFile, PageFileError, Recovered, UserHeader,
};
use stillframe_pagepool::PageId;

use crate::page::Page;
use crate::store::{catalog_of, needed_pages, SaveError, ViewEntry};
use crate::walk::{Lost, PageSource, Walk};
use crate::{DbId, DbStats, OpenError};

/// Pages that are read at once.
const BATCH_PAGES: usize = 256;

/// The last checkpoint of a page file, opened to read; nothing on disk changes. A server that is at work on the file
/// keeps others off it.
pub struct Offline {
    file: Arc<PageFile>,
    recovered: Recovered,
    /// Why an older checkpoint is read than the one that was saved last, if so.
    loss: Option<String>,
}

/// What a check of all pages found.
#[derive(Clone, Default, Debug)]
pub struct Integrity {
    pub page_count: u64,
    /// What is wrong with each page that cannot be read.
    pub damage: Vec<String>,
}

impl Offline {
    /// Opens the page file at `path`. With `any` the newest checkpoint that loads, also if a later one was saved; see
    /// [`Offline::loss`].
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn open(path: &Path, any: bool) -> Result<Offline, OpenError> {
        let damaged = |error: PageFileError| OpenError::Damaged(error.to_string());
        let device = Arc::new(FileDevice::open_to_read(path).map_err(|error| damaged(error.into()))?);
        let options = OpenOptions { needed: needed_pages, is_read_only: true, ..OpenOptions::default() };
        let (result, loss) = match PageFile::open(device.clone(), &options) {
            Err(PageFileError::WouldLose { cause, generation, taken }) if any => {
                let loss = format!(
                    "{cause}. Checkpoint {generation} of {taken} is read instead: what was saved after it is lost"
                );
                let options = OpenOptions { accept_loss_after: Some(generation), ..options };
                (PageFile::open(device, &options), Some(loss))
            }
            result => (result, None),
        };
        let (file, recovered) = result.map_err(damaged)?;
        Ok(Offline { file, recovered, loss })
    }

    /// What was saved and is not in the checkpoint that is read, if anything.
    pub fn loss(&self) -> Option<&str> {
        self.loss.as_deref()
    }

    /// What is wrong with the copies of the superblock or with the checkpoint before, if anything. It costs no data.
    pub fn note(&self) -> Option<String> {
        let damage = self.recovered.damage.as_ref().filter(|_| self.loss.is_none());
        damage.map(ToString::to_string)
    }

    /// Number of the checkpoint.
    pub fn checkpoint(&self) -> u64 {
        self.recovered.generation
    }

    /// Reads every page and compares it with its checksum; calls `progress` now and then with the pages read, and of how
    /// many.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Integrity {
        let mut pages = Vec::new();
        self.file.for_each_mapped(|first, count| pages.extend((first.0..first.0 + count).map(PageId)));
        let mut found = Integrity { page_count: pages.len() as u64, damage: Vec::new() };
        let mut buffers = vec![PageBuf::ZERO; BATCH_PAGES];
        for (number, batch) in (0u64..).zip(pages.chunks(BATCH_PAGES)) {
            progress(number * BATCH_PAGES as u64, found.page_count);
            let mut reads: Vec<_> =
                batch.iter().zip(&mut buffers).map(|(page, buffer)| (*page, &mut buffer.0)).collect();
            found.damage.extend(self.file.read_pages(&mut reads).iter().map(PageError::to_string));
        }
        progress(found.page_count, found.page_count);
        found
    }

    /// Calls `f` for each entry that can be read, database by database, and `lost` for what cannot.
    ///
    /// # Errors
    /// Those of `f`; the catalog cannot be read.
    pub fn for_each<E: From<SaveError>>(
        &self,
        f: impl FnMut(ViewEntry<'_>) -> Result<(), E>,
        mut lost: impl FnMut(Lost),
    ) -> Result<(), E> {
        match self.walk()? {
            Some(walk) => walk.for_each_readable(f, &mut lost),
            None => Ok(()),
        }
    }

    /// Counters of a database, those of keys that cannot be read included.
    pub fn db_stats(&self, db: DbId) -> DbStats {
        self.walk().ok().flatten().map(|walk| walk.db_stats(db)).unwrap_or_default()
    }

    /// Databases that have had a key.
    pub fn database_count(&self) -> u32 {
        self.walk().ok().flatten().map_or(0, |walk| walk.database_count())
    }

    /// `None` for a file without a checkpoint.
    fn walk(&self) -> Result<Option<Walk<'_, Offline>>, SaveError> {
        let header: &UserHeader = &self.recovered.user_header;
        match self.recovered.page_count {
            0 => Ok(None),
            _ => Walk::new(self, catalog_of(header)).map(Some),
        }
    }
}

impl PageSource for Offline {
    fn read_page(&self, pid: PageId, into: &mut Page) -> Result<(), SaveError> {
        // Devices want aligned memory.
        let mut page = Box::new(PageBuf::ZERO);
        self.file.read_page(pid, &mut page.0).map_err(|error| SaveError::Io(error.to_string()))?;
        into.copy_from_slice(&page.0);
        Ok(())
    }
}
