//! A directory whose syncs take as long as one says: a FUSE file system over another directory. Both servers of a comparison get
//! the same one, so what they do about a slow disk can be told from the disk of the machine.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use crate::clock::now_ns;
use crate::error::{Context, Result};

/// How long the kernel may believe what it has been told of a file.
const TTL: Duration = Duration::from_secs(1);
/// Threads that answer the kernel. A sync has a thread of its own besides.
const THREADS: usize = 2;

/// Mounted until it is dropped. What uses it has to end before.
pub struct SlowDisk {
    path: PathBuf,
    syncs: Arc<Syncs>,
    /// Ends when it is dropped, unless the mount has gone before.
    _session: BackgroundSession,
}

/// How long a sync takes: `fsync` and `fdatasync`. The kernel tells a FUSE file system nothing of `RWF_DSYNC`.
#[derive(Debug)]
struct Syncs {
    length: Duration,
    /// By [`now_ns`]; syncs that begin before last at least until then.
    stalled_until_ns: AtomicU64,
}

impl SlowDisk {
    /// Shows the directory `below` at `at`, which is made.
    ///
    /// # Errors
    /// There is no `/dev/fuse`, or this process must not mount.
    pub fn mount(below: &Path, at: &Path, sync: Duration) -> Result<SlowDisk> {
        for dir in [below, at] {
            std::fs::create_dir_all(dir).context(|| format!("create {}", dir.display()))?;
        }
        let syncs = Arc::new(Syncs { length: sync, stalled_until_ns: AtomicU64::new(0) });
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        let disk = Passthrough { root: below.to_owned(), syncs: syncs.clone(), tables: Mutex::default() };
        let session = fuser::spawn_mount(disk, at, &config)
            .context(|| format!("mount a file system at {} (as root, with /dev/fuse)", at.display()))?;
        Ok(SlowDisk { path: at.to_owned(), syncs, _session: session })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs that begin within `length` from now on end with it.
    pub fn stall(&self, length: Duration) {
        self.syncs.stalled_until_ns.store(now_ns() + length.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Drop for SlowDisk {
    /// A ring of a process that has just ended may keep files for a while: the mount is gone at once, its threads end with the last
    /// file.
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.path).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} is still mounted", self.path.display());
        }
    }
}

impl Syncs {
    fn wait(&self) {
        let stall_ns = self.stalled_until_ns.load(Ordering::SeqCst).saturating_sub(now_ns());
        std::thread::sleep(self.length.max(Duration::from_nanos(stall_ns)));
    }
}

/// Hands on what it is asked for. Files have the numbers that they have below, but for the root.
struct Passthrough {
    root: PathBuf,
    syncs: Arc<Syncs>,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    /// The directory and the name of each file that the kernel has heard of.
    names: HashMap<INodeNo, (INodeNo, OsString)>,
    open: HashMap<FileHandle, Arc<File>>,
    last_handle: u64,
}

type Answer<T> = std::result::Result<T, Errno>;

impl Passthrough {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn path(&self, of: INodeNo) -> Answer<PathBuf> {
        let tables = self.tables();
        let (mut at, mut names) = (of, Vec::new());
        while at != INodeNo::ROOT {
            let (parent, name) = tables.names.get(&at).ok_or(Errno::ENOENT)?;
            names.push(name.clone());
            at = *parent;
        }
        Ok(names.iter().rev().fold(self.root.clone(), |path, name| path.join(name)))
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> Answer<PathBuf> {
        Ok(self.path(parent)?.join(name))
    }

    /// What a file is, whose name is remembered.
    fn found(&self, parent: INodeNo, name: &OsStr) -> Answer<FileAttr> {
        let metadata = std::fs::symlink_metadata(self.child(parent, name)?)?;
        let ino = INodeNo(metadata.ino());
        self.tables().names.insert(ino, (parent, name.to_owned()));
        attributes(ino, &metadata)
    }

    fn opened(&self, file: File) -> FileHandle {
        let mut tables = self.tables();
        tables.last_handle += 1;
        let handle = FileHandle(tables.last_handle);
        tables.open.insert(handle, Arc::new(file));
        handle
    }

    fn file(&self, handle: FileHandle) -> Answer<Arc<File>> {
        self.tables().open.get(&handle).cloned().ok_or(Errno::EBADF)
    }

    fn attributes_of(&self, ino: INodeNo, handle: Option<FileHandle>) -> Answer<FileAttr> {
        let metadata = match handle {
            Some(handle) => self.file(handle)?.metadata()?,
            None => std::fs::symlink_metadata(self.path(ino)?)?,
        };
        attributes(ino, &metadata)
    }

    fn resize(&self, ino: INodeNo, handle: Option<FileHandle>, byte_count: u64) -> Answer<()> {
        match handle {
            Some(handle) => self.file(handle)?.set_len(byte_count)?,
            None => OpenOptions::new().write(true).open(self.path(ino)?)?.set_len(byte_count)?,
        }
        Ok(())
    }

    fn moved(&self, from: (INodeNo, &OsStr), to: (INodeNo, &OsStr)) -> Answer<()> {
        let ino = self.found(from.0, from.1)?.ino;
        std::fs::rename(self.child(from.0, from.1)?, self.child(to.0, to.1)?)?;
        self.tables().names.insert(ino, (to.0, to.1.to_owned()));
        Ok(())
    }

    fn read(&self, handle: FileHandle, offset: u64, byte_count: usize) -> Answer<Vec<u8>> {
        let (file, mut bytes) = (self.file(handle)?, vec![0; byte_count]);
        let mut filled = 0;
        while filled < byte_count {
            match file.read_at(&mut bytes[filled..], offset + filled as u64)? {
                0 => break,
                more => filled += more,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn entries(&self, of: INodeNo) -> Answer<Vec<(INodeNo, FileType, OsString)>> {
        let entry = |entry: io::Result<std::fs::DirEntry>| {
            let entry = entry?;
            let kind = FileType::from_std(entry.file_type()?).unwrap_or(FileType::RegularFile);
            Ok((INodeNo(std::os::unix::fs::DirEntryExt::ino(&entry)), kind, entry.file_name()))
        };
        Ok(std::fs::read_dir(self.path(of)?)?.map(entry).collect::<io::Result<_>>()?)
    }
}

fn attributes(ino: INodeNo, metadata: &Metadata) -> Answer<FileAttr> {
    let time = |time: io::Result<SystemTime>| time.unwrap_or(SystemTime::UNIX_EPOCH);
    let modified = time(metadata.modified());
    Ok(FileAttr {
        ino,
        size: metadata.len(),
        blocks: metadata.blocks(),
        atime: time(metadata.accessed()),
        mtime: modified,
        ctime: modified,
        crtime: modified,
        kind: FileType::from_std(metadata.file_type()).ok_or(Errno::ENOSYS)?,
        perm: (metadata.mode() & 0o7777) as u16,
        nlink: metadata.nlink() as u32,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    })
}

fn answer_empty(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn answer_entry(reply: ReplyEntry, answer: Answer<FileAttr>) {
    match answer {
        Ok(found) => reply.entry(&TTL, &found, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn answer_attributes(reply: ReplyAttr, answer: Answer<FileAttr>) {
    match answer {
        Ok(found) => reply.attr(&TTL, &found),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Passthrough {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer_entry(reply, self.found(parent, name));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        answer_attributes(reply, self.attributes_of(ino, handle));
    }

    /// Sizes alone: owners, modes and times are as they are.
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let resized = size.map_or(Ok(()), |byte_count| self.resize(ino, handle, byte_count));
        answer_attributes(reply, resized.and_then(|()| self.attributes_of(ino, handle)));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let made = self.child(parent, name).and_then(|path| Ok(std::fs::create_dir(path)?));
        answer_entry(reply, made.and_then(|()| self.found(parent, name)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.child(parent, name).and_then(|path| Ok(std::fs::remove_file(path)?)));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.child(parent, name).and_then(|path| Ok(std::fs::remove_dir(path)?)));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        match flags.is_empty() {
            true => answer_empty(reply, self.moved((parent, name), (new_parent, new_name))),
            // What replaces nothing, or exchanges two files: the caller does without.
            false => reply.error(Errno::EINVAL),
        }
    }

    /// Past the kernel's cache of pages, so that a write is the file system's when it returns.
    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let mode = flags.acc_mode();
        let (reads, writes) = (mode != OpenAccMode::O_WRONLY, mode != OpenAccMode::O_RDONLY);
        let opened =
            self.path(ino).and_then(|path| Ok(OpenOptions::new().read(reads).write(writes).open(path)?));
        match opened {
            Ok(file) => reply.opened(self.opened(file), FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let created = self.child(parent, name).and_then(|path| {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).mode(mode & !umask).open(path)?;
            Ok((file, self.found(parent, name)?))
        });
        match created {
            Ok((file, found)) => {
                let handle = self.opened(file);
                reply.created(&TTL, &found, Generation(0), handle, FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        byte_count: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match Passthrough::read(self, handle, offset, byte_count as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.file(handle).and_then(|file| Ok(file.write_all_at(data, offset)?)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    /// What is below is not synced: how long that takes is not what is measured.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let syncs = self.syncs.clone();
        std::thread::spawn(move || {
            syncs.wait();
            reply.ok();
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.tables().open.remove(&handle);
        reply.ok();
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let entries = match self.entries(ino) {
            Ok(entries) => entries,
            Err(error) => return reply.error(error),
        };
        for (index, (ino, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(ino, index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match rustix::fs::statvfs(&self.root) {
            Ok(of) => reply.statfs(
                of.f_blocks,
                of.f_bfree,
                of.f_bavail,
                of.f_files,
                of.f_ffree,
                of.f_bsize as u32,
                of.f_namemax as u32,
                of.f_frsize as u32,
            ),
            Err(error) => reply.error(Errno::from(io::Error::from(error))),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        byte_count: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = rustix::fs::FallocateFlags::from_bits_retain(mode as u32);
        let allocated = self.file(handle).and_then(|file| {
            rustix::fs::fallocate(&*file, flags, offset, byte_count)
                .map_err(|error| Errno::from(io::Error::from(error)))
        });
        answer_empty(reply, allocated);
    }
}
