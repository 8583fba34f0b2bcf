//! Dumps for tests, and a dump that comes as slowly as a test wants.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use rustix::fs::{mknodat, FileType, Mode, CWD};
use stillframe_store::rdb::{Header, KeyMeta, StringRef, Writer, WriterOptions};

/// A dump of the keys `key:0`, `key:1` and so on with values of `value_bytes`.
pub fn dump_of(key_count: u64, value_bytes: usize) -> Vec<u8> {
    let header =
        Header { ctime_unix_s: 1_700_000_000, used_memory_bytes: 4_720_976, aof_base: false, cut: None };
    let options = WriterOptions { compress: false, ..WriterOptions::default() };
    let mut writer = Writer::new(Vec::new(), header, options).unwrap();
    writer.select_db(0, key_count, 0).unwrap();
    let value = vec![b'v'; value_bytes];
    for number in 0..key_count {
        let key = format!("key:{number}");
        writer.string(key.as_bytes(), StringRef::Bytes(&value), KeyMeta::default()).unwrap();
    }
    writer.finish().unwrap()
}

/// The writing end of a named pipe in place of `dump.rdb`: what has not been written has not been read.
pub struct SlowDump {
    pipe: File,
    rest: Vec<u8>,
}

impl SlowDump {
    /// Puts the pipe into the directory of a server that is about to start.
    pub fn place(dir: &Path) {
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, dir.join("dump.rdb"), FileType::Fifo, mode, 0).unwrap();
    }

    /// Opens it once the server runs.
    pub fn open(dir: &Path, bytes: Vec<u8>) -> SlowDump {
        let pipe = File::options().write(true).open(dir.join("dump.rdb")).unwrap();
        SlowDump { pipe, rest: bytes }
    }

    pub fn write_half(&mut self) {
        let rest = self.rest.split_off(self.rest.len() / 2);
        self.pipe.write_all(&self.rest).unwrap();
        self.rest = rest;
    }

    /// Writes the rest and closes the pipe.
    pub fn finish(mut self) {
        self.pipe.write_all(&self.rest).unwrap();
    }
}
