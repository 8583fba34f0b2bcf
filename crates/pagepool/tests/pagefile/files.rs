//! On real files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stillframe_pagepool::device::{DirLock, DirectIo, IoEngine, IoOptions, LockError};
use stillframe_pagepool::pagefile::{
    CutHeader, LogPosition, OpenOptions, PageFile, PageFileError, Recovered,
};
use stillframe_pagepool::PAGE_SIZE;
use stillframe_testkit::TempDir;

use crate::model::{
    check_accounting, check_content, checkpoint, has_content, header_of, write_batch, Change, Content,
};

/// Where a test keeps its page file.
fn file_in(dir: &TempDir) -> PathBuf {
    dir.join("pages.db")
}

fn open(path: &Path, io: IoOptions) -> Result<(Arc<PageFile>, Recovered), PageFileError> {
    let device = PageFile::open_or_create_at(path, io)?;
    PageFile::open(Arc::new(device), &OpenOptions::default())
}

#[test]
fn a_file_keeps_what_was_committed() {
    let io = |engine, direct| IoOptions { engine, direct };
    let ways = IoEngine::ALL.iter().flat_map(|engine| DirectIo::ALL.map(|direct| io(*engine, direct)));
    for io in ways {
        let dir = TempDir::new("keeps");
        match PageFile::open_or_create_at(&dir.join("probe"), io) {
            Err(error) => {
                eprintln!("SKIPPED, NOT TESTED: {io:?}: {error}");
                continue;
            }
            Ok(device) => drop(device),
        }
        let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed_or(41));
        let mut content = Content::new();
        for round in 0..4 {
            let (file, recovered) = open(&file_in(&dir), io).unwrap();
            assert_eq!(recovered.is_new, round == 0);
            assert!(recovered.damage.is_none(), "{recovered:?}");
            assert!(has_content(&file, &recovered, &content));
            check_content(&file, &content);
            for version in round * 10 + 1..round * 10 + 6 {
                let change = Change::random(&mut rng, &content, 2000, 1500, version);
                change.run(&file).unwrap();
                content = change.after;
            }
            check_content(&file, &content);
            check_accounting(&file);
            assert_eq!(std::fs::metadata(file_in(&dir)).unwrap().len(), file.stats().file_bytes);
        }
    }
}

#[test]
fn a_checkpoint_after_one_percent_changed_writes_little_more_than_that() {
    let dir = TempDir::new("one-percent");
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed_or(42));
    let (file, _) = open(&file_in(&dir), IoOptions::default()).unwrap();
    let mut content = Content::new();
    let page_count = 30_000;
    let all: Vec<_> = (1..=page_count).map(|pid| (pid, 1)).collect();
    checkpoint(&file, &mut content, &all);
    for version in 2..12 {
        let mut changed: Vec<_> =
            (0..page_count / 100).map(|_| (1 + rng.u32(..page_count), version)).collect();
        changed.sort_unstable();
        changed.dedup();
        let stats = checkpoint(&file, &mut content, &changed);
        let changed_bytes = (changed.len() * PAGE_SIZE) as f64;
        assert!(stats.written_bytes as f64 <= 1.3 * changed_bytes + 2e6, "{stats:?}");
    }
    let stats = file.stats();
    assert!(stats.file_bytes as f64 <= 1.4 * (stats.live_slots * PAGE_SIZE as u64) as f64, "{stats:?}");
    check_content(&file, &content);
}

#[test]
fn a_file_from_which_bytes_are_missing_is_refused() {
    let dir = TempDir::new("short");
    let (file, _) = open(&file_in(&dir), IoOptions::default()).unwrap();
    let mut content = Content::new();
    checkpoint(&file, &mut content, &(1..500).map(|pid| (pid, 1)).collect::<Vec<_>>());
    drop(file);
    std::fs::OpenOptions::new()
        .write(true)
        .open(file_in(&dir))
        .unwrap()
        .set_len(300 * PAGE_SIZE as u64)
        .unwrap();
    let error = open(&file_in(&dir), IoOptions::default()).err().unwrap();
    // The checkpoint before it, the empty one, would load: but nobody would take that for their data.
    assert!(error.to_string().contains(&file_in(&dir).display().to_string()), "{error}");
}

#[test]
fn a_directory_or_a_read_only_file_is_a_clear_error() {
    let dir = TempDir::new("clear-error");
    let error = open(&dir, IoOptions::default()).err().unwrap().to_string();
    assert!(error.contains("cannot open") && error.contains(&dir.display().to_string()), "{error}");
    let missing = dir.join("no/such/dir/pages.db");
    let error = open(&missing, IoOptions::default()).err().unwrap().to_string();
    assert!(error.contains("cannot open") && error.contains("No such file"), "{error}");
}

#[test]
fn a_directory_is_locked_once() {
    let dir = TempDir::new("lock");
    let lock = DirLock::acquire(&dir).unwrap();
    let error = DirLock::acquire(&dir).unwrap_err();
    assert!(
        matches!(&error, LockError::Held { holder, .. } if *holder == std::process::id().to_string()),
        "{error}"
    );
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            drop(lock);
        });
        DirLock::acquire(&dir).expect("its holder goes");
    });
}

#[test]
fn an_emptied_or_zeroed_file_is_not_a_new_one() {
    let dir = TempDir::new("emptied");
    let (file, _) = open(&file_in(&dir), IoOptions::default()).unwrap();
    let mut content = Content::new();
    checkpoint(&file, &mut content, &[(1, 1)]);
    let len = file.stats().file_bytes;
    drop(file);
    for len in [0, PAGE_SIZE as u64, 2 * PAGE_SIZE as u64, 3 * PAGE_SIZE as u64, len] {
        std::fs::write(file_in(&dir), vec![0; len as usize]).unwrap();
        let error = open(&file_in(&dir), IoOptions::default()).err().unwrap().to_string();
        assert!(error.contains(&file_in(&dir).display().to_string()), "{error}");
        assert_eq!(std::fs::metadata(file_in(&dir)).unwrap().len(), len, "left alone");
    }
    std::fs::remove_file(file_in(&dir)).unwrap();
    assert!(open(&file_in(&dir), IoOptions::default()).unwrap().1.is_new);
}

/// What a crash leaves of a creation has another name and is begun anew.
#[test]
fn a_creation_that_was_cut_short_is_begun_anew() {
    let dir = TempDir::new("cut-short");
    for left in [0, 100, PAGE_SIZE, 5 * PAGE_SIZE] {
        std::fs::write(dir.join("pages.db.new"), vec![7; left]).unwrap();
        let (file, recovered) = open(&file_in(&dir), IoOptions::default()).unwrap();
        assert!(recovered.is_new && !dir.join("pages.db.new").exists());
        check_content(&file, &Content::new());
        drop(file);
        std::fs::remove_file(file_in(&dir)).unwrap();
    }
}

#[test]
fn a_file_is_open_once() {
    let dir = TempDir::new("once");
    let (file, _) = open(&file_in(&dir), IoOptions::default()).unwrap();
    let error = open(&file_in(&dir), IoOptions::default()).err().unwrap().to_string();
    assert!(error.contains("another process uses the file"), "{error}");
    drop(file);
    open(&file_in(&dir), IoOptions::default()).unwrap();
}

/// A checkpoint that nobody will find is not one: whatever became of the file's name, also in the middle.
#[test]
fn a_file_that_has_lost_its_name_takes_no_checkpoint() {
    for round in 0..6 {
        let dir = TempDir::new(&format!("gone-{round}"));
        let (file, _) = open(&file_in(&dir), IoOptions::default()).unwrap();
        let mut content = Content::new();
        checkpoint(&file, &mut content, &[(1, 1)]);
        let begun = (round % 2 == 1).then(|| file.begin_checkpoint().unwrap());
        match round / 2 {
            0 => std::fs::remove_file(file_in(&dir)).unwrap(),
            1 => std::fs::rename(file_in(&dir), dir.join("moved")).unwrap(),
            _ => {
                std::fs::copy(file_in(&dir), dir.join("copy")).unwrap();
                std::fs::rename(dir.join("copy"), file_in(&dir)).unwrap();
            }
        }
        let result = begun.map_or_else(|| file.begin_checkpoint(), Ok).and_then(|writer| {
            write_batch(&writer, &[(2, 2)])?;
            writer.commit(header_of(&content))
        });
        let error = result.unwrap_err().to_string();
        assert!(error.contains("removed, renamed or replaced"), "round {round}: {error}");
        let again = file.begin_checkpoint().err().unwrap();
        assert!(matches!(again, PageFileError::Failed { .. }), "{again}");
        check_content(&file, &content);
    }
}

/// A program that knows no log refuses a file with one by its version, and reads it again after a checkpoint without.
#[test]
fn a_log_goes_with_a_checkpoint_under_a_version_of_its_own() {
    let dir = TempDir::new("log-version");
    let version_in = |place: u64| {
        let bytes = std::fs::read(file_in(&dir)).unwrap();
        let at = place as usize * PAGE_SIZE + 8;
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    };
    let logs = [
        LogPosition { segment: 1, offset: 0 },
        LogPosition { segment: 7, offset: 1 << 40 },
        LogPosition::NONE,
    ];
    for log in logs {
        let (file, _) = open(&file_in(&dir), IoOptions::default()).unwrap();
        let writer = file.begin_checkpoint().unwrap();
        writer.commit(CutHeader { user: header_of(&Content::new()), log }).unwrap();
        drop((writer, file));
        let (_, recovered) = open(&file_in(&dir), IoOptions::default()).unwrap();
        assert_eq!(recovered.log, log);
        let expected = if log == LogPosition::NONE { 2 } else { 3 };
        assert!((0..2).any(|place| version_in(place) == expected));
        // The witness is a copy of the newest.
        assert_eq!(version_in(2), expected);
    }
}
