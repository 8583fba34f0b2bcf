//! Why an operation did not happen, or a store could not be opened or saved.

use std::path::PathBuf;

use stillframe_journal::JournalError;
use stillframe_pagepool::device::DeviceError;
use stillframe_pagepool::exmap::ExmapError;
use stillframe_pagepool::pagefile::{PageError, PageFileError};
use stillframe_pagepool::{CheckpointError, Late, PageId, PoolError, Reason, Turn, Unserved};

use crate::db::DbId;
use crate::library::LibraryError;
use crate::value::MAX_STRING_BYTES;

/// Why a store could not be opened; the text says where and what to do.
#[derive(thiserror::Error, Debug)]
pub enum OpenError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    /// Another process has it, or a store of this one: a clone, a handle or a worker of one, or its listener.
    #[error(
        "{0} is in use by another process, or by a store of this one that is still there (its lock file is held): end that, \
         or choose another directory"
    )]
    Locked(PathBuf),
    /// What the options ask for explicitly cannot be had here.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The page file cannot be read, or is damaged.
    #[error("{0}")]
    PageFile(#[source] PageFileError),
    /// The page file is whole, and what is in it is damaged, or of another version.
    #[error(transparent)]
    Damaged(Reason),
    /// The log that goes with the checkpoint cannot be read, or not be written.
    #[error("{0}")]
    Log(#[source] JournalError),
    /// The log does not go with the checkpoint, or the store has no room for what it tells.
    #[error("the log cannot be replayed: the units from byte {offset} of its stream on: {source}")]
    Replay { offset: u64, source: Box<dyn std::error::Error + Send + Sync> },
    /// There is a log, and the page file that it goes with is missing.
    #[error(
        "'{dir}' has the files of a log, and the page file that they go with is not there: put that back, or move the \
         log's files away to start empty"
    )]
    LogAlone { dir: String },
    /// The checkpoint could not be taken that a new log begins with.
    #[error("the log cannot be begun: {0}")]
    Begin(#[source] Box<SaveError>),
    /// The watcher of the replay has ended it. Nothing has been changed on disk.
    #[error("the replay of the log was ended before its end")]
    Stopped,
    /// The system does not give what a store takes: address space, threads, descriptors. That says nothing of the data.
    #[error("{0}")]
    System(#[source] PoolError),
}

/// What a store was asked for and cannot be had here; the text says what else to ask for.
#[derive(thiserror::Error, Debug)]
pub enum Refusal {
    #[error("{count} databases: at most {most} are possible")]
    Databases { count: u32, most: usize },
    #[error(
        "memory_bytes is {memory_bytes}, and pages of data, snapshots and what is on its way need {needed_bytes}"
    )]
    Memory { memory_bytes: u64, needed_bytes: u64 },
    /// Another process has the page file open, or it is to be read and written in a way that is not to be had.
    #[error("{0}")]
    Device(#[source] DeviceError),
    #[error("{0}: it is a directory")]
    Directory(#[source] PageFileError),
    #[error("{0}")]
    Unserved(#[source] Unserved),
    #[error("{0}")]
    Exmap(#[source] ExmapError),
}

impl From<PoolError> for OpenError {
    fn from(error: PoolError) -> OpenError {
        match error {
            PoolError::Unserved(unserved) => OpenError::Refused(Refusal::Unserved(unserved)),
            PoolError::Exmap(reason) => OpenError::Refused(Refusal::Exmap(reason)),
            PoolError::PageFile(error) => OpenError::PageFile(error),
            PoolError::Layout { .. } => OpenError::Damaged(Reason::of(&error)),
            error => OpenError::System(error),
        }
    }
}

/// Why a save did not complete. The previous checkpoint stays as it was.
#[derive(thiserror::Error, Debug, Clone)]
pub enum SaveError {
    #[error("a save is already in progress")]
    InProgress,
    /// The log has not been replayed to its end: what is in memory is older than what is on disk.
    #[error("the log is being replayed")]
    Replaying,
    /// The thread is in an operation on the store, which the cut would wait for.
    #[error("another operation of this thread is under way")]
    Busy,
    /// There was no cut: another thread is in an operation that does not end.
    #[error("there was no cut: {0}")]
    Late(Late),
    /// Pages could not be written, or not be had as of the cut.
    #[error("{0}")]
    Checkpoint(#[source] CheckpointError),
    /// A page of a page file without a store could not be read.
    #[error("{0}")]
    Page(#[source] PageError),
    /// Pages contradict each other; the text names the page, or what is malformed.
    #[error(transparent)]
    Damaged(Reason),
    #[error("the view is one of another store")]
    OtherStore,
    /// What entries or elements were given to wants no more of them.
    #[error("nobody takes it")]
    Ended,
}

impl From<CheckpointError> for SaveError {
    fn from(error: CheckpointError) -> SaveError {
        match error {
            CheckpointError::InProgress => SaveError::InProgress,
            CheckpointError::Late(late) => SaveError::Late(late),
            other => SaveError::Checkpoint(other),
        }
    }
}

/// Pages that must be read from the page file before a command can be applied. The command has changed
/// nothing; hand the fault to [`crate::Store::load`] and run it again.
#[derive(Clone, Debug)]
pub struct Fault {
    pub(crate) missing: Missing,
}

#[derive(Clone, Debug)]
pub(crate) enum Missing {
    Pages(Vec<PageId>),
    /// Whatever is not in memory.
    All,
    /// No page, but memory for new ones.
    Room,
    /// Nothing: others are to be served in between.
    Nothing,
    /// The turn of that number.
    Turn(u64),
}

impl Fault {
    pub(crate) fn of(pages: Vec<PageId>) -> Fault {
        Fault { missing: Missing::Pages(pages) }
    }

    /// With the pages of another one, which are then brought in with the same read. Whoever waits for something else does so
    /// first.
    pub fn and(mut self, other: Fault) -> Fault {
        if let Missing::Pages(pages) = &mut self.missing {
            other.add_to(pages);
        }
        self
    }

    pub(crate) fn add_to(self, pages: &mut Vec<PageId>) {
        if let Missing::Pages(more) = self.missing {
            pages.extend(more);
        }
    }

    pub(crate) fn names_pages(&self) -> bool {
        matches!(self.missing, Missing::Pages(_))
    }

    /// For a command that is going to allocate pages while memory is full: it waits until others have been evicted.
    pub fn room() -> Fault {
        Fault { missing: Missing::Room }
    }

    /// For a command that has done a part of its work and lets others go on before the next.
    pub fn pause() -> Fault {
        Fault { missing: Missing::Nothing }
    }

    /// For a command that waits in vain for all its pages together: it waits for its turn, in which it keeps them.
    pub fn turn(turn: &Turn) -> Fault {
        Fault { missing: Missing::Turn(turn.number()) }
    }

    /// Has what it names kept in memory, as of [`Turn::hold`].
    #[must_use]
    pub fn hold(&self, turn: &Turn) -> bool {
        match &self.missing {
            Missing::Pages(pages) => turn.hold(pages),
            _ => true,
        }
    }

    /// Whether it is one of [`Fault::pause`].
    pub fn is_pause(&self) -> bool {
        matches!(self.missing, Missing::Nothing)
    }

    /// The pages that it names; 0 if it is about others.
    pub fn page_count(&self) -> u64 {
        match &self.missing {
            Missing::Pages(pages) => pages.len() as u64,
            Missing::All | Missing::Room | Missing::Nothing | Missing::Turn(_) => 0,
        }
    }

    /// For a command that may touch any page: it waits for the end of the warm-up.
    pub fn all() -> Fault {
        Fault { missing: Missing::All }
    }
}

/// What several operations miss, to be brought in together.
#[derive(Default, Debug)]
pub struct Faults {
    pages: Vec<PageId>,
}

impl Faults {
    /// Adds the pages that a fault names.
    pub fn add(&mut self, fault: Fault) {
        fault.add_to(&mut self.pages);
    }

    /// Pages so far; some may be named several times.
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// All of them, each once; `None`: nothing is missing.
    pub fn take(&mut self) -> Option<Fault> {
        let mut pages = std::mem::take(&mut self.pages);
        pages.sort_unstable();
        pages.dedup();
        (!pages.is_empty()).then(|| Fault::of(pages))
    }
}

/// Why an operation did not happen. None of them leaves a partial change.
#[derive(thiserror::Error, Clone, Debug)]
pub enum OpError {
    #[error("pages are not in memory yet")]
    Fault(Fault),
    /// The bound of memory for data is reached ([`crate::Options::maxmemory_bytes`]); or, with a bound of 0, too many values arrive at
    /// a time.
    #[error("there is no memory for more data (maxmemory_bytes: {limit_bytes})")]
    OutOfMemory { limit_bytes: u64 },
    /// A page has to be read, and nothing in memory can make room for it.
    #[error(
        "there is not enough memory for the pages that are needed: what is in memory cannot be written to the page file"
    )]
    NoRoom,
    /// The operation needs more of its values at a time than half of the memory that there is for pages.
    #[error(
        "the values are larger than memory: this needs {needed_bytes} bytes of them at a time, and {most_bytes} may be there, \
         half of what the bound of memory leaves for pages"
    )]
    LargerThanMemory { needed_bytes: u64, most_bytes: u64 },
    /// A handle or worker was used within a closure that another one of the same thread had called.
    #[error("another operation of this thread is under way")]
    Busy,
    /// Everybody was to stand still, and another thread is in an operation that does not end. Nothing has been changed.
    #[error(transparent)]
    Late(#[from] Late),
    /// All that it needs is in memory, and this thread only looks ([`crate::Looking`]): it would change something now.
    #[error("nothing is changed by who only looks")]
    Looking,
    /// The key holds a value of another type.
    #[error("the key holds a value of another type")]
    WrongType,
    /// The store has no database of that number ([`crate::Options::database_count`]).
    #[error("there is no database {}: the store has {database_count}, counted from 0", .db.0)]
    NoDatabase { db: DbId, database_count: u32 },
    /// Scores, and the bounds of a range of scores, are numbers.
    #[error("a score must be a number")]
    NotANumber,
    /// A member of a whole set or sorted set was given twice.
    #[error("a member was given twice")]
    Twice,
    /// Not all bytes of an [`crate::Incoming`], or of a copy, have come.
    #[error("only {filled_bytes} of the {len_bytes} bytes of the value have come")]
    Incomplete { filled_bytes: u64, len_bytes: u64 },
    /// An [`crate::Incoming`], or a copy, is part of the data already, or was given twice.
    #[error("the value that has come is part of the data already, or was given twice")]
    Used,
    /// A key, or a value that comes or is read in parts, belongs to another store.
    #[error("what was given belongs to another store")]
    OtherStore,
    #[error("a string may have at most {MAX_STRING_BYTES} bytes")]
    TooLarge,
    /// A value that comes in parts ([`crate::Worker::begin_incoming`]) has 64 KB at least.
    #[error("a value that comes in parts has at least 65536 bytes")]
    TooSmall,
    /// A function library is none that is kept.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A page failed its checksum or could not be read; the text names file, slot and page.
    #[error(transparent)]
    Damaged(Reason),
}

impl From<Fault> for OpError {
    fn from(fault: Fault) -> Self {
        OpError::Fault(fault)
    }
}

/// Why an operation on a named tree did not happen. None of them leaves a partial change.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum TreeError {
    #[error("the name of a tree has 1 to 255 bytes")]
    Name,
    #[error("the store has as many trees as it can have")]
    TooMany,
    #[error("the key of a tree has at most 512 bytes")]
    KeyTooLong,
    #[error("a value has at most {MAX_STRING_BYTES} bytes")]
    ValueTooLong,
    /// A key of a bulk load is not above the one before it.
    #[error("the keys of a bulk load ascend")]
    NotAscending,
    #[error("only an empty tree can be loaded in bulk")]
    NotEmpty,
    #[error("the tree has been dropped")]
    Dropped,
    /// The operation was called within a closure that another one of the same thread had called.
    #[error("another operation of this thread is under way")]
    Busy,
    /// Everybody was to stand still, and another thread is in an operation that does not end. Nothing has been changed.
    #[error(transparent)]
    Late(#[from] Late),
    /// While a thread is in a transaction it changes trees through that transaction only.
    #[error("this thread is in a transaction")]
    InTransaction,
    /// The bound of memory for data is reached ([`crate::Options::maxmemory_bytes`]).
    #[error("there is no memory for more data (maxmemory_bytes: {limit_bytes})")]
    OutOfMemory { limit_bytes: u64 },
    /// What it needs at a time is more than half of the memory that there is for pages. Nothing has been done.
    #[error(
        "this needs {needed_bytes} bytes of pages in memory at a time, and {most_bytes} may be: write less at a time, or give \
         the store more memory"
    )]
    LargerThanMemory { needed_bytes: u64, most_bytes: u64 },
    /// A page has to be read or stored, and nothing in memory can make room for it.
    #[error(
        "there is not enough memory for the pages that are needed: what is in memory cannot be written to the page file"
    )]
    NoRoom,
    /// A page failed its checksum or could not be read; the text names file, slot and page. Or there are no pages left.
    #[error(transparent)]
    Damaged(Reason),
}

impl From<OpError> for TreeError {
    fn from(error: OpError) -> TreeError {
        match error {
            OpError::TooLarge => TreeError::ValueTooLong,
            OpError::OutOfMemory { limit_bytes } => TreeError::OutOfMemory { limit_bytes },
            OpError::LargerThanMemory { needed_bytes, most_bytes } => {
                TreeError::LargerThanMemory { needed_bytes, most_bytes }
            }
            OpError::NoRoom => TreeError::NoRoom,
            OpError::Busy => TreeError::Busy,
            OpError::Late(late) => TreeError::Late(late),
            OpError::Damaged(reason) => TreeError::Damaged(reason),
            other => TreeError::Damaged(other.to_string().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;

    use stillframe_pagepool::device::{DeviceErrorKind, DeviceOp};
    use stillframe_pagepool::Restart;

    use super::*;
    use crate::stop::Stop;

    /// The causes of an error, one behind the other.
    fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
        let mut next = error.source();
        std::iter::from_fn(move || {
            let cause = next?;
            next = cause.source();
            Some(cause)
        })
    }

    #[test]
    fn a_thread_that_cannot_start_is_no_damage() {
        let reason = || io::Error::from(io::ErrorKind::WouldBlock);
        let error = OpenError::from(PoolError::Thread(reason()));
        assert!(matches!(error, OpenError::System(_)), "{error:?}");
        assert_eq!(error.to_string(), format!("cannot start a background thread: {}", reason()));
        let kept = causes(&error).find_map(|cause| cause.downcast_ref::<io::Error>());
        assert_eq!(kept.map(io::Error::kind), Some(io::ErrorKind::WouldBlock));
    }

    #[test]
    fn what_the_pool_refuses_keeps_its_reason() {
        let error = OpenError::from(PoolError::Unserved(Unserved::Bounded { kind: "fork" }));
        assert!(matches!(error, OpenError::Refused(Refusal::Unserved(_))), "{error:?}");
        assert!(causes(&error).any(|cause| cause.is::<Unserved>()));
        let error = OpenError::from(PoolError::Exmap(ExmapError::NoModule));
        assert!(matches!(error, OpenError::Refused(Refusal::Exmap(_))), "{error:?}");
        assert!(causes(&error).any(|cause| cause.is::<ExmapError>()));
    }

    #[test]
    fn a_save_keeps_why_it_failed() {
        let error = SaveError::from(CheckpointError::EpochsExhausted);
        assert_eq!(error.to_string(), CheckpointError::EpochsExhausted.to_string());
        assert!(causes(&error).any(|cause| cause.is::<CheckpointError>()));
        assert!(matches!(SaveError::from(CheckpointError::InProgress), SaveError::InProgress));
    }

    /// A page that the device could not read.
    fn failed_read() -> PageError {
        let kind = DeviceErrorKind::Os(rustix::io::Errno::IO);
        let source = DeviceError { device: "d".to_owned(), op: DeviceOp::Read, offset: 8, len: 4096, kind };
        PageError::Device { pid: PageId(7), source }
    }

    #[test]
    fn damage_keeps_what_the_device_has_said() {
        let reason = Reason::of(&failed_read());
        let operation = OpError::from(Stop::from(Restart::Damaged(reason.clone())));
        let tree = TreeError::from(operation.clone());
        let save = SaveError::from(CheckpointError::Io(reason.clone()));
        let walk = SaveError::Damaged(reason.clone());
        let open = OpenError::Damaged(reason);
        let errors: [&(dyn Error + 'static); 5] = [&operation, &tree, &save, &walk, &open];
        for error in errors {
            assert_eq!(error.to_string(), failed_read().to_string());
            let kept = causes(error).find_map(|cause| cause.downcast_ref::<io::Error>());
            assert_eq!(kept.and_then(io::Error::raw_os_error), Some(5), "{error:?}");
        }
    }
}
