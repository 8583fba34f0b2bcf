//! The log in a directory of real files.

use std::convert::Infallible;
use std::sync::Arc;

use stillframe_journal::{
    Journal, JournalOptions, Offset, Piece, Place, RecoverError, SyncMethod, SyncPolicy,
};
use stillframe_pagepool::device::{DirectIo, FileShelf, IoEngine, IoOptions, Shelf};
use stillframe_testkit::{eventually, TempDir};

fn options(sync: SyncPolicy, method: SyncMethod) -> JournalOptions {
    JournalOptions {
        segment_bytes: 1 << 20,
        memory_bytes: 4 << 20,
        sync,
        size_limit_bytes: None,
        method,
        select: |_, _| {},
    }
}

fn io(direct: DirectIo) -> IoOptions {
    IoOptions { engine: IoEngine::Threads, direct }
}

fn append(journal: &Journal, bytes: &[u8]) -> Offset {
    journal.append(None, &mut [Piece::Bytes(bytes)].into_iter(), bytes.len() as u64)
}

fn read(shelf: &dyn Shelf, from: Place, clean_end: Option<Offset>) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let recovery = Journal::check::<Infallible>(shelf, from, clean_end, &mut |_, run| {
        bytes.extend_from_slice(run);
        Ok(1)
    });
    (bytes, recovery.unwrap().is_clean)
}

#[test]
fn a_log_in_files_is_read_as_written() {
    for (direct, method) in [(DirectIo::Auto, SyncMethod::Dsync), (DirectIo::No, SyncMethod::Fdatasync)] {
        let dir = TempDir::new("journal-files");
        let path = dir.path().join("log");
        let shelf = || Arc::new(FileShelf::open(&path, io(direct)).unwrap());
        let journal =
            Journal::begin(shelf(), Offset(5), options(SyncPolicy::Always, method), Arc::new(())).unwrap();
        let place = journal.cut();
        let mut stream = Vec::new();
        for unit in 0..60_u32 {
            let bytes = vec![unit as u8; 50_000];
            stream.extend_from_slice(&bytes);
            let end = append(&journal, &bytes);
            if unit % 7 == 0 {
                journal.make_durable(end).unwrap();
            }
        }
        journal.make_durable(journal.end()).unwrap();
        // As if the process had been killed: the files are closed, and nothing else.
        drop(journal);
        let reader = FileShelf::open_to_read(&path, io(direct));
        assert!(reader.remove(reader.list().unwrap()[0]).is_err(), "nothing is changed there");
        assert!(read(&reader, place, None) == (stream.clone(), false));
        let mut count = 0;
        let (journal, recovery) = Journal::recover::<Infallible>(
            shelf(),
            place,
            None,
            options(SyncPolicy::EverySecond, method),
            Arc::new(()),
            &mut |_, run| {
                count += run.len();
                Ok(1)
            },
        )
        .unwrap();
        assert_eq!((count, recovery.end), (stream.len(), Offset(5 + stream.len() as u64)));
        append(&journal, b"behind");
        stream.extend_from_slice(b"behind");
        let cut = journal.cut();
        journal.make_durable(cut.offset).unwrap();
        journal.release_below(cut);
        let end = journal.close().unwrap();
        assert_eq!(end, cut.offset);
        drop(journal);
        assert!(read(&reader, cut, Some(end)) == (Vec::new(), true));
    }
}

/// Two that would write the same segments are kept apart.
#[test]
fn a_segment_is_open_once() {
    let dir = TempDir::new("journal-locks");
    let shelf = FileShelf::open(dir.path(), io(DirectIo::Auto)).unwrap();
    let number = stillframe_pagepool::device::ShelfNumber(1);
    let device = shelf.create(number).unwrap();
    assert!(shelf.open(number).err().is_some_and(|error| error.is_in_use()));
    assert!(shelf.create(number).err().is_some_and(|error| error.is_taken()));
    drop(device);
    let to = stillframe_pagepool::device::ShelfNumber(7);
    shelf.renumber(number, to).unwrap().check_identity().unwrap();
    assert_eq!(shelf.list().unwrap(), [to]);
    std::fs::write(dir.path().join("notes.log"), b"nobody's").unwrap();
    shelf.remove(to).unwrap();
    assert!(shelf.list().unwrap().is_empty());
    assert!(shelf.open(to).err().is_some_and(|error| error.is_missing()));
}

/// Nothing is handed over behind what was refused, wherever that is, and the thread that reads ahead ends: it would wait for
/// ever for room, since more blocks follow than it may read ahead.
/// A spare is a whole segment, which the checkpoint that would free the log may need.
#[test]
fn a_failed_checkpoint_gets_the_space_of_spares() {
    let dir = TempDir::new("journal-gives-way");
    let shelf = Arc::new(FileShelf::open(&dir.path().join("log"), io(DirectIo::No)).unwrap());
    let options = options(SyncPolicy::EverySecond, SyncMethod::Fdatasync);
    let journal = Journal::begin(shelf.clone(), Offset(0), options, Arc::new(())).unwrap();
    let becomes = |spare_count: usize| {
        eventually("the spares", || journal.report().spare_count == spare_count);
        eventually("the files", || {
            shelf.list().unwrap().len() == journal.report().segment_count + spare_count
        });
    };
    becomes(2);
    journal.give_way();
    becomes(0);
    // The writer gets what it needs nevertheless.
    let unit = vec![7; 300_000];
    for _ in 0..8 {
        append(&journal, &unit);
    }
    journal.make_durable(journal.end()).unwrap();
    assert_eq!((journal.report().segment_count, journal.report().spare_count), (3, 0));
    journal.release_below(journal.cut());
    becomes(2);
}

#[test]
fn a_replay_that_refuses_ends_the_reading() {
    let dir = TempDir::new("journal-refuses");
    let shelf = FileShelf::open(dir.path(), io(DirectIo::Auto)).unwrap();
    let journal_options = options(SyncPolicy::Always, SyncMethod::Fdatasync);
    let journal = Journal::begin(Arc::new(shelf), Offset(0), journal_options, Arc::new(())).unwrap();
    let place = journal.cut();
    for unit in 0..12_u8 {
        let end = append(&journal, &[unit; 3000]);
        journal.make_durable(end).unwrap();
    }
    drop(journal);
    let shelf = FileShelf::open_to_read(dir.path(), io(DirectIo::Auto));
    for refused_at in 0..12_usize {
        let mut handed_over = Vec::new();
        let read = Journal::check::<&str>(&shelf, place, None, &mut |at, run| {
            if handed_over.len() == refused_at * 3000 {
                return Err("refused");
            }
            assert_eq!(at, Offset(handed_over.len() as u64));
            handed_over.extend_from_slice(run);
            Ok(1)
        });
        match read {
            Err(RecoverError::Replay { at, source: "refused" }) => {
                assert_eq!(at, Offset(refused_at as u64 * 3000));
            }
            other => panic!("{other:?}"),
        }
        assert!(handed_over.chunks(3000).enumerate().all(|(unit, bytes)| bytes == [unit as u8; 3000]));
    }
}
