//! A page file without a server: what is wrong with it, and what can be had from it.

use std::path::Path;
use std::sync::Arc;

use stillframe_pagepool::device::{FileDevice, IoOptions, PageBuf};
use stillframe_pagepool::pagefile::{OpenOptions, PageError, PageFile, PageFileError, Recovered, UserHeader};
use stillframe_pagepool::PageId;

use crate::error::{OpenError, SaveError};
use crate::log::{LogHome, Place};
use crate::opening::LOG_DIR;
use crate::page::Page;
use crate::replay::check_log;
use crate::source::PageSource;
use crate::store::{catalog_of, needed_pages, place_of};
use crate::walk::{Lost, ViewEntry, Walk};
use crate::{DbId, DbStats};

/// Pages that are read at once.
const BATCH_PAGES: usize = 256;

/// The last checkpoint of a page file, opened to read; nothing on disk changes. A server that is at work on the file
/// keeps others off it.
pub struct Offline {
    file: Arc<PageFile>,
    recovered: Recovered,
    log_home: LogHome,
    /// Why an older checkpoint is read than the one that was saved last, if so.
    loss: Option<String>,
}

/// What a log has behind a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogContent {
    /// Where the checkpoint stands in it.
    pub from: Place,
    pub unit_count: u64,
    pub byte_count: u64,
    /// Of a unit at the end that is not whole.
    pub torn_byte_count: u64,
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
        let device = Arc::new(
            FileDevice::open_to_read(path, IoOptions::default())
                .map_err(|error| OpenError::PageFile(error.into()))?,
        );
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
        let (file, recovered) = result.map_err(OpenError::PageFile)?;
        let dir = path.parent().unwrap_or(Path::new(""));
        let log_home = LogHome::Dir(dir.join(LOG_DIR), IoOptions::default());
        Ok(Offline { file, recovered, log_home, loss })
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

    /// Reads the log that goes with the checkpoint to its end, and changes nothing; `None`: there is none, and the file is of a format
    /// that programs read which know no log.
    ///
    /// # Errors
    /// What is wrong with the log.
    pub fn check_log(&self) -> Option<Result<LogContent, OpenError>> {
        place_of(&self.recovered).map(|from| read_log(&self.log_home, from))
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

    /// Calls `f` for names and sources of the function libraries that can be read, by ascending names, and `lost` for what cannot.
    ///
    /// # Errors
    /// As of [`Offline::for_each`].
    pub fn for_each_library<E: From<SaveError>>(
        &self,
        f: impl FnMut(&str, &[u8]) -> Result<(), E>,
        mut lost: impl FnMut(Lost),
    ) -> Result<(), E> {
        match self.walk()? {
            Some(walk) => walk.for_each_library(f, Some(&mut lost)),
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

fn read_log(home: &LogHome, from: Place) -> Result<LogContent, OpenError> {
    let found = check_log(home, from)?;
    Ok(LogContent {
        from,
        unit_count: found.unit_count,
        byte_count: found.replayed_bytes,
        torn_byte_count: found.torn_bytes,
    })
}

impl PageSource for Offline {
    fn read_page(&self, pid: PageId, into: &mut Page) -> Result<(), SaveError> {
        // Devices want aligned memory.
        let mut page = Box::new(PageBuf::ZERO);
        self.file.read_page(pid, &mut page.0).map_err(SaveError::Page)?;
        into.copy_from_slice(&page.0);
        Ok(())
    }

    fn read_pages(&self, pages: &mut [(PageId, &mut PageBuf)]) -> Vec<Result<(), SaveError>> {
        let mut wanted: Vec<_> = pages.iter_mut().map(|(pid, page)| (*pid, &mut page.0)).collect();
        let errors = self.file.read_pages(&mut wanted);
        let of = |pid: PageId| errors.iter().find(|error| error.pid() == pid);
        let result = |pid| of(pid).map_or(Ok(()), |error| Err(SaveError::Page(error.clone())));
        pages.iter().map(|(pid, _)| result(*pid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stillframe_pagepool::PAGE_SIZE;
    use stillframe_testkit::TempDir;

    use super::*;
    use crate::{Deadline, NewValue, Options, Store};

    type Content = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

    /// Two checkpoints with these values, in databases 0 and 2. Returns the path of the file.
    fn page_file(dir: &Path, versions: &[u8]) -> std::path::PathBuf {
        let store = Store::open(dir, Options::default()).unwrap();
        let mut worker = store.nonblocking_worker().unwrap();
        for version in versions {
            for number in 0..300u32 {
                let (db, key) = (DbId(number % 2 * 2), format!("key-{number}"));
                let value = NewValue::Bytes { bytes: &value_of(number, *version), raw: true };
                worker.set(db, &worker.key(key.as_bytes()), value, Deadline::Clear).unwrap();
            }
            worker.idle(|| store.checkpoint()).unwrap();
        }
        dir.join("stillframe.pages")
    }

    fn value_of(number: u32, version: u8) -> Vec<u8> {
        let len_bytes = if number == 7 { 30_000 } else { 20 };
        [format!("{version}:{number}:").as_bytes(), &vec![version; len_bytes]].concat()
    }

    fn content_of(version: u8) -> Content {
        let entry =
            |number: u32| ((number % 2 * 2, format!("key-{number}").into_bytes()), value_of(number, version));
        (0..300).map(entry).collect()
    }

    fn read(offline: &Offline) -> (Content, Vec<String>) {
        let (mut content, mut lost) = (Content::new(), Vec::new());
        let take = |entry: ViewEntry<'_>| {
            content.insert(
                (entry.db.0, entry.key.to_vec()),
                entry.value.as_string().expect("a string").to_vec(),
            );
            Ok::<(), SaveError>(())
        };
        offline.for_each(take, |what| lost.push(what.to_string())).unwrap();
        (content, lost)
    }

    fn corrupt(path: &Path, slot: usize) {
        let mut image = std::fs::read(path).unwrap();
        image[slot * PAGE_SIZE + 1_000] ^= 1;
        std::fs::write(path, image).unwrap();
    }

    /// The last slot with these bytes.
    fn slot_with(path: &Path, bytes: &[u8]) -> usize {
        let image = std::fs::read(path).unwrap();
        let at = image.windows(bytes.len()).rposition(|window| window == bytes);
        at.expect("a page with them") / PAGE_SIZE
    }

    #[test]
    fn a_whole_file_is_read_whole_and_left_alone() {
        let dir = TempDir::new("offline");
        let path = page_file(dir.path(), &[1, 2]);
        let image = std::fs::read(&path).unwrap();
        let offline = Offline::open(&path, false).unwrap();
        assert_eq!((offline.loss(), offline.note()), (None, None));
        assert_eq!(read(&offline), (content_of(2), Vec::new()));
        assert_eq!((offline.database_count(), offline.db_stats(DbId(2)).key_count), (3, 150));
        let mut progress = Vec::new();
        let found = offline.check(|done, of| progress.push((done, of)));
        assert!(found.page_count > 10 && found.damage.is_empty(), "{found:?}");
        assert_eq!(progress.last(), Some(&(found.page_count, found.page_count)));
        drop(offline);
        assert!(std::fs::read(&path).unwrap() == image);
    }

    #[test]
    fn a_file_without_a_checkpoint_has_nothing_in_it() {
        let dir = TempDir::new("offline-new");
        let path = page_file(dir.path(), &[]);
        let offline = Offline::open(&path, false).unwrap();
        assert_eq!(read(&offline), (Content::new(), Vec::new()));
        assert_eq!((offline.database_count(), offline.check(|_, _| ()).page_count), (0, 0));
        let missing = Offline::open(&dir.path().join("none"), false).err().expect("there is no such file");
        assert!(missing.to_string().contains("none"), "{missing}");
    }

    /// A page of a value costs the value, a leaf its keys; both are told with their place.
    #[test]
    fn what_is_damaged_is_told_and_the_rest_is_read() {
        for (bytes, least, most) in [(vec![1u8; 4096], 1, 1), (b"1:100:".to_vec(), 5, 150)] {
            let dir = TempDir::new("offline-damage");
            let path = page_file(dir.path(), &[1]);
            let slot = slot_with(&path, &bytes);
            corrupt(&path, slot);
            let offline = Offline::open(&path, false).unwrap();
            let place = format!("(byte {})", slot * PAGE_SIZE);
            let damage = offline.check(|_, _| ()).damage;
            assert!(damage.len() == 1 && damage[0].contains(&place), "{damage:?}");
            let (found, lost) = read(&offline);
            assert!(lost.len() == 1 && lost[0].contains(&place), "{lost:?}");
            let whole = content_of(1);
            assert!(found.iter().all(|(key, value)| whole.get(key) == Some(value)));
            let missing = whole.len() - found.len();
            assert!((least..=most).contains(&missing), "{missing} keys are missing");
        }
    }

    /// The newest map is damaged: the checkpoint before is read by who asks for any, and the loss has words.
    #[test]
    fn an_older_checkpoint_is_read_only_on_request() {
        let dir = TempDir::new("offline-older");
        let path = page_file(dir.path(), &[1, 2]);
        let image = std::fs::read(&path).unwrap();
        let word = |place: usize, at: usize| {
            u64::from_le_bytes(image[place * PAGE_SIZE + at..][..8].try_into().unwrap())
        };
        let newest = usize::from(word(1, 16) > word(0, 16));
        corrupt(&path, word(newest, 24) as u32 as usize);
        let refused = Offline::open(&path, false).err().expect("what was saved last is lost").to_string();
        assert!(refused.contains("accept-loss-after-checkpoint"), "{refused}");
        let offline = Offline::open(&path, true).unwrap();
        assert_eq!(offline.checkpoint(), word(1 - newest, 16));
        assert!(offline.loss().is_some_and(|loss| loss.contains("lost")) && offline.note().is_none());
        assert_eq!(read(&offline), (content_of(1), Vec::new()));
        // A copy of the superblock costs nothing, and is told.
        std::fs::write(&path, &image).unwrap();
        drop(offline);
        corrupt(&path, newest);
        let offline = Offline::open(&path, false).unwrap();
        assert!(offline.loss().is_none() && offline.note().is_some());
        assert_eq!(read(&offline), (content_of(2), Vec::new()));
    }
}
