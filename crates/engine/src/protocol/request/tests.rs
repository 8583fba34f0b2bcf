use super::*;

const LIMITS: Limits = Limits { max_bulk_bytes: 512 << 20, is_authenticated: true };

/// All commands of `input`, given to the parser in pieces that end at `cuts`.
fn parse(input: &[u8], cuts: &[usize], limits: Limits) -> Result<Vec<Vec<Vec<u8>>>, String> {
    let mut parser = Parser::default();
    let mut buf = Vec::new();
    let mut start = 0;
    let mut commands = Vec::new();
    let mut from = 0;
    for &cut in cuts.iter().chain([&input.len()]) {
        buf.extend_from_slice(&input[from..cut]);
        from = cut;
        loop {
            let mut ranges = Vec::new();
            match parser.next(&mut buf, start, &mut ranges, limits) {
                Parsed::Command { end } => {
                    let arg = |r: &ArgRange| buf[r.start as usize..(r.start + r.len) as usize].to_vec();
                    commands.push(ranges.iter().map(arg).collect());
                    start = end;
                }
                Parsed::Nothing { end } => start = end,
                Parsed::Incomplete { missing } => {
                    assert!(missing > 0);
                    assert!(ranges.is_empty());
                    break;
                }
                Parsed::Error(error) => return Err(error),
            }
        }
        buf.drain(..start);
        start = 0;
    }
    Ok(commands)
}

fn error_of(input: &[u8]) -> String {
    parse(input, &[], LIMITS).unwrap_err()
}

#[test]
fn commands_are_taken_apart() {
    let input = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n\r\n*0\r\n*-1\r\nPING 'a b'\r\n*1\r\n$0\r\n\r\n";
    let commands = parse(input, &[], LIMITS).unwrap();
    let expected: [&[&[u8]]; 3] = [&[b"GET", b"a"], &[b"PING", b"a b"], &[b""]];
    assert_eq!(commands, expected);
}

#[test]
fn every_cut_gives_the_same() {
    let input = b"*3\r\n$3\r\nSET\r\n$2\r\nk\r\r\n$3\r\n\n\n\n\r\nget \"\\x41\" b\n*1\r\n$4\r\nPING\r\n";
    let whole = parse(input, &[], LIMITS).unwrap();
    assert_eq!(whole.len(), 3);
    for a in 0..input.len() {
        for b in a..input.len() {
            assert_eq!(parse(input, &[a, b], LIMITS).unwrap(), whole, "cuts at {a} and {b}");
        }
    }
}

#[test]
fn errors_are_those_of_redis() {
    assert_eq!(error_of(b"*x\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error_of(b"*01\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error_of(b"*2147483648\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error_of(b"*99999999999999999999\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error_of(b"*1\r\n:1\r\n"), "Protocol error: expected '$', got ':'");
    assert_eq!(error_of(b"*1\r\n$-1\r\n"), "Protocol error: invalid bulk length");
    assert_eq!(error_of(b"*1\r\n$536870913\r\n"), "Protocol error: invalid bulk length");
    assert_eq!(error_of(b"*1\r\n$+1\r\n"), "Protocol error: invalid bulk length");
    assert_eq!(error_of(b"get 'a\r\n"), "Protocol error: unbalanced quotes in request");
    assert_eq!(error_of(&[b'a'; LINE_MAX_BYTES + 1]), "Protocol error: too big inline request");
    let mut long = b"*".to_vec();
    long.resize(LINE_MAX_BYTES + 2, b'1');
    assert_eq!(error_of(&long), "Protocol error: too big mbulk count string");
    let mut long = b"*1\r\n$".to_vec();
    long.resize(LINE_MAX_BYTES + 8, b'1');
    assert_eq!(error_of(&long), "Protocol error: too big bulk count string");
}

#[test]
fn strangers_may_send_little() {
    let limits = Limits { is_authenticated: false, ..LIMITS };
    let error = |input: &[u8]| parse(input, &[], limits).unwrap_err();
    assert_eq!(error(b"*11\r\n"), "Protocol error: unauthenticated multibulk length");
    assert_eq!(error(b"*1\r\n$16385\r\n"), "Protocol error: unauthenticated bulk length");
    assert!(parse(b"*10\r\n$16384\r\n", &[], limits).is_ok());
}

#[test]
fn numbers_are_strict() {
    for (text, value) in [
        ("0", Some(0)),
        ("-0", None),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("9223372036854775808", None),
        ("-9223372036854775808", Some(i64::MIN)),
        ("-9223372036854775809", None),
        ("18446744073709551616", None),
        ("99999999999999999999", None),
        ("", None),
        ("-", None),
        ("007", None),
        (" 7", None),
        ("7 ", None),
    ] {
        assert_eq!(parse_i64(text.as_bytes()), value, "{text:?}");
    }
}

/// Random bytes, and valid input with random damage, in random pieces: no panic, and the pieces do not matter.
#[test]
fn damaged_input_is_refused_alike_in_any_pieces() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for _ in 0..20_000 {
        let mut input = Vec::new();
        for _ in 0..rng.usize(1..4) {
            let count = rng.usize(0..4);
            input.extend_from_slice(format!("*{count}\r\n").as_bytes());
            for _ in 0..count {
                let len = rng.usize(0..6);
                input.extend_from_slice(format!("${len}\r\n").as_bytes());
                input.extend((0..len).map(|_| rng.u8(..)));
                input.extend_from_slice(b"\r\n");
            }
        }
        for _ in 0..rng.usize(0..4) {
            let at = rng.usize(..input.len());
            input[at] = *rng.choice(b"*$0123456789-\r\n'\" \\x\0").unwrap_or(&0);
        }
        input.truncate(rng.usize(..=input.len()));
        let mut cuts: Vec<usize> = (0..rng.usize(0..4)).map(|_| rng.usize(..=input.len())).collect();
        cuts.sort_unstable();
        assert_eq!(parse(&input, &cuts, LIMITS), parse(&input, &[], LIMITS), "{input:?} {cuts:?}");
    }
}

/// Of a bulk string that went elsewhere the buffer has some bytes, or none; the commands after it are like any other.
#[test]
fn a_received_bulk_has_the_bytes_that_were_kept() {
    let header = b"*2\r\n$3\r\nGET\r\n*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000\r\n".to_vec();
    for kept_bytes in [0, 1, 7] {
        let mut buf = header.clone();
        buf.extend(vec![b'v'; kept_bytes]);
        let rest = b"\r\n$2\r\nNX\r\n*1\r\n$4\r\nPING\r\n";
        let mut parser = Parser::default();
        let mut ranges = Vec::new();
        let start = 4 + 9;
        assert!(matches!(parser.next(&mut buf, start, &mut ranges, LIMITS), Parsed::Incomplete { .. }));
        let awaited = parser.awaited().expect("a value");
        assert_eq!((awaited.before.len(), start + awaited.at, awaited.len_bytes), (2, header.len(), 1000));
        parser.received_mut().push(Received { at: header.len(), kept_bytes });
        buf.extend_from_slice(rest);
        // Also when the command is parsed again.
        for _ in 0..2 {
            ranges.clear();
            let Parsed::Command { end } = parser.next(&mut buf, start, &mut ranges, LIMITS) else {
                panic!("a command")
            };
            assert_eq!(end, buf.len() - 14);
            let lengths: Vec<_> = ranges.iter().map(|range| range.len as usize).collect();
            assert_eq!(lengths, [3, 1, kept_bytes, 2]);
            parser.reset();
        }
        ranges.clear();
        let at = buf.len() - 14;
        assert_eq!(parser.next(&mut buf, at, &mut ranges, LIMITS), Parsed::Command { end: at + 14 });
        assert_eq!(ranges[0].len, 4);
    }
}
