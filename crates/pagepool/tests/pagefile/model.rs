//! A model of a page file's content, and a random workload for both.

use std::collections::BTreeMap;
use std::sync::Arc;

use stillframe_pagepool::device::{PageBuf, SimDevice};
use stillframe_pagepool::pagefile::{
    CheckpointWriter, CommitStats, OpenOptions, PageFile, PageFileError, Recovered, UserHeader, WrittenBack,
    USER_HEADER_BYTES,
};
use stillframe_pagepool::{PageBytes, PageId, PAGE_SIZE};

/// The second zone of page numbers.
pub const FAR: u32 = 1 << 28;

/// Page number to version of its content; version 0 is a page of zeros.
pub type Content = BTreeMap<u32, u64>;

/// What page `pid` holds in `version`.
pub fn page_of(pid: u32, version: u64) -> Box<PageBuf> {
    let mut page = Box::new(PageBuf::ZERO);
    if version != 0 {
        let seed = fastrand::Rng::with_seed(u64::from(pid) << 32 ^ version).u64(..);
        let words = page.0.chunks_exact_mut(8).zip(0u64..);
        words.for_each(|(word, at)| word.copy_from_slice(&seed.wrapping_add(at << 20).to_le_bytes()));
        page.0[..8].copy_from_slice(&version.to_le_bytes());
    }
    page
}

/// The version that a page of [`page_of`] says it is.
pub fn version_of(page: &PageBuf) -> u64 {
    u64::from_le_bytes(page.0[..8].try_into().unwrap())
}

/// The caller's header for a given content: its fingerprint, so that a header of another checkpoint is noticed.
pub fn header_of(content: &Content) -> UserHeader {
    let mut header = [0; USER_HEADER_BYTES];
    let sum = content.iter().fold(content.len() as u64, |sum, (pid, version)| {
        (sum ^ u64::from(*pid) ^ version << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
    });
    header[..8].copy_from_slice(&sum.to_le_bytes());
    header[USER_HEADER_BYTES - 1] = 0x5a;
    header
}

/// A random page number: dense or sparse, in both zones.
pub fn random_pid(rng: &mut fastrand::Rng, page_count: u32) -> u32 {
    let pid = 1 + rng.u32(..page_count);
    match rng.u8(..8) {
        0 => FAR + pid,
        1 => pid * 4099 % (FAR / 2),
        _ => pid,
    }
}

/// One random checkpoint: what it does to the content, applied to the writer batch by batch.
pub struct Change {
    pub writes: Vec<Vec<(u32, u64)>>,
    pub frees: Vec<(u32, u32)>,
    pub after: Content,
}

impl Change {
    /// Changes up to `change_count` of about `page_count` pages; `version` must be fresh.
    pub fn random(
        rng: &mut fastrand::Rng,
        before: &Content,
        page_count: u32,
        change_count: u32,
        version: u64,
    ) -> Change {
        let mut change = Change { writes: Vec::new(), frees: Vec::new(), after: before.clone() };
        for _ in 0..rng.u32(..4) {
            let (first, count) = (random_pid(rng, page_count), 1 + rng.u32(..20));
            change.frees.push((first, count));
            change.after.retain(|pid, _| !(first..first + count).contains(pid));
        }
        let mut left = rng.u32(..=change_count);
        while left > 0 {
            let mut batch = BTreeMap::new();
            for _ in 0..left.min(1 + rng.u32(..40)) {
                left -= 1;
                let version = if rng.u8(..10) == 0 { 0 } else { version };
                batch.insert(random_pid(rng, page_count), version);
            }
            change.after.extend(&batch);
            change.writes.push(batch.into_iter().collect());
        }
        change
    }

    /// Writes the change to `writer`.
    pub fn write(&self, writer: &CheckpointWriter) -> Result<(), PageFileError> {
        for (first, count) in &self.frees {
            writer.free_pages(PageId(*first), *count)?;
        }
        self.writes.iter().try_for_each(|batch| write_batch(writer, batch))
    }

    /// Does the whole checkpoint.
    pub fn run(&self, file: &Arc<PageFile>) -> Result<CommitStats, PageFileError> {
        let writer = file.begin_checkpoint()?;
        self.write(&writer)?;
        writer.commit(header_of(&self.after))
    }
}

/// Writes pages, given as number and version.
pub fn write_batch(writer: &CheckpointWriter, batch: &[(u32, u64)]) -> Result<(), PageFileError> {
    let pages: Vec<_> = batch.iter().map(|(pid, version)| (*pid, page_of(*pid, *version))).collect();
    let refs: Vec<(PageId, &[u8; PAGE_SIZE])> =
        pages.iter().map(|(pid, page)| (PageId(*pid), &page.0)).collect();
    writer.write_pages(&refs)
}

/// Writes back pages, given as number and version.
pub fn write_back(file: &PageFile, batch: &[(u32, u64)]) -> Result<Vec<WrittenBack>, PageFileError> {
    let pages: Vec<_> = batch.iter().map(|(pid, version)| (*pid, page_of(*pid, *version))).collect();
    let refs: Vec<(PageId, &PageBytes)> = pages.iter().map(|(pid, page)| (PageId(*pid), &page.0)).collect();
    file.write_back(&refs)
}

/// A checkpoint that writes `pages` in one batch.
pub fn checkpoint(file: &Arc<PageFile>, content: &mut Content, pages: &[(u32, u64)]) -> CommitStats {
    let writer = file.begin_checkpoint().unwrap();
    write_batch(&writer, pages).unwrap();
    content.extend(pages.iter().copied());
    writer.commit(header_of(content)).unwrap()
}

/// Opens the page file on `device`.
pub fn open(device: &Arc<SimDevice>) -> Result<(Arc<PageFile>, Recovered), PageFileError> {
    PageFile::create_or_open(device.clone())
}

/// The same, with the loss accepted of what came after a checkpoint.
pub fn open_accepting(
    device: &Arc<SimDevice>,
    accept_loss_after: u64,
) -> Result<(Arc<PageFile>, Recovered), PageFileError> {
    let options = OpenOptions { accept_loss_after: Some(accept_loss_after), ..OpenOptions::default() };
    PageFile::open(device.clone(), &options)
}

/// The mapped pages.
pub fn mapped(file: &PageFile) -> Vec<u32> {
    let mut pids = Vec::new();
    file.for_each_mapped(|first, count| pids.extend(first.0..first.0 + count));
    pids
}

/// Fails unless the file has exactly `content`, read page by page and in bulk.
pub fn check_content(file: &PageFile, content: &Content) {
    let pids: Vec<u32> = content.keys().copied().collect();
    assert_eq!(mapped(file), pids, "mapped pages");
    let mut page = Box::new(PageBuf::ZERO);
    for (pid, version) in content.iter().take(50) {
        file.read_page(PageId(*pid), &mut page.0).unwrap();
        assert!(page.0 == page_of(*pid, *version).0, "page {pid} is not version {version}");
    }
    let mut bufs = vec![PageBuf([0xee; PAGE_SIZE]); pids.len()];
    let mut reads: Vec<_> = pids.iter().zip(&mut bufs).map(|(pid, buf)| (PageId(*pid), &mut buf.0)).collect();
    let errors = file.read_pages(&mut reads);
    assert!(errors.is_empty(), "{errors:?}");
    for (pid, page) in reads {
        assert!(
            *page == page_of(pid.0, content[&pid.0]).0,
            "page {} is not version {}",
            pid.0,
            content[&pid.0]
        );
    }
}

/// Whether the file has `content`, by header and mapped pages; then [`check_content`] holds as well.
pub fn has_content(file: &PageFile, recovered: &Recovered, content: &Content) -> bool {
    let header = if content.is_empty() && recovered.generation == 1 {
        [0; USER_HEADER_BYTES]
    } else {
        header_of(content)
    };
    recovered.user_header == header && mapped(file) == content.keys().copied().collect::<Vec<_>>()
}

/// Fails unless every slot of the file is accounted for exactly once; versions are not kept where they were.
pub fn check_accounting(file: &PageFile) {
    let stats = file.stats();
    let sum = 3
        + stats.live_slots
        + stats.previous_slots
        + stats.pending_slots
        + stats.spilled_slots
        + stats.located_slots
        + stats.free_slots;
    assert_eq!(sum, stats.file_bytes / PAGE_SIZE as u64, "{stats:?}");
}
