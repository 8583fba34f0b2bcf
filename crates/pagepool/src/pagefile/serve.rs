//! Reading pages that keep coming: each is told of when it has come, whatever becomes of others.

use std::collections::{HashMap, VecDeque};
use std::io::IoSliceMut;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::entry::Entry;
use super::error::PageError;
use super::file::PageFile;
use super::table::Content;
use crate::device::{Bell, Bufs, DeviceError, Feed, Rest, Transfer};
use crate::exmap::Exmap;
use crate::{PageBytes, PageId};

/// Pages that are looked at together for those that are neighbours in the file (1 MB).
const GATHERED_PAGES: usize = 256;

/// Who wants pages, and hears of them; one thread's.
pub trait PageFeed<'b> {
    /// A page to be read, into memory that is page-aligned; `None`: none just now. It does not wait.
    fn next(&mut self) -> Option<(PageId, &'b mut PageBytes)>;

    /// A page has been read and verified, or why not. Its memory is not touched any more.
    fn end(&mut self, page: PageId, result: Result<(), PageError>);

    /// What to wait for. Asked when there was no next one.
    fn rest(&mut self) -> Rest;
}

impl PageFile {
    /// Reads the pages of `feed` as they come, each as [`PageFile::read_page_patiently`] does, until it is over.
    pub fn serve_reads<'b>(&self, bell: &Bell, feed: &mut dyn PageFeed<'b>) {
        let mut reads =
            Reads { file: self, feed, ready: VecDeque::new(), under_way: HashMap::new(), last_number: 0 };
        self.device.serve(bell, &mut reads);
    }

    /// Tells the device of the memory that chunks of pages are read into, as of [`crate::device::Device::lend`].
    pub fn lend(&self, (memory, byte_len): (NonNull<u8>, usize)) {
        self.device.lend(memory, byte_len);
    }

    /// The memory of a chunk is going to be given back.
    pub fn take_back(&self, chunk: u32) {
        self.device.take_back(chunk as usize);
    }

    /// That memory goes, all of it.
    pub fn end_loan(&self) {
        self.device.end_loan();
    }

    /// As of [`crate::device::Device::read_through`]. Pages that lie close together are read with one transfer only if nothing
    /// lies in between.
    pub fn read_through(&self, map: &Arc<Exmap>) -> Result<(), DeviceError> {
        self.reads_gaps.store(map.reader().is_none(), Ordering::Relaxed);
        self.device.read_through(map)
    }

    /// Threads that it pays to have in that at a time.
    pub fn stream_count(&self) -> usize {
        self.device.stream_count()
    }
}

type Wanted<'b> = (Entry, PageId, &'b mut PageBytes);

/// Pages of a feed as transfers of a device.
struct Reads<'r, 'b> {
    file: &'r PageFile,
    feed: &'r mut dyn PageFeed<'b>,
    /// By slot.
    ready: VecDeque<Wanted<'b>>,
    /// What each transfer reads, in order.
    under_way: HashMap<u64, Vec<(Entry, PageId)>>,
    last_number: u64,
}

impl<'b> Reads<'_, 'b> {
    /// Takes what is wanted now. What has no slot needs no transfer.
    fn gather(&mut self) {
        while self.ready.len() < GATHERED_PAGES {
            let Some((pid, page)) = self.feed.next() else { break };
            let entry = self.file.table.entry(Content::Newest, pid.0);
            match entry.slot() {
                Some(_) => self.ready.push_back((entry, pid, page)),
                None => self.feed.end(pid, self.file.read_page_patiently(pid, page)),
            }
        }
        self.ready.make_contiguous().sort_unstable_by_key(|(entry, ..)| entry.slot());
    }

    /// The first of those that are ready, with its neighbours.
    fn take_run(&mut self) -> Vec<Wanted<'b>> {
        let slot = |at: Option<&Wanted<'b>>| at.and_then(|(entry, ..)| entry.slot());
        let mut run: Vec<Wanted<'b>> = self.ready.pop_front().into_iter().collect();
        while let (Some(last), Some(next)) = (slot(run.last()), slot(self.ready.front())) {
            if last.0.checked_add(1) != Some(next.0) {
                break;
            }
            run.extend(self.ready.pop_front());
        }
        run
    }
}

impl<'b> Feed<'b> for Reads<'_, 'b> {
    fn next(&mut self) -> Option<(u64, Transfer<'b>)> {
        if self.ready.is_empty() {
            self.gather();
        }
        let run = self.take_run();
        let slot = run.first()?.0.slot()?;
        self.last_number += 1;
        self.under_way.insert(self.last_number, run.iter().map(|(entry, pid, _)| (*entry, *pid)).collect());
        let bufs = run.into_iter().map(|(_, _, page)| IoSliceMut::new(&mut page[..])).collect();
        Some((self.last_number, Transfer { offset: slot.offset(), bufs: Bufs::Read(bufs) }))
    }

    fn end(&mut self, number: u64, transfer: Transfer<'b>, result: Result<(), DeviceError>) {
        let wanted = self.under_way.remove(&number).expect("a transfer ends once");
        let Bufs::Read(bufs) = transfer.bufs else { unreachable!("pages are read") };
        for ((entry, pid), mut buf) in wanted.into_iter().zip(bufs) {
            let page: &mut PageBytes = (&mut buf[..]).try_into().expect("a buffer is a page");
            // Read again alone: to tell it from its neighbours, or because it has been moved.
            let is_good = result.is_ok() && crc32c::crc32c(page) == entry.crc32c();
            let read = if is_good { Ok(()) } else { self.file.read_page_patiently(pid, page) };
            self.feed.end(pid, read);
        }
    }

    fn rest(&mut self) -> Rest {
        self.feed.rest()
    }
}
