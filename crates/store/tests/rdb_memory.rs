//! Lengths that a damaged file claims do not become allocations, nor do long values. A process of its own with one test
//! after the other, for the count of its memory.

use crc::{Crc, CRC_64_REDIS};
use stillframe_store::rdb::{
    parse_payload, Announced, Element, Header, KeyMeta, Next, OnUnsupported, PayloadError, Reader,
    ReaderOptions, Writer, WriterOptions,
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
    collections_are_not_held();
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
        // Containers and elements that claim more than there is.
        [&b"\x0a\x01k"[..], HALF_GB, &few].concat(),
        [&b"\x0a\x01k\xc3"[..], HALF_GB, HALF_GB, &few].concat(),
        [&b"\x0d\x01k"[..], HALF_GB, b"\0\0\0\x20\x0a\0\0\0\x02\0\0\x80\x1f\0\0\0", &few].concat(),
        [&b"\x10\x01k"[..], HALF_GB, b"\0\0\0\x20\x02\0\xf0\0\0\0\x1f", &few].concat(),
        [&b"\x0b\x01k"[..], HALF_GB, b"\x08\0\0\0\xff\xff\xff\x03", &few].concat(),
        [&b"\x12\x01k"[..], HALF_GB, b"\x01", HALF_GB, &few].concat(),
        [&b"\x02\x01k"[..], HALF_GB, HALF_GB, &few].concat(),
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

/// A container that stands for 80 MB, and a collection of half a million elements: one element is held.
fn collections_are_not_held() {
    // A listpack of 200,000 strings of 400 zero bytes, compressed as a reference to the entry before each.
    let entry = [&b"\xe1\x90"[..], &[0; 400], &[3, 0x80 | 18]].concat();
    let mut packed = vec![5, 0, 0, 0, 0, 0xff, 0xff];
    let entry_count = 200_000_u64;
    for piece in entry.chunks(32) {
        packed.push(piece.len() as u8 - 1);
        packed.extend_from_slice(piece);
    }
    // Lengths of 264 and 140, from 404 bytes back.
    (1..entry_count).for_each(|_| packed.extend_from_slice(&[0xe1, 255, 147, 0xe1, 131, 147]));
    packed.extend_from_slice(&[0, 0xff]);
    let plain_bytes = 6 + 404 * entry_count + 1;
    packed[1..5].copy_from_slice(&(plain_bytes as u32).to_le_bytes());
    let lengths = [packed.len() as u64, plain_bytes].map(|length| (length as u32).to_be_bytes());
    let list = [&b"\x12\x01l\x01\x02\xc3\x80"[..], &lengths[0], b"\x80", &lengths[1], &packed].concat();
    let bytes = [b"REDIS0010", list.as_slice(), b"\xff\0\0\0\0\0\0\0\0"].concat();
    let before_kb = peak_mapped_kb();
    let mut reader = Reader::new(bytes.as_slice(), ReaderOptions::default());
    assert!(matches!(reader.next_up_to(0), Ok(Some(Next::Collection { .. }))));
    let mut count = 0;
    while let Some(element) = reader.element().expect("an element") {
        assert_eq!(element, Element::Item(&[0; 400]));
        count += 1;
    }
    assert_eq!(count, entry_count);
    assert!(matches!(reader.next_up_to(0), Ok(None)));

    let mut writer = Writer::new(Count(0), Header::default(), WriterOptions::default()).expect("a header");
    let member_count = 500_000_u32;
    let announced = Announced::SortedSet { member_count: u64::from(member_count), is_small: true };
    writer.begin_collection(b"z", announced, KeyMeta::default()).expect("a key");
    for number in 0..member_count {
        let member = number.to_be_bytes();
        writer.element(Element::Scored { member: &member, score: f64::from(number) }).expect("a member");
    }
    let written = writer.finish().expect("the end").0;
    assert!(written > 13 * u64::from(member_count));
    let grown_kb = peak_mapped_kb() - before_kb;
    assert!(grown_kb < 16 << 10, "{grown_kb} KB");
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
