//! Requests in any pieces give the same commands and errors as in one; arguments lie inside the buffer.

#![no_main]

use stillframe_engine::protocol::request::{Limits, Parsed, Parser};

/// The commands and, if the connection is to be closed, the error.
type Outcome = (Vec<Vec<Vec<u8>>>, Option<String>);

fn parse(input: &[u8], piece_bytes: usize, limits: Limits) -> Outcome {
    let mut parser = Parser::default();
    let mut buf = Vec::new();
    let mut commands = Vec::new();
    for piece in input.chunks(piece_bytes) {
        buf.extend_from_slice(piece);
        let mut start = 0;
        loop {
            let mut ranges = Vec::new();
            match parser.next(&mut buf, start, &mut ranges, limits) {
                Parsed::Command { end } => {
                    assert!(end > start && end <= buf.len());
                    let arg = |start: u32, len: u32| buf[start as usize..][..len as usize].to_vec();
                    commands.push(ranges.iter().map(|range| arg(range.start, range.len)).collect());
                    start = end;
                }
                Parsed::Nothing { end } => {
                    assert!(end > start && end <= buf.len());
                    start = end;
                }
                Parsed::Incomplete { missing } => {
                    assert!(missing > 0 && ranges.is_empty());
                    break;
                }
                Parsed::Error(error) => return (commands, Some(error)),
            }
        }
        buf.drain(..start);
    }
    (commands, None)
}

libfuzzer_sys::fuzz_target!(|input: (u8, bool, &[u8])| {
    let (piece_bytes, is_authenticated, bytes) = input;
    let limits = Limits { max_bulk_bytes: 512 << 20, is_authenticated };
    let whole = parse(bytes, bytes.len().max(1), limits);
    let pieces = parse(bytes, usize::from(piece_bytes).max(1), limits);
    assert_eq!(pieces, whole);
});
