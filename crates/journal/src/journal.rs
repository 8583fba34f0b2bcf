//! The log as others see it.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use stillframe_pagepool::device::Shelf;
use stillframe_pagepool::PAGE_SIZE;

use crate::block::BLOCK_MAX_BYTES;
use crate::chain;
use crate::error::{JournalError, RecoverError};
use crate::files::{Files, Role};
use crate::helpers;
use crate::names::{LogId, Offset, Place};
use crate::options::{JournalOptions, SyncPolicy};
use crate::output::Output;
use crate::progress::Progress;
use crate::recover;
use crate::report::{JournalReport, Recovery};
use crate::seams::{Piece, Watcher};
use crate::shared::{Method, Pulse, Shared, Stats, SyncDesk};
use crate::tail::{Stop, Tail};
use crate::units::Replay;
use crate::writer::Writer;

/// The log of a server: appended to by workers, written by a thread of its own.
///
/// ```text
///   workers ── append ──▶ tail ──▶ writer ──▶ blocks in segments        helper: syncs      helper: spares
///                                    │                                     │
///   make_durable ◀── durable offset ◀┴─────────────────────────────────────┘          watch: room, space
/// ```
/// Dropped without [`Journal::close`] it stops where it is, as if the process had been killed.
pub struct Journal {
    shared: Arc<Shared>,
    /// Until it is closed.
    writer: Mutex<Option<JoinHandle<Result<Offset, JournalError>>>>,
    helpers: Mutex<Vec<JoinHandle<()>>>,
}

impl Journal {
    /// Begins a new log with a new id, whose first byte is at `at`. What lies on the shelf of other logs stays until
    /// [`Journal::release_below`]: a superblock may still name it; but no other log of the shelf is written any more. Durable when it returns, so that [`Journal::cut`] may be named.
    ///
    /// # Errors
    /// Options that cannot be, and those of the shelf.
    pub fn begin(
        shelf: Arc<dyn Shelf>,
        at: Offset,
        options: JournalOptions,
        watcher: Arc<dyn Watcher>,
    ) -> Result<Journal, JournalError> {
        check(&options)?;
        let mut found = Vec::new();
        let mut greatest = 0;
        for file in shelf.list()? {
            greatest = greatest.max(file.0);
            let byte_count = match shelf.open(file).and_then(|device| device.len()) {
                // A log that has failed may not have been dropped yet.
                Err(error) if error.is_in_use() => 0,
                byte_count => byte_count?,
            };
            found.push((file, Role::Other, byte_count));
        }
        let next_number = u64::from(greatest) + 1;
        let files = Files::new(shelf, options.segment_bytes, options.size_limit_bytes, &found, next_number);
        Journal::start(LogId(fastrand::u64(1..)), files, at, 0, &options, watcher)
    }

    /// Replays the log that `from` is in, from there on: hands runs of whole units to `replay`, in order. Then cuts off what is
    /// behind the last whole unit, makes what was replayed durable and goes on behind it, in a new segment.
    ///
    /// `clean_end`: where the log ended at the last stop, if that was a clean one and nothing was appended since; then less is
    /// damage.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if something that was acknowledged as durable is not there; the shelf's, and those of `replay`.
    /// Nothing has been changed then, but for errors while the log's end is made durable.
    pub fn recover<E>(
        shelf: Arc<dyn Shelf>,
        from: Place,
        clean_end: Option<Offset>,
        options: JournalOptions,
        watcher: Arc<dyn Watcher>,
        replay: &mut Replay<'_, E>,
    ) -> Result<(Journal, Recovery), RecoverError<E>> {
        check(&options)?;
        let found = chain::read(shelf.as_ref(), from, clean_end, replay)?;
        recover::settle(shelf.as_ref(), &found)?;
        let files = recover::files_after(&shelf, from, &found, &options);
        let end = found.recovery.end;
        let journal = Journal::start(from.log, files, end, found.checksum, &options, watcher)?;
        Ok((journal, found.recovery))
    }

    /// Reads the log that `from` is in as [`Journal::recover`] does, and changes nothing.
    ///
    /// # Errors
    /// The same.
    pub fn check<E>(
        shelf: &dyn Shelf,
        from: Place,
        clean_end: Option<Offset>,
        replay: &mut Replay<'_, E>,
    ) -> Result<Recovery, RecoverError<E>> {
        chain::read(shelf, from, clean_end, replay).map(|found| found.recovery)
    }

    fn start(
        log: LogId,
        files: Files,
        at: Offset,
        chain: u32,
        options: &JournalOptions,
        watcher: Arc<dyn Watcher>,
    ) -> Result<Journal, JournalError> {
        let block_bytes = BLOCK_MAX_BYTES.min((options.segment_bytes - PAGE_SIZE as u64) as usize);
        let shared = Arc::new(Shared {
            log,
            tail: Tail::new(at, block_bytes, options.memory_bytes as u64, options.sync, options.select),
            progress: Progress::new(at),
            files,
            desk: SyncDesk::default(),
            pulse: Pulse::default(),
            stats: Stats::default(),
            method: Method::new(options.method),
            is_late: AtomicBool::new(false),
            watcher,
        });
        let output = Output::begin(shared.clone(), at, chain)?;
        let writer = Writer::new(shared.clone(), output, block_bytes);
        let journal = Journal { shared: shared.clone(), writer: Mutex::default(), helpers: Mutex::default() };
        // One that cannot be started ends those before it: the journal is dropped.
        journal
            .helpers
            .lock()
            .push(spawn("sf-log-sync", shared.clone(), |shared| helpers::run_syncs(&shared))?);
        journal
            .helpers
            .lock()
            .push(spawn("sf-log-spares", shared.clone(), |shared| helpers::run_chores(&shared))?);
        journal
            .helpers
            .lock()
            .push(spawn("sf-log-watch", shared.clone(), |shared| helpers::run_watch(&shared))?);
        *journal.writer.lock() = Some(spawn("sf-log-writer", shared, move |_| writer.run())?);
        Ok(journal)
    }

    /// Appends a unit of `len_bytes` and returns its end. `databases`: the one in which it begins and the one in which it ends,
    /// if it depends on one; a SELECT is put in front where the stream has another. Waits for no device, only for others that
    /// append; never fails: after a failure of the log it only counts.
    pub fn append(
        &self,
        databases: Option<(u32, u32)>,
        pieces: &mut dyn Iterator<Item = Piece<'_>>,
        len_bytes: u64,
    ) -> Offset {
        let (end, became_full) = self.shared.tail.append(databases, pieces, len_bytes);
        if became_full {
            self.shared.pulse.nudge();
        }
        end
    }

    /// Where the log stands: for the action of a barrier, while nobody appends. The next unit has a SELECT. The place may be
    /// named in a superblock once [`Journal::make_durable`] has returned for its offset.
    pub fn cut(&self) -> Place {
        let Shared { log, tail, files, .. } = &*self.shared;
        // Under the tail's lock: what is behind the cut has not been written, so it is in this segment or in later ones.
        tail.cut(|offset| Place { log: *log, segment: files.current(), offset })
    }

    /// The end of the stream.
    pub fn end(&self) -> Offset {
        self.shared.tail.end()
    }

    /// Bytes that have been appended and wait in memory to be written.
    pub fn buffered_bytes(&self) -> u64 {
        self.shared.tail.counts().0
    }

    /// Everything before it is durable.
    pub fn durable(&self) -> Offset {
        self.shared.progress.durable()
    }

    /// Waits until everything before `to`, or before the end if that comes first, is durable, and sees to it whatever the
    /// policy is.
    ///
    /// # Errors
    /// The log has failed.
    pub fn make_durable(&self, to: Offset) -> Result<(), JournalError> {
        let to = to.min(self.end());
        self.shared.tail.want(to);
        self.shared.progress.wait_for(to).map_err(JournalError::Before)
    }

    /// Nobody needs what is below `place`, which a durable superblock names: segments wholly below are used again, and segments of
    /// other logs are removed, soon. A place of another log is ignored.
    pub fn release_below(&self, place: Place) {
        if place.log == self.shared.log {
            self.shared.files.release_below(place);
        }
    }

    /// A checkpoint has failed: files that are only kept ready are removed, in case space was what it lacked. From the next
    /// [`Journal::release_below`] on they are made again.
    pub fn give_way(&self) {
        self.shared.files.give_way();
    }

    /// Changes the policy, from the next unit on. To [`SyncPolicy::Always`]: what has been written is synced at once.
    pub fn set_sync(&self, policy: SyncPolicy) {
        self.shared.tail.set_policy(policy);
        self.shared.pulse.nudge();
    }

    /// Whether units may be appended: not while more than the bound waits in memory (until a fourth of it is free again), nor,
    /// with [`SyncPolicy::EverySecond`], while nothing has become durable for two seconds. A thread that appends nevertheless uses memory.
    pub fn has_room(&self) -> bool {
        !self.shared.tail.is_full() && !self.shared.is_late.load(Ordering::Acquire)
    }

    /// Ends the log for good: what happens from here on is not in it.
    pub fn fail(&self, error: JournalError) {
        self.shared.fail(error);
    }

    /// Why the log has ended, if it has.
    pub fn failure(&self) -> Option<Arc<JournalError>> {
        self.shared.progress.failure()
    }

    /// Ends the log cleanly: everything is durable, and an end block says where the log ends. Returns the end.
    ///
    /// # Errors
    /// The log has failed, has been closed, or space lacks for what is not durable.
    pub fn close(&self) -> Result<Offset, JournalError> {
        self.shared.tail.end_with(Stop::Close);
        self.shared.files.poke();
        let writer = self.writer.lock().take().ok_or(JournalError::Closed)?;
        // Dropping the journal ends the others.
        writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// How the log is doing.
    pub fn report(&self) -> JournalReport {
        let Shared { log, tail, progress, files, desk, stats, method, .. } = &*self.shared;
        let (buffered_bytes, unit_count) = tail.counts();
        let (segment_count, spare_count, disk_bytes) = files.counts();
        let sync_count = stats.sync_count.load(Ordering::Relaxed);
        let measured = |ns: u64| (ns != 0).then_some(ns);
        JournalReport {
            log: *log,
            end: tail.end(),
            durable: progress.durable(),
            buffered_bytes,
            segment: files.current(),
            segment_count,
            spare_count,
            unit_count,
            sync_count,
            units_per_sync: unit_count as f64 / sync_count.max(1) as f64,
            last_sync_ns: stats.last_sync_ns.load(Ordering::Relaxed),
            mean_sync_ns: stats.total_sync_ns.load(Ordering::Relaxed) / sync_count.max(1),
            method: method.get(),
            dsync_ns: measured(method.dsync_ns.load(Ordering::Relaxed)),
            fdatasync_ns: measured(method.fdatasync_ns.load(Ordering::Relaxed)),
            delayed_sync_count: stats.delayed_sync_count.load(Ordering::Relaxed),
            pending_sync_count: u64::from(!desk.is_idle()),
            disk_bytes,
            no_space: files.lacks_space(),
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Journal {
    /// Stops where it is, and returns when nothing more is done to the shelf: another log may begin there. What is appended afterwards is
    /// nowhere.
    pub fn stop(&self) {
        self.shared.tail.end_with(Stop::Abandon);
        self.shared.files.stop();
        if let Some(writer) = self.writer.lock().take() {
            // A panic of the writer has been told by its thread; here nobody can do more.
            let _ = writer.join();
        }
        self.shared.desk.stop();
        self.shared.pulse.stop();
        for helper in self.helpers.lock().drain(..) {
            let _ = helper.join();
        }
    }
}

fn check(options: &JournalOptions) -> Result<(), JournalError> {
    let segment_bytes = options.segment_bytes;
    let fits = segment_bytes >= JournalOptions::LEAST_SEGMENT_BYTES
        && segment_bytes % PAGE_SIZE as u64 == 0
        && segment_bytes / (PAGE_SIZE as u64) <= u64::from(u32::MAX);
    match fits {
        true => Ok(()),
        false => {
            Err(JournalError::SegmentSize { segment_bytes, least_bytes: JournalOptions::LEAST_SEGMENT_BYTES })
        }
    }
}

/// Nobody waits for a thread that has panicked: the log has failed then.
fn spawn<T: Send + 'static>(
    thread: &'static str,
    shared: Arc<Shared>,
    run: impl FnOnce(Arc<Shared>) -> T + Send + 'static,
) -> Result<JoinHandle<T>, JournalError> {
    let contained = move || {
        let result = catch_unwind(AssertUnwindSafe(|| run(shared.clone())));
        result.unwrap_or_else(|panic| {
            shared.fail(JournalError::Panicked { thread });
            shared.desk.abandon();
            resume_unwind(panic)
        })
    };
    let spawned = std::thread::Builder::new().name(thread.to_owned()).spawn(contained);
    spawned.map_err(|error| JournalError::NoThread { thread, reason: error.to_string() })
}
