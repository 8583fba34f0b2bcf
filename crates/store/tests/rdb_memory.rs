//! Lengths that a damaged file claims do not become allocations, nor do long values. A process of its own with one test
//! after the other, for the count of its memory.

use crc::{Crc, CRC_64_REDIS};
use stillframe_store::rdb::{
    parse_payload, Header, KeyMeta, OnUnsupported, PayloadError, Reader, ReaderOptions, Writer, WriterOptions,
};

/// The most that this process has ever mapped, in KB.
fn peak_mapped_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("read /proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).expect("a line VmPeak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn memory_does_not_follow_lengths() {
    claimed_lengths_are_not_allocated();
    long_values_are_compressed_without_being_held();
}

fn claimed_lengths_are_not_allocated() {
    const HALF_GB: &[u8] = b"\x80\x20\x00\x00\x00";
    let few = [b'x'; 100];
    let bodies = [
        [&b"\0\x01k"[..], HALF_GB, &few].concat(),
        [&b"\0"[..], HALF_GB, &few].concat(),
        [&b"\xfa"[..], HALF_GB, &few].concat(),
        [&b"\0\x01k\xc3"[..], HALF_GB, HALF_GB, &few].concat(),
        [&b"\0\x01k\xc3\x04"[..], HALF_GB, b"\0a\xe0\0\0"].concat(),
        [&b"\x04\x01k"[..], HALF_GB, HALF_GB, &few].concat(),
        [&b"\xfe\0\xfb"[..], HALF_GB, HALF_GB, b"\0\x01k", HALF_GB].concat(),
    ];
    let before_kb = peak_mapped_kb();
    for body in &bodies {
        let bytes = [b"REDIS0009", body.as_slice()].concat();
        let options = ReaderOptions { on_unsupported: OnUnsupported::Skip, ..ReaderOptions::default() };
        let last = Reader::new(bytes.as_slice(), options).last();
        assert!(last.is_some_and(|entry| entry.is_err()), "{}", body.escape_ascii());

        let mut payload = [&b"\0"[..], &body[3..], b"\x0a\0"].concat();
        payload.extend_from_slice(&Crc::<u64>::new(&CRC_64_REDIS).checksum(&payload).to_le_bytes());
        assert!(!matches!(parse_payload(&payload), Err(PayloadError::VersionOrChecksum)));
    }
    let grown_kb = peak_mapped_kb() - before_kb;
    assert!(grown_kb < 16 << 10, "{grown_kb} KB for files of 100 bytes");
}

/// Counts what is written.
struct Count(u64);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn long_values_are_compressed_without_being_held() {
    let page = [0; 4096];
    let page_count = (80 << 20) / page.len();
    let before_kb = peak_mapped_kb();
    let mut writer = Writer::new(Count(0), Header::default(), WriterOptions::default()).expect("a header");
    let zeros = |give: &mut dyn FnMut(&[u8])| (0..page_count).for_each(|_| give(&page));
    writer
        .long_string(b"zeros", (page_count * page.len()) as u64, KeyMeta::default(), zeros)
        .expect("a value");
    let written = writer.finish().expect("the end").0;
    assert!(written < 1 << 20, "{written} bytes for 80 MB of zeros");
    let grown_kb = peak_mapped_kb() - before_kb;
    assert!(grown_kb < 16 << 10, "{grown_kb} KB");
}
