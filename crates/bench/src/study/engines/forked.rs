//! `fork`: the kernel copies the page table at the cut, and each page at the first write after it.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use stillframe_pagepool::ForkedWriter;

use crate::error::{BenchError, Context, Result};
use crate::pin;
use crate::procfs;
use crate::study::draw::Update;
use crate::study::engine::{store, Engine};
use crate::study::image_file::Replacing;
use crate::study::memory::Words;

/// Between two looks at the child.
const POLL: Duration = Duration::from_millis(1);
/// Between two looks at its memory, each of which is a walk of its page table: about 10 ms a GB, on the saver's core.
const MEMORY_POLL: Duration = Duration::from_millis(250);

pub struct Forked {
    words: Words,
    row_words: usize,
    file: Mutex<Replacing>,
    child: Mutex<Option<ForkedWriter>>,
    saver_cpus: Vec<usize>,
    child_bytes: AtomicU64,
}

impl Forked {
    /// Rows that take all of the words.
    pub fn new(words: Words, row_len: usize, dir: &Path, saver_cpus: &[usize]) -> Result<Forked> {
        Ok(Forked {
            words,
            row_words: row_len / 8,
            file: Mutex::new(Replacing::new(dir)?),
            child: Mutex::new(None),
            saver_cpus: saver_cpus.to_vec(),
            child_bytes: AtomicU64::new(0),
        })
    }

    fn file(&self) -> std::sync::MutexGuard<'_, Replacing> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for Forked {
    #[inline(always)]
    fn write<const WHOLE: bool>(&self, Update { row, word }: Update, value: u64) {
        let row = &self.words.as_ref()[row as usize * self.row_words..][..self.row_words];
        store::<WHOLE>(row, word, value);
    }

    fn cut(&self) -> Result<()> {
        let child = ForkedWriter::fork(self.words.as_ref(), self.file().next().as_fd())
            .context(|| "fork".to_owned())?;
        // It begins on the client's core, as any child does.
        if !self.saver_cpus.is_empty() {
            pin::pin_process(child.pid(), &self.saver_cpus);
        }
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok(())
    }

    fn access(&self) -> Result<()> {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut child = child.ok_or_else(|| BenchError::Failed("no child was forked".to_owned()))?;
        let mut looked = Instant::now();
        while !child.has_ended().context(|| "a forked child".to_owned())? {
            if looked.elapsed() >= MEMORY_POLL {
                // What only the child maps is what the client has had copied.
                self.child_bytes.fetch_max(procfs::private_bytes(child.pid()), Ordering::Relaxed);
                looked = Instant::now();
            }
            std::thread::sleep(POLL);
        }
        self.file().commit().map(drop).context(|| "commit an image".to_owned())
    }

    fn content(&self) -> Vec<u8> {
        self.words.as_ref().iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
    }

    fn image(&self) -> Result<Vec<u8>> {
        self.file().read()
    }

    fn image_bytes(&self) -> u64 {
        self.file().image_bytes()
    }

    fn memory_elsewhere_bytes(&self) -> u64 {
        self.child_bytes.load(Ordering::Relaxed)
    }
}
