//! Files that earlier revisions have written: page files, logs, dumps, configurations. Each opens, holds what it held, and is
//! written anew. `README.md` says how a new format adds its own.

mod config;
mod data;
mod dumps;
#[path = "../server/harness.rs"]
#[allow(dead_code, unused_imports)]
mod harness;
mod logs;
mod pages;
mod served;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use data::Data;

/// With it, files that are not there are made by this build.
const UPDATE: &str = "UPDATE_GOLDEN";

/// The directories of files of one kind, by the number of their format: the oldest first.
fn golden(kind: &str) -> Vec<(u32, PathBuf)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let dirs =
        std::fs::read_dir(here).expect("the directory of this test").map(|entry| entry.unwrap().path());
    let number = |dir: &PathBuf| {
        let rest = dir.file_name()?.to_str()?.strip_prefix(kind)?.strip_prefix('-')?;
        rest.split('-').next()?.parse().ok()
    };
    let mut found: Vec<_> = dirs.filter_map(|dir| Some((number(&dir)?, dir))).collect();
    found.sort();
    assert!(!found.is_empty(), "no {kind}");
    found
}

/// What lies in the file of a directory.
fn expected(dir: &Path) -> Data {
    let path = dir.join("keys.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Data::parse(&text)
}

/// Whether this run makes files that are not there.
fn is_update() -> bool {
    std::env::var_os(UPDATE).is_some()
}

/// Keeps a file that this build has made, unless there is one.
fn keep(made: &Path, packed: &Path) {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&std::fs::read(made).expect("what was made")).expect("memory");
    let mut file = std::fs::File::create_new(packed).expect("a file that is not there");
    file.write_all(&packer.finish().expect("memory")).expect("room");
}

/// Writes a copy of a packed file.
fn unpack(packed: &Path, to: &Path) {
    let file = std::fs::File::open(packed)
        .unwrap_or_else(|error| panic!("{}: {error}; {UPDATE}=1 makes it", packed.display()));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).expect("a whole file");
    std::fs::write(to, bytes).expect("room");
}

/// All files together stay small.
#[test]
fn golden_files_are_small() {
    let all = ["pages", "log", "dump", "conf"].into_iter().flat_map(golden);
    let files = all.flat_map(|(_, dir)| std::fs::read_dir(dir).unwrap());
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < 1 << 20, "{bytes} B");
}
