//! The files of a log: which are segments, which wait to be, which may go.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use stillframe_pagepool::device::{Device, DeviceError, Shelf, ShelfNumber, SyncMethod};
use stillframe_pagepool::{sched, PAGE_SIZE};

use crate::bytes::AlignedBytes;
use crate::error::JournalError;
use crate::names::{Place, SegmentNumber};

/// Spares that are kept ready.
const SPARES: usize = 2;
/// Free files that are kept beside them: about what one checkpoint sets free, so that in the long run no file is made anew.
const KEPT_FREE: usize = 4;
/// Zeros are written in pieces of so many bytes.
const ZEROS_BYTES: usize = 128 << 10;

/// What a file was found to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A segment of the log, to be kept until it is released.
    Segment(SegmentNumber),
    /// Nothing of the log that anybody needs.
    Free,
    /// Of another log, or nobody knows of what: kept until the next release.
    Other,
}

/// The files, by what they are.
///
/// ```text
///   nothing ── create ──┐                                   release
///                       ├──▶ SPARE ── take ──▶ SEGMENT ────────────▶ FREE ── remove ──▶ nothing
///   FREE ── renumber ───┘                      OTHER ── release ──▶ DOOMED ── remove ──▶ nothing
///   SPARE ── give way ──▶ nothing
/// ```
pub struct Files {
    shelf: Arc<dyn Shelf>,
    segment_bytes: u64,
    size_limit_bytes: Option<u64>,
    state: Mutex<State>,
    changed: Condvar,
    /// The segment that is written to.
    current: AtomicU32,
    lacks_space_to_write: AtomicBool,
}

#[derive(Default)]
struct State {
    segments: BTreeMap<SegmentNumber, ShelfNumber>,
    others: Vec<ShelfNumber>,
    spares: VecDeque<Spare>,
    free: Vec<ShelfNumber>,
    doomed: Vec<ShelfNumber>,
    /// How many writes of the segment wait for a sync.
    busy: BTreeMap<SegmentNumber, u64>,
    /// Segments below it are needed by nobody.
    released: Option<SegmentNumber>,
    /// Bytes of all files.
    sizes: BTreeMap<ShelfNumber, u64>,
    next_number: u64,
    lacks_space: bool,
    /// A checkpoint has failed since the last release: nothing is kept ready.
    gives_way: bool,
    /// The writer waits for a spare.
    is_wanted: bool,
    is_poked: bool,
    is_stopped: bool,
}

/// A file of the full length whose blocks are of no log, or of segments that nobody needs.
pub struct Spare {
    pub number: SegmentNumber,
    pub device: Arc<dyn Device>,
    /// Made anew, and all zeros.
    pub is_new: bool,
}

/// What is to be done with the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chore {
    Remove(ShelfNumber),
    Recycle(ShelfNumber, SegmentNumber),
    Create(SegmentNumber),
    /// There may be no more files: space lacks from now on.
    NoteLimit,
}

impl Files {
    /// `found`: what lies on the shelf, with its bytes. Numbers from `next_number` on have never been used.
    pub fn new(
        shelf: Arc<dyn Shelf>,
        segment_bytes: u64,
        size_limit_bytes: Option<u64>,
        found: &[(ShelfNumber, Role, u64)],
        next_number: u64,
    ) -> Files {
        let mut state = State { next_number, ..State::default() };
        for (file, role, byte_count) in found {
            state.sizes.insert(*file, *byte_count);
            match role {
                // Two that say the same: the one that is not believed waits with the others.
                Role::Segment(number) if !state.segments.contains_key(number) => {
                    state.segments.insert(*number, *file);
                }
                Role::Segment(_) | Role::Other => state.others.push(*file),
                Role::Free => state.free.push(*file),
            }
        }
        Files {
            shelf,
            segment_bytes,
            size_limit_bytes,
            state: Mutex::new(state),
            changed: Condvar::new(),
            current: AtomicU32::new(0),
            lacks_space_to_write: AtomicBool::new(false),
        }
    }

    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// The segment that is written to.
    pub fn current(&self) -> SegmentNumber {
        SegmentNumber(self.current.load(Ordering::Acquire))
    }

    /// The segment's first page is durable: from now on it is the one that is written to.
    pub fn set_current(&self, number: SegmentNumber) {
        self.current.store(number.0, Ordering::Release);
    }

    /// A spare, which is a segment from now on; waits for one for a moment.
    pub fn take_spare(&self, patience: Duration) -> Option<Spare> {
        let mut state = self.state.lock();
        if state.spares.is_empty() {
            state.is_wanted = true;
            self.changed.notify_all();
            self.changed.wait_for(&mut state, patience);
        }
        let spare = state.spares.pop_front()?;
        state.is_wanted = false;
        state.segments.insert(spare.number, ShelfNumber(spare.number.0));
        state.is_poked = true;
        self.changed.notify_all();
        Some(spare)
    }

    /// Waits a moment, or until something has changed.
    pub fn wait(&self, patience: Duration) {
        let mut state = self.state.lock();
        self.changed.wait_for(&mut state, patience);
    }

    /// A write of the segment waits for a sync.
    pub fn mark_busy(&self, segment: SegmentNumber) {
        *self.state.lock().busy.entry(segment).or_default() += 1;
    }

    /// A sync of the segment that began after one of its writes has succeeded.
    pub fn mark_synced(&self, segment: SegmentNumber) {
        let mut state = self.state.lock();
        if let Some(count) = state.busy.get_mut(&segment) {
            *count -= 1;
            if *count == 0 {
                state.busy.remove(&segment);
            }
        }
        if state.released.is_some_and(|released| segment < released) {
            state.is_poked = true;
            self.changed.notify_all();
        }
    }

    /// Nobody needs segments below the place, nor other logs.
    pub fn release_below(&self, place: Place) {
        let mut state = self.state.lock();
        let released = place.segment.min(self.current());
        state.released = state.released.max(Some(released));
        state.gives_way = false;
        let others = std::mem::take(&mut state.others);
        state.doomed.extend(others);
        state.is_poked = true;
        self.changed.notify_all();
    }

    /// What is kept ready is removed, and not made again before the next release, or before the writer needs it.
    pub fn give_way(&self) {
        let mut state = self.state.lock();
        state.gives_way = true;
        state.is_poked = true;
        self.changed.notify_all();
    }

    /// Threads that wait look once more.
    pub fn poke(&self) {
        self.state.lock().is_poked = true;
        self.changed.notify_all();
    }

    /// No more chores are done.
    pub fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Waits until there is a chore; none: they have been stopped. For the helper alone.
    pub fn next_chore(&self, retry: Duration) -> Option<Chore> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            // Where space lacks the next attempt is made when something has gone, or after a while.
            if !state.lacks_space || std::mem::take(&mut state.is_poked) {
                if let Some(chore) = self.choose(&mut state) {
                    return Some(chore);
                }
            }
            state.is_poked = false;
            match state.lacks_space {
                true => {
                    let waited = self.changed.wait_for(&mut state, retry);
                    state.is_poked |= waited.timed_out();
                }
                false => self.changed.wait(&mut state),
            }
        }
    }

    fn choose(&self, state: &mut State) -> Option<Chore> {
        if let Some(file) = state.doomed.pop() {
            return Some(Chore::Remove(file));
        }
        self.free_released(state);
        let (spares, kept_free) = match state.gives_way {
            true => (usize::from(state.is_wanted), 0),
            false => (SPARES, KEPT_FREE),
        };
        if state.spares.len() > spares {
            return state.spares.pop_back().map(|spare| Chore::Remove(ShelfNumber(spare.number.0)));
        }
        if state.spares.len() == spares {
            let is_more = state.free.len() > kept_free;
            return if is_more { state.free.pop().map(Chore::Remove) } else { None };
        }
        let number = SegmentNumber(u32::try_from(state.next_number).ok()?);
        if let Some(file) = state.free.pop() {
            state.next_number += 1;
            return Some(Chore::Recycle(file, number));
        }
        let after = state.sizes.values().sum::<u64>() + self.segment_bytes;
        if self.size_limit_bytes.is_some_and(|limit| after > limit) {
            // Told once, so that the thread of the chores has it told.
            let is_news = !std::mem::replace(&mut state.lacks_space, true);
            return is_news.then_some(Chore::NoteLimit);
        }
        state.next_number += 1;
        Some(Chore::Create(number))
    }

    fn free_released(&self, state: &mut State) {
        let Some(released) = state.released else { return };
        let below: Vec<_> = state
            .segments
            .range(..released)
            .map(|(number, file)| (*number, *file))
            .filter(|(number, _)| !state.busy.contains_key(number))
            .collect();
        for (number, file) in below {
            state.segments.remove(&number);
            state.free.push(file);
        }
    }

    /// Does a chore. Returns a spare that it has made, which [`Files::add_spare`] takes.
    ///
    /// # Errors
    /// No space, which is remembered; and what makes the log fail.
    pub fn perform(&self, chore: Chore) -> Result<Option<Spare>, DeviceError> {
        let made = match chore {
            Chore::Remove(file) => {
                self.remove(file);
                Ok(None)
            }
            Chore::NoteLimit => Ok(None),
            Chore::Recycle(file, number) => self.recycle(file, number),
            Chore::Create(number) => self.create(number).map(Some),
        };
        if let Err(error) = &made {
            if error.is_no_space() {
                let mut state = self.state.lock();
                state.lacks_space = true;
                // Nobody needs the file, whichever number it has now.
                if let Chore::Recycle(file, number) = chore {
                    state.doomed.extend([file, ShelfNumber(number.0)]);
                }
            }
        }
        made
    }

    /// A file that cannot be removed stays: the next start finds it.
    fn remove(&self, file: ShelfNumber) {
        let _ = self.shelf.remove(file);
        let mut state = self.state.lock();
        state.sizes.remove(&file);
        // Threads that wait for space try again.
        state.is_poked = true;
        self.changed.notify_all();
    }

    fn recycle(&self, file: ShelfNumber, number: SegmentNumber) -> Result<Option<Spare>, DeviceError> {
        let to = ShelfNumber(number.0);
        let device = self.shelf.renumber(file, to)?;
        {
            let mut state = self.state.lock();
            let byte_count = state.sizes.remove(&file).unwrap_or(0);
            state.sizes.insert(to, byte_count);
        }
        if device.len()? != self.segment_bytes {
            drop(device);
            self.remove(to);
            return Ok(None);
        }
        // What says that it is a segment, and what could be taken for a first block.
        let zeros = AlignedBytes::new(2 * PAGE_SIZE);
        device.write_durably(0, &[IoSlice::new(zeros.get())], SyncMethod::Fdatasync)?;
        Ok(Some(Spare { number, device, is_new: false }))
    }

    fn create(&self, number: SegmentNumber) -> Result<Spare, DeviceError> {
        let file = ShelfNumber(number.0);
        let made = self.shelf.create(file).and_then(|device| {
            self.state.lock().sizes.insert(file, self.segment_bytes);
            device.allocate(self.segment_bytes)?;
            let zeros = AlignedBytes::new(ZEROS_BYTES.min(self.segment_bytes as usize));
            let mut at = 0;
            while at < self.segment_bytes {
                let byte_count = zeros.len().min((self.segment_bytes - at) as usize);
                sched::set_urgent(self.lacks_spare());
                sched::idly(|| device.write_at(at, &[IoSlice::new(&zeros.get()[..byte_count])]))?;
                at += byte_count as u64;
            }
            device.sync_data()?;
            Ok(device)
        });
        match made {
            Ok(device) => Ok(Spare { number, device, is_new: true }),
            Err(error) => {
                let _ = self.shelf.remove(file);
                self.state.lock().sizes.remove(&file);
                Err(error)
            }
        }
    }

    pub fn add_spare(&self, spare: Spare) {
        let mut state = self.state.lock();
        state.spares.push_back(spare);
        state.lacks_space = false;
        self.changed.notify_all();
    }

    /// Makes a spare at once, before there is a helper.
    ///
    /// # Errors
    /// Those of the shelf, and that there is no room.
    pub fn make_one(&self) -> Result<(), JournalError> {
        loop {
            let chore = {
                let mut state = self.state.lock();
                if !state.spares.is_empty() {
                    return Ok(());
                }
                self.choose(&mut state)
            };
            let Some(chore) = chore else {
                let shelf = self.shelf.name().to_owned();
                return Err(match self.size_limit_bytes.filter(|_| self.state.lock().lacks_space) {
                    Some(limit_bytes) => JournalError::SizeLimit { shelf, limit_bytes },
                    None => JournalError::NumbersUsedUp { shelf },
                });
            };
            if let Some(spare) = self.perform(chore)? {
                self.add_spare(spare);
            }
        }
    }

    /// Whether the next number cannot be had.
    pub fn is_used_up(&self) -> bool {
        u32::try_from(self.state.lock().next_number).is_err()
    }

    pub fn shelf_name(&self) -> &str {
        self.shelf.name()
    }

    /// Space lacks for a write into a segment, or does not any more.
    pub fn set_lacks_space_to_write(&self, is_so: bool) {
        self.lacks_space_to_write.store(is_so, Ordering::Release);
    }

    /// Whether space lacks for the next segment or a write. A second spare is wanted, and not needed.
    pub fn lacks_space(&self) -> bool {
        let lacks_segment = || {
            let state = self.state.lock();
            state.lacks_space && state.spares.is_empty()
        };
        self.lacks_space_to_write.load(Ordering::Acquire) || lacks_segment()
    }

    /// Whether the writer may have to wait for the next segment.
    fn lacks_spare(&self) -> bool {
        self.state.lock().spares.is_empty()
    }

    /// Segments, spares, and bytes of all files.
    pub fn counts(&self) -> (usize, usize, u64) {
        let state = self.state.lock();
        (state.segments.len(), state.spares.len(), state.sizes.values().sum())
    }
}
