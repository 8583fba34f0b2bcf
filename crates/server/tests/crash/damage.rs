//! Damaged page files: what is wrong is named with its place, the previous checkpoint is served where the newest
//! cannot be, and nothing that was not written is ever served.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use stillframe_testkit::Reply;

use crate::model::Blob;
use crate::process::{server_in, Client, Launch, Process, TempDir};

const PAGE_BYTES: usize = 4096;
const MAGIC: &[u8] = b"STILLPGF";

type Content = BTreeMap<String, Vec<u8>>;

/// A page file with two checkpoints, and what they hold.
struct Sample {
    dir: TempDir,
    path: PathBuf,
    image: Vec<u8>,
    previous: Content,
    newest: Content,
}

fn put(conn: &mut Client, content: &mut Content, key: String, blob: Blob) {
    let reply = conn.run_bytes(&[b"SET", key.as_bytes(), &blob.bytes()]);
    assert!(!reply.is_error(), "{reply:?}");
    content.insert(key, blob.bytes());
}

/// The page file in a directory, known by its first bytes.
fn page_file_in(dir: &Path) -> PathBuf {
    let paths = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut found = paths.filter(|path| fs::read(path).is_ok_and(|bytes| bytes.starts_with(MAGIC)));
    found.next().expect("a page file")
}

impl Sample {
    fn new() -> Sample {
        let dir = TempDir::new("damage");
        let (server, _) = server_in(dir.path(), dir.path()).start();
        let (mut conn, mut content) = (server.client(), Content::new());
        for number in 0..300 {
            put(&mut conn, &mut content, format!("small:{number}"), Blob { tag: number, len: 40 });
        }
        for number in 0..20 {
            put(&mut conn, &mut content, format!("middle:{number}"), Blob { tag: 1000 + number, len: 1500 });
        }
        for number in 0..3 {
            put(&mut conn, &mut content, format!("large:{number}"), Blob { tag: 2000 + number, len: 50_000 });
        }
        assert!(conn.save_in_background("BGSAVE"));
        let previous = content.clone();
        for number in 0..300 {
            put(&mut conn, &mut content, format!("small:{number}"), Blob { tag: 3000 + number, len: 41 });
        }
        put(&mut conn, &mut content, "large:1".to_owned(), Blob { tag: 4000, len: 60_000 });
        assert!(conn.save_in_background("BGSAVE"));
        server.kill();
        let path = page_file_in(dir.path());
        let image = fs::read(&path).expect("the page file");
        Sample { dir, path, image, previous, newest: content }
    }

    fn setup(&self) -> Launch {
        server_in(self.dir.path(), self.dir.path())
    }

    fn write(&self, image: &[u8]) {
        fs::write(&self.path, image).expect("the page file");
    }

    /// The file with a bit inverted in each of these slots.
    fn damaged(&self, slots: &[usize]) -> Vec<u8> {
        let mut image = self.image.clone();
        slots.iter().for_each(|slot| image[slot * PAGE_BYTES + 1234] ^= 1);
        image
    }

    fn generation(&self, place: usize) -> u64 {
        let bytes = &self.image[place * PAGE_BYTES + 16..][..8];
        u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
    }

    /// The slot of the root of a superblock's map.
    fn root(&self, place: usize) -> usize {
        let bytes = &self.image[place * PAGE_BYTES + 24..][..4];
        u32::from_le_bytes(bytes.try_into().expect("4 bytes")) as usize
    }

    /// The place of the newest superblock, 0 or 1.
    fn newest_place(&self) -> usize {
        usize::from(self.generation(1) > self.generation(0))
    }

    /// The slots that hold part of a value.
    fn slots_of(&self, value: &[u8]) -> Vec<usize> {
        let slots = 2..self.image.len() / PAGE_BYTES;
        slots
            .filter(|slot| {
                self.image[slot * PAGE_BYTES..][..PAGE_BYTES].windows(32).any(|w| w == &value[..32])
            })
            .collect()
    }
}

/// Reads all keys. Returns those that could not be read with what was said, and fails if one is not as in `content`.
fn errors_of(server: &Process, content: &Content) -> BTreeMap<String, String> {
    let mut conn = server.client();
    let mut errors = BTreeMap::new();
    for (key, value) in content {
        match conn.run(&format!("GET {key}")) {
            Reply::Bulk(bytes) if bytes == *value => {}
            Reply::Error(text) => {
                errors.insert(key.clone(), String::from_utf8_lossy(&text).into_owned());
            }
            other => panic!("{key}: {other:?}\n{}", server.log()),
        }
    }
    errors
}

fn assert_place(text: &str, path: &Path, slots: &[usize]) {
    let file = path.display().to_string();
    let places: Vec<_> = slots.iter().map(|slot| format!("(byte {}", slot * PAGE_BYTES)).collect();
    for part in [&file].into_iter().chain(&places) {
        assert!(text.contains(part.as_str()), "{part:?} is not in {text:?}");
    }
}

/// A damaged superblock: the witness beside it names the same checkpoint, and the file is mended.
#[test]
fn a_damaged_superblock_loses_nothing() {
    let sample = Sample::new();
    for slot in 0..3 {
        sample.write(&sample.damaged(&[slot]));
        let (server, _) = sample.setup().start();
        let warnings = server.warnings().join("\n");
        assert_place(&warnings, &sample.path, &[slot]);
        assert!(warnings.contains("nothing is lost"), "{warnings}");
        assert_eq!(errors_of(&server, &sample.newest), BTreeMap::new());
        server.kill();
        let (server, _) = sample.setup().start();
        assert_eq!(server.warnings(), Vec::<String>::new());
        assert_eq!(errors_of(&server, &sample.newest), BTreeMap::new());
    }
}

/// A damaged map of the newest checkpoint: the previous one is served to who accepts that loss, and the log says so.
#[test]
fn the_previous_checkpoint_is_served_only_if_the_loss_is_accepted() {
    let sample = Sample::new();
    let place = sample.newest_place();
    let slots = [sample.root(place)];
    let image = sample.damaged(&slots);
    sample.write(&image);
    let log = sample.setup().refused();
    assert_place(&log, &sample.path, &slots);
    let accepted = sample.generation(1 - place).to_string();
    assert!(log.contains(&format!("'accept-loss-after-checkpoint {accepted}'")), "{log}");
    let other = (sample.generation(place)).to_string();
    sample.setup().with(&["--accept-loss-after-checkpoint", &other]).refused();
    assert!(fs::read(&sample.path).expect("the page file") == image, "the evidence has been changed");
    let (server, _) = sample.setup().with(&["--accept-loss-after-checkpoint", &accepted]).start();
    let warnings = server.warnings().join("\n");
    assert_place(&warnings, &sample.path, &slots);
    assert!(warnings.contains("is lost"), "{warnings}");
    assert_eq!(errors_of(&server, &sample.previous), BTreeMap::new());
    // It can be saved, and lasts.
    assert!(server.client().save_in_background("BGSAVE"), "{}", server.log());
    server.kill();
    let (server, _) = sample.setup().start();
    assert_eq!(server.warnings(), Vec::<String>::new());
    assert_eq!(errors_of(&server, &sample.previous), BTreeMap::new());
}

/// Emptied, zeroed, or with superblocks of long ago: never a new store.
#[test]
fn a_page_file_that_has_lost_its_data_is_not_a_new_one() {
    let sample = Sample::new();
    for len in [0, PAGE_BYTES, 2 * PAGE_BYTES, sample.image.len()] {
        let image = vec![0; len];
        sample.write(&image);
        let log = sample.setup().refused();
        assert!(log.contains(&sample.path.display().to_string()), "{log}");
        assert!(fs::read(&sample.path).expect("the page file") == image, "the evidence has been changed");
    }
    fs::remove_file(&sample.path).expect("the page file");
    let (server, _) = sample.setup().start();
    let first = fs::read(&sample.path).expect("a new page file");
    assert_eq!(server.client().run("DBSIZE").integer(), Some(0));
    server.kill();
    // Two superblocks of a new file, in front of data.
    let (server, _) = sample.setup().start();
    let mut conn = server.client();
    assert!(!conn.run("SET key value").is_error());
    assert!(conn.save_in_background("BGSAVE"));
    server.kill();
    let mut image = fs::read(&sample.path).expect("the page file");
    image[..2 * PAGE_BYTES].copy_from_slice(&first[..2 * PAGE_BYTES]);
    sample.write(&image);
    let (server, _) = sample.setup().start();
    assert_eq!(server.client().run("GET key").bytes(), Some(&b"value"[..]));
}

#[test]
fn damage_to_the_previous_checkpoint_does_not_touch_the_newest() {
    let sample = Sample::new();
    let other = 1 - sample.newest_place();
    for slot in [other, sample.root(other)] {
        sample.write(&sample.damaged(&[slot]));
        let (server, _) = sample.setup().start();
        assert_eq!(errors_of(&server, &sample.newest), BTreeMap::new());
        assert!(server.client().save_in_background("BGSAVE"), "{}", server.log());
        server.kill();
        let (server, _) = sample.setup().start();
        assert_eq!(errors_of(&server, &sample.newest), BTreeMap::new());
    }
}

#[test]
fn nothing_is_served_from_a_file_without_a_checkpoint_that_loads() {
    let sample = Sample::new();
    let place = sample.newest_place();
    let roots = [sample.root(place), sample.root(1 - place)];
    for slots in [[0, 1, 2], [place, 2, roots[1]], [2, roots[0], roots[1]]] {
        let image = sample.damaged(&slots);
        sample.write(&image);
        assert_place(&sample.setup().refused(), &sample.path, &slots);
        assert!(fs::read(&sample.path).expect("the page file") == image, "the evidence has been changed");
    }
    sample.write(b"SQLite format 3");
    let log = sample.setup().refused();
    assert!(log.contains("is not a page file") && log.contains(&sample.path.display().to_string()), "{log}");
    sample.write(&sample.image);
    let (server, _) = sample.setup().start();
    assert_eq!(errors_of(&server, &sample.newest), BTreeMap::new());
}

/// A damaged page: its keys answer with an error that names the place, all others as ever, also after a save.
#[test]
fn a_damaged_page_is_an_error_for_its_keys_only() {
    let sample = Sample::new();
    for key in ["large:1", "large:2", "middle:7", "small:100"] {
        let slots = sample.slots_of(&sample.newest[key]);
        assert!(!slots.is_empty(), "{key} is not found in the file");
        sample.write(&sample.damaged(&slots));
        let (server, _) = sample.setup().start();
        let errors = errors_of(&server, &sample.newest);
        let error = errors.get(key).unwrap_or_else(|| panic!("{key} is served from damaged pages"));
        let is_named = slots.iter().any(|slot| error.contains(&format!("(byte {}", slot * PAGE_BYTES)));
        assert!(is_named && error.contains(&sample.path.display().to_string()), "{slots:?}: {error}");
        assert!(errors.len() < 150, "{} keys are in the damaged pages of {key}", errors.len());
        assert_is_known(&server, &sample.path);
        assert_stays(&sample, server, &errors);
    }
}

/// Nobody has to read the keys to learn of the damage: the log and `INFO` tell.
fn assert_is_known(server: &Process, path: &Path) {
    let mut conn = server.client();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !server.log().contains("pages of the page file cannot be read") {
        assert!(std::time::Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(server.warnings().iter().any(|line| line.contains(&path.display().to_string())));
    assert_eq!(conn.try_info_field("persistence", "page_file_status").expect("INFO"), "damaged");
    assert_ne!(conn.try_info_field("persistence", "page_file_damaged_pages").expect("INFO"), "0");
}

/// What is damaged stays so over writes elsewhere, a save and a restart.
fn assert_stays(sample: &Sample, server: Process, errors: &BTreeMap<String, String>) {
    let mut conn = server.client();
    let readable =
        sample.newest.keys().find(|key| !errors.contains_key(*key)).expect("a key that can be read");
    let reply = conn.run(&format!("APPEND {readable} x"));
    assert!(!reply.is_error(), "{reply:?}");
    let damaged = errors.keys().next().expect("a damaged key");
    let reply = conn.run(&format!("APPEND {damaged} x"));
    assert!(reply.is_error(), "{damaged}: {reply:?}");
    assert!(conn.save_in_background("BGSAVE"), "{}", server.log());
    server.kill();
    let (server, _) = sample.setup().start();
    let mut changed = sample.newest.clone();
    changed.get_mut(readable).expect("a key").push(b'x');
    let again = errors_of(&server, &changed);
    assert!(again.keys().eq(errors.keys()), "{again:?}");
}

/// A bit anywhere: the newest checkpoint, or errors or a refusal that say where.
#[test]
fn a_bit_inverted_anywhere_is_never_served() {
    let sample = Sample::new();
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let slot_count = sample.image.len() / PAGE_BYTES;
    let mut outcomes = BTreeMap::new();
    for _ in 0..60 {
        let (slot, offset, bit) = (rng.usize(..slot_count), rng.usize(..PAGE_BYTES), rng.u32(..8));
        let mut image = sample.image.clone();
        image[slot * PAGE_BYTES + offset] ^= 1 << bit;
        sample.write(&image);
        let mut server = sample.setup().spawn();
        if !server.try_wait_until_serving() {
            assert_place(&server.log(), &sample.path, &[slot]);
            *outcomes.entry("refused").or_insert(0) += 1;
            continue;
        }
        let warnings = server.warnings().join("\n");
        let probe = server.client().run("GET small:0");
        let outcome = if probe.bytes() == Some(&sample.previous["small:0"]) {
            panic!("an older checkpoint is served:\n{warnings}");
        } else {
            let errors = errors_of(&server, &sample.newest);
            errors.values().for_each(|error| assert_place(error, &sample.path, &[slot]));
            if errors.is_empty() {
                "newest"
            } else {
                "errors"
            }
        };
        *outcomes.entry(outcome).or_insert(0) += 1;
    }
    println!("{outcomes:?}");
}

/// Runs the program over a page file; returns the exit status and what it said.
fn tool(sample: &Sample, args: &[&str]) -> (Option<i32>, String) {
    let program = &sample.setup().program;
    let output = std::process::Command::new(program).args(args).output().expect("the program");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(!text.contains("panicked"), "{text}");
    (output.status.code(), text)
}

#[test]
fn check_reads_every_page_and_changes_nothing() {
    let sample = Sample::new();
    let path = sample.path.display().to_string();
    let check = || tool(&sample, &["--check", &path]);
    let (status, text) = check();
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains(" of which 0 are damaged"), "{text}");
    let victims = ["large:1", "large:2", "small:100"].map(|key| sample.slots_of(&sample.newest[key])[0]);
    for (slots, expected) in [
        (&victims[..], 2),
        // One copy of the superblock costs nothing, the newest map does.
        (&[sample.newest_place()][..], 0),
        (&[sample.root(sample.newest_place())][..], 1),
    ] {
        let image = sample.damaged(slots);
        sample.write(&image);
        let (status, text) = check();
        assert_eq!(status, Some(expected), "{text}");
        assert_place(&text, &sample.path, slots);
        assert!(fs::read(&sample.path).expect("the page file") == image, "it has been changed");
    }
    let (status, text) = tool(&sample, &["--check", "/nonexistent/stillframe.pages"]);
    assert!(status == Some(1) && text.contains("No such file"), "{text}");
    // Not while a server is at work on it.
    sample.write(&sample.image);
    let (_server, _) = sample.setup().start();
    let (status, text) = check();
    assert!(status == Some(1) && text.contains("another process uses the file"), "{text}");
}

/// Everything that can be read is in the dump, and everything else in the list.
#[test]
fn salvage_writes_what_can_be_read() {
    let sample = Sample::new();
    let path = sample.path.display().to_string();
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for round in 0..8 {
        let keys = ["large:1", "middle:7", "small:100", "large:2"];
        let slots: Vec<usize> = match round {
            0 => Vec::new(),
            1..=4 => sample.slots_of(&sample.newest[keys[round - 1]]),
            _ => (0..3).map(|_| rng.usize(3..sample.image.len() / PAGE_BYTES)).collect(),
        };
        sample.write(&sample.damaged(&slots));
        let dir = TempDir::new("salvaged");
        let dump = dir.join("dump.rdb").display().to_string();
        let (status, text) = tool(&sample, &["--salvage", &path, "--to", &dump]);
        if text.contains("no checkpoint can be loaded") {
            // Chance has hit both, of which each is named.
            assert!(round > 4 && status == Some(1), "{text}");
            assert_eq!(text.matches(" at slot ").count(), 2, "{text}");
            continue;
        }
        let is_whole = !text.contains("Lost:") && !text.contains("is lost");
        assert_eq!(status, Some(if is_whole { 0 } else { 2 }), "{text}");
        let (server, _) = server_in(dir.path(), dir.path()).start();
        let mut conn = server.client();
        let expected = if text.contains("is lost") { &sample.previous } else { &sample.newest };
        let mut missing = 0;
        for (key, value) in expected {
            match conn.run(&format!("GET {key}")) {
                Reply::Bulk(bytes) if bytes == *value => {}
                Reply::NullBulk => missing += 1,
                other => panic!("{key}: {other:?}"),
            }
        }
        assert_eq!(missing == 0, is_whole || !text.contains("Lost:"), "{missing} keys: {text}");
        assert_eq!(conn.run("DBSIZE").integer(), Some((expected.len() - missing) as i64));
        if (1..=4).contains(&round) {
            assert!(missing > 0 && missing < 150, "{missing}: {text}");
            assert!(text.contains(&format!("(byte {}", slots[0] * PAGE_BYTES)), "{text}");
        }
    }
}

/// With `damage-policy skip` a dump leaves out what cannot be read, says so, and is whole otherwise.
#[test]
fn dumps_leave_out_damage_on_request() {
    let sample = Sample::new();
    for key in ["large:1", "middle:7", "small:100"] {
        sample.write(&sample.damaged(&sample.slots_of(&sample.newest[key])));
        let (server, _) = sample.setup().start();
        let mut conn = server.client();
        assert!(!conn.save_in_background("BGSAVE RDB"), "it is whole: {}", server.log());
        assert!(conn.run("BACKUP TO copy.rdb").is_error());
        assert!(!conn.run("CONFIG SET damage-policy skip").is_error());
        assert!(!conn.run("BACKUP TO copy.rdb").is_error(), "{}", server.log());
        assert!(server.log().contains("Left out of "), "{}", server.log());
        let errors = errors_of(&server, &sample.newest);
        server.kill();
        let dir = TempDir::new("copy");
        fs::rename(sample.dir.join("copy.rdb"), dir.join("dump.rdb")).expect("the copy");
        let (copy, _) = server_in(dir.path(), dir.path()).start();
        let count = (sample.newest.len() - errors.len()) as i64;
        assert_eq!(copy.client().run("DBSIZE").integer(), Some(count), "{errors:?}");
    }
}

/// With `damage-policy skip` a lost leaf keeps neither `SCAN` and its kin from the other keys nor `SET` and `DEL` from
/// its own; without, they fail and nothing changes.
#[test]
fn a_lost_leaf_is_passed_over_and_replaced_on_request() {
    let sample = Sample::new();
    sample.write(&sample.damaged(&sample.slots_of(&sample.newest["small:100"])));
    let (server, _) = sample.setup().start();
    let mut conn = server.client();
    let errors = errors_of(&server, &sample.newest);
    let lost: Vec<&String> = errors.keys().collect();
    let readable_count = (sample.newest.len() - lost.len()) as i64;
    let set = |key: &str| format!("SET {key} new");
    let whole = ["KEYS *", "SCAN 0 COUNT 1000", &set(lost[0]), &format!("DEL {}", lost[0])];
    whole.iter().for_each(|command| assert!(conn.run(command).is_error(), "{command}"));
    assert!(!conn.run("CONFIG SET damage-policy skip").is_error());
    for _ in 0..2 {
        assert_eq!(conn.run("KEYS *").items().len(), readable_count as usize);
    }
    for _ in 0..500 {
        let key = conn.run("RANDOMKEY");
        let key = key.bytes().expect("a key");
        assert!(sample.newest.contains_key(std::str::from_utf8(key).expect("text")));
    }
    let info = |conn: &mut Client, field: &str| conn.info(field);
    assert_eq!(info(&mut conn, "damage_places_skipped"), "1");
    assert!(conn.run(&format!("GET {}", lost[0])).is_error(), "what is lost is not absent");
    assert!(!conn.run(&set(lost[0])).is_error(), "{}", server.log());
    assert_eq!(conn.run(&format!("DEL {}", lost[1])).integer(), Some(0));
    assert_eq!(conn.run("KEYS *").items().len(), readable_count as usize + 1);
    assert_eq!(info(&mut conn, "damage_places_given_up"), "1");
    assert_eq!(info(&mut conn, "page_file_status"), "ok");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let is_told = |server: &Process| {
        let log = server.log();
        log.matches("leave out keys of database 0").count() == 1 && log.contains("are given up")
    };
    while !is_told(&server) || conn.run("DBSIZE").integer() != Some(readable_count + 1) {
        assert!(std::time::Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(conn.save_in_background("BGSAVE"), "{}", server.log());
    server.kill();
    let (server, _) = sample.setup().start();
    let mut conn = server.client();
    assert_eq!(server.warnings(), Vec::<String>::new());
    assert_eq!(conn.run("KEYS *").items().len(), readable_count as usize + 1);
    assert!(!conn.run("FLUSHALL").is_error());
}
