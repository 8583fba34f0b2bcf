//! Containers of elements, put together by hand: every encoding of an entry, and every kind of damage.

use crate::bytes::{dump, entry, string, valkey_dump};
use crate::{read_all, skipping};
use stillframe_store::rdb::{
    Element, HashField, Next, RdbValue, ReadError, ReadErrorKind, Reader, ReaderOptions,
};

/// A string of the dump, of any length.
fn blob(bytes: &[u8]) -> Vec<u8> {
    [&[0x80][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

/// A ziplist of entries without what precedes each: the length of the one before, of 1 byte or of 5.
fn ziplist(entries: &[&[u8]], long_previous: bool) -> Vec<u8> {
    let (mut body, mut previous, mut tail) = (Vec::new(), 0, 10);
    for entry in entries {
        tail = 10 + body.len();
        match previous {
            0..=253 if !long_previous => body.push(previous as u8),
            _ => body.extend([&[0xfe][..], &(previous as u32).to_le_bytes()].concat()),
        }
        body.extend_from_slice(entry);
        previous = 10 + body.len() - tail;
    }
    let total = 10 + body.len() + 1;
    let count = (entries.len() as u16).to_le_bytes();
    [&(total as u32).to_le_bytes()[..], &(tail as u32).to_le_bytes(), &count, &body, b"\xff"].concat()
}

/// A listpack of entries without what follows each.
fn listpack(entries: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for entry in entries {
        body.extend_from_slice(entry);
        match entry.len() {
            length @ 0..=127 => body.push(length as u8),
            length @ 128..=16_382 => body.extend([(length >> 7) as u8, length as u8 & 0x7f | 0x80]),
            length => {
                body.extend([
                    (length >> 14) as u8,
                    (length >> 7) as u8 & 0x7f | 0x80,
                    length as u8 & 0x7f | 0x80,
                ]);
            }
        }
    }
    let count = (entries.len() as u16).to_le_bytes();
    [&((7 + body.len()) as u32).to_le_bytes()[..], &count, &body, b"\xff"].concat()
}

fn read(version: u32, code: u8, value: &[u8]) -> Result<RdbValue, ReadError> {
    let body = [&entry(code, "k", value)[..], &entry(0, "after", &string("v"))].concat();
    let bytes = if version < 80 { dump(version, &body) } else { valkey_dump(version, &body) };
    let mut entries = read_all(&bytes, ReaderOptions::default())?;
    assert_eq!(entries.last().map(|entry| entry.key.as_slice()), Some(&b"after"[..]));
    assert_eq!(entries.len(), 2);
    Ok(entries.remove(0).value)
}

fn items(texts: &[&str]) -> RdbValue {
    RdbValue::List(texts.iter().map(|text| text.as_bytes().to_vec()).collect())
}

#[test]
fn every_entry_of_a_ziplist_is_read() {
    let long = "x".repeat(300);
    let entries: [&[u8]; 15] = [
        b"\x00",
        b"\x03abc",
        &[b"\x41\x2c", long.as_bytes()].concat(),
        &[b"\x80\0\0\x01\x2c", long.as_bytes()].concat(),
        &[b"\xbf\0\0\0\x02", &b"hi"[..]].concat(),
        b"\xc0\x00\x80",
        b"\xd0\xff\xff\xff\x7f",
        b"\xe0\0\0\0\0\0\0\0\x80",
        b"\xf0\xff\xff\xff",
        b"\xf0\x00\x00\x80",
        b"\xfe\x80",
        b"\xfe\x7f",
        b"\xf1",
        b"\xfd",
        b"\x02-0",
    ];
    let expected = [
        "",
        "abc",
        &long,
        &long,
        "hi",
        "-32768",
        "2147483647",
        "-9223372036854775808",
        "-1",
        "-8388608",
        "-128",
        "127",
        "0",
        "12",
        "-0",
    ];
    for long_previous in [false, true] {
        let bytes = ziplist(&entries, long_previous);
        assert_eq!(read(9, 10, &blob(&bytes)).expect("a list"), items(&expected));
        let mut unknown = bytes.clone();
        unknown[8..10].fill(0xff);
        assert_eq!(read(9, 10, &blob(&unknown)).expect("a list"), items(&expected));
        // Two nodes, and an empty one, which is no error.
        let nodes = [&[3][..], &blob(&bytes), &blob(&ziplist(&[], false)), &blob(&bytes)].concat();
        assert_eq!(read(9, 14, &nodes).expect("a list"), items(&[expected, expected].concat()));
    }
}

#[test]
fn every_entry_of_a_listpack_is_read() {
    let (long, longer) = ("x".repeat(300), "y".repeat(20_000));
    let entries: [&[u8]; 16] = [
        b"\x00",
        b"\x7f",
        b"\x80",
        b"\x83abc",
        b"\xc0\x80",
        b"\xdf\xff",
        b"\xd0\x00",
        b"\xcf\xff",
        &[b"\xe1\x2c", long.as_bytes()].concat(),
        &[b"\xf0\x20\x4e\0\0", longer.as_bytes()].concat(),
        b"\xf1\x00\x80",
        b"\xf2\xff\xff\x7f",
        b"\xf2\xff\xff\xff",
        b"\xf3\x00\x00\x00\x80",
        b"\xf4\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\xf0\0\0\0\0",
    ];
    let expected = [
        "0",
        "127",
        "",
        "abc",
        "128",
        "-1",
        "-4096",
        "4095",
        &long,
        &longer,
        "-32768",
        "8388607",
        "-1",
        "-2147483648",
        "9223372036854775807",
        "",
    ];
    let bytes = listpack(&entries);
    let nodes = [&[3, 2][..], &blob(&bytes), &[2], &blob(&listpack(&[])), &[1], &blob(b"plain")].concat();
    assert_eq!(read(10, 18, &nodes).expect("a list"), items(&[&expected[..], &["plain"]].concat()));
    let mut unknown = bytes;
    unknown[4..6].fill(0xff);
    assert_eq!(read(10, 18, &[&[1, 2][..], &blob(&unknown)].concat()).expect("a list"), items(&expected));
}

#[test]
fn sets_of_integers_of_every_width_are_read() {
    let set = |numbers: &[i64], width: usize| {
        let numbers: Vec<u8> =
            numbers.iter().flat_map(|number| number.to_le_bytes()[..width].to_vec()).collect();
        let count = (numbers.len() / width) as u32;
        blob(&[&(width as u32).to_le_bytes()[..], &count.to_le_bytes(), &numbers].concat())
    };
    for (width, numbers) in
        [(2, [-32_768, 0, 32_767]), (4, [-2_147_483_648, -1, 2_147_483_647]), (8, [i64::MIN, 5, i64::MAX])]
    {
        let members = numbers.map(|number| number.to_string().into_bytes()).to_vec();
        assert_eq!(read(9, 11, &set(&numbers, width)).expect("a set"), RdbValue::Set(members));
    }
    for (numbers, problem) in [
        (&[1, 1][..], "its numbers are not in order"),
        (&[2, 1], "its numbers are not in order"),
        (&[], "it is empty"),
    ] {
        assert_eq!(problem_of(11, &set(numbers, 4)), format!("malformed intset: {problem}"));
    }
}

#[test]
fn zipmaps_are_read() {
    let long = "v".repeat(254);
    let map = [
        b"\x02\x01f\x03\x02vwx\0\0\x00\xfe\xfe\0\0\0\0"[..].to_vec(),
        long.clone().into_bytes(),
        b"\xff".to_vec(),
    ];
    let field = |field: &str, value: &str| HashField {
        field: field.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
        deadline_ms: None,
    };
    let expected = RdbValue::Hash(vec![field("f", "vwx"), field("", &long)]);
    assert_eq!(read(2, 9, &blob(&map.concat())).expect("a hash"), expected);
    let mut unknown = map.concat();
    unknown[0] = 254;
    assert_eq!(read(2, 9, &blob(&unknown)).expect("a hash"), expected);
}

fn hash(fields: &[(&str, &str, Option<i64>)]) -> RdbValue {
    let field = |(field, value, deadline_ms): &(&str, &str, _)| HashField {
        field: field.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
        deadline_ms: *deadline_ms,
    };
    RdbValue::Hash(fields.iter().map(field).collect())
}

/// Type 22 is one thing in a preview of Redis 7.4 and another in Valkey 9.
#[test]
fn deadlines_of_fields_are_read_in_every_form() {
    let at_ms: i64 = 4_102_444_800_123;
    let length = |number: u64| [&[0x81][..], &number.to_be_bytes()].concat();
    let (f, g, v, w) = (string("f"), string("g"), string("v"), string("w"));
    let preview = [&[2][..], &[0], &f, &v, &length(at_ms.unsigned_abs()), &g, &w].concat();
    let valkey = [&[2][..], &f, &v, &(-1_i64).to_le_bytes(), &g, &w, &at_ms.to_le_bytes()].concat();
    let later = [&at_ms.to_le_bytes()[..], &[3, 0], &f, &v, &[1], &g, &w, &[11], &string("h"), &v].concat();
    let time = [&b"\xf4"[..], &at_ms.to_le_bytes()].concat();
    let triples = blob(&listpack(&[b"\x81g", b"\x81w", &time, b"\x81f", b"\x81v", b"\x00"]));
    let expected = hash(&[("f", "v", None), ("g", "w", Some(at_ms))]);
    assert_eq!(read(12, 22, &preview).expect("a hash"), expected);
    assert_eq!(read(80, 22, &valkey).expect("a hash"), expected);
    assert_eq!(
        read(12, 24, &later).expect("a hash"),
        hash(&[("f", "v", None), ("g", "w", Some(at_ms)), ("h", "v", Some(at_ms + 10))])
    );
    let expected = hash(&[("g", "w", Some(at_ms)), ("f", "v", None)]);
    assert_eq!(read(12, 23, &triples).expect("a hash"), expected);
    assert_eq!(read(12, 25, &[&at_ms.to_le_bytes()[..], &triples].concat()).expect("a hash"), expected);
    // Before version 12 nothing has these codes, and Valkey has the first alone.
    for (version, code) in [(11, 22), (11, 25), (81, 24), (80, 25)] {
        let kind = read(version, code, &preview).expect_err("no such type").kind;
        assert!(matches!(kind, ReadErrorKind::UnknownOpcode(found) if found == code), "{kind}");
    }
    let kind = read(81, 23, &preview).expect_err("a type of Valkey alone").kind;
    assert!(matches!(kind, ReadErrorKind::UnsupportedType { family: "path hash", .. }), "{kind}");

    let beyond = 1_u64 << 48;
    for (version, code, value) in [
        (12, 22, [&[1][..], &length(beyond), &f, &v].concat()),
        (12, 24, [&[0xff; 8][..], &[1, 9], &f, &v].concat()),
        (12, 24, [&beyond.to_le_bytes()[..], &[1, 1], &f, &v].concat()),
        (12, 23, blob(&listpack(&[b"\x81g", b"\x81w", b"\xf1\xff\xff"]))),
        (12, 23, blob(&listpack(&[b"\x81g", b"\x81w", b"\x81x"]))),
        (80, 22, [&[1][..], &f, &v, &(-2_i64).to_le_bytes()].concat()),
    ] {
        let kind = read(version, code, &value).expect_err("no such deadline").kind;
        assert!(
            matches!(kind, ReadErrorKind::BadElement("a field has a deadline outside the range")),
            "{kind}"
        );
    }
}

fn problem_of(code: u8, value: &[u8]) -> String {
    let error = read(9, code, value).expect_err("damage");
    let message = error.kind.to_string();
    let named = error.to_string();
    assert!(named.contains(" at key \"k\" in db 0, byte "), "{named}");
    message.strip_prefix("corrupt dump: ").expect("corrupt dump").to_string()
}

fn changed(bytes: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] = byte;
    blob(&bytes)
}

#[test]
fn damage_in_a_container_is_named() {
    let zip = ziplist(&[b"\x03abc", b"\x03def"], false);
    for (at, byte, problem) in [
        (0, 22, "its length is not what it says"),
        (4, 10, "its last entry is not where it says"),
        (8, 1, "it has not as many entries as it says"),
        (10, 1, "an entry is not as long as the next one says"),
        (15, 6, "an entry is not as long as the next one says"),
        (11, 0xc1, "an entry has an unknown encoding"),
        (11, 0xff, "an entry has an unknown encoding"),
        (16, 0x3f, "it ends inside an entry"),
        (16, 0xbf, "it ends inside an entry"),
        (10, 0xff, "it goes on after its end mark"),
        (20, 0, "an entry is not as long as the next one says"),
    ] {
        let message = problem_of(10, &changed(&zip, at, byte));
        assert_eq!(message, format!("malformed ziplist: {problem}"), "{at}");
    }
    let pack = listpack(&[b"\x83abc", b"\x05"]);
    for (at, byte, problem) in [
        (0, 22, "its length is not what it says"),
        (4, 3, "it has not as many entries as it says"),
        (6, 0xf5, "an entry has an unknown encoding"),
        (6, 0xfe, "an entry has an unknown encoding"),
        (6, 0xbf, "it ends inside an entry"),
        (10, 5, "an entry is not as long as it says"),
        (6, 0xff, "it goes on after its end mark"),
        (13, 1, "it ends inside an entry"),
    ] {
        let message = problem_of(18, &[&[1, 2][..], &changed(&pack, at, byte)].concat());
        let expected = format!("malformed listpack: {problem}");
        assert!(message == expected || at == 13, "{at}: {message}");
    }
    let map = b"\x01\x01f\x01\0v\xff";
    for (at, byte, problem) in [
        (0, 2, "it has not as many entries as it says"),
        (3, 0xff, "a field has no value"),
        (4, 9, "it ends inside an entry"),
        (1, 0xff, "it goes on after its end mark"),
    ] {
        assert_eq!(problem_of(9, &changed(map, at, byte)), format!("malformed zipmap: {problem}"), "{at}");
    }
    assert_eq!(
        problem_of(11, &blob(b"\x03\0\0\0\0\0\0\0")),
        "malformed intset: its numbers have an unknown width"
    );
    assert_eq!(
        problem_of(11, &blob(b"\x02\0\0\0\x02\0\0\0\x01\0")),
        "malformed intset: its length is not what it says"
    );
    assert_eq!(problem_of(10, b"\xc0\x05"), "malformed ziplist: it is a number");
    assert_eq!(problem_of(16, b"\0"), "malformed listpack: it ends inside an entry");
    assert_eq!(
        problem_of(14, &[&[1][..], &string("")].concat()),
        "malformed ziplist: it ends inside an entry"
    );
}

#[test]
fn elements_that_cannot_be_are_named() {
    let a = string("a");
    let odd = blob(&listpack(&[b"\x81a", b"\x81b", b"\x81c"]));
    let twice = blob(&listpack(&[b"\x81a", b"\x81b", b"\x81a", b"\x81c"]));
    let scored = |score: &[u8]| blob(&listpack(&[b"\x81a", score]));
    for (code, value, problem) in [
        (16, odd, "the last element lacks its second part"),
        (17, blob(&listpack(&[b"\x81a", b"\x01", b"\x81c"])), "the last element lacks its second part"),
        (16, twice.clone(), "an element comes twice"),
        (20, twice, "an element comes twice"),
        (2, [&[2][..], &a, &a].concat(), "an element comes twice"),
        (5, [&[2][..], &a, &[0; 8], &a, &[0; 8]].concat(), "an element comes twice"),
        (4, [&[2][..], &a, &a, &a, &a].concat(), "an element comes twice"),
        (5, [&[1][..], &a, &f64::NAN.to_le_bytes()].concat(), "a score is not a number"),
        (3, [&[1][..], &a, &[253]].concat(), "a score is not a number"),
        (3, [&[1][..], &a, &string("1.5x")].concat(), "a score is not a number"),
        (3, [&[1][..], &a, &[0]].concat(), "a score is not a number"),
        (17, scored(b"\x83nan"), "a score is not a number"),
        (17, scored(b"\x81x"), "a score is not a number"),
        (18, [&[1, 3][..], &a].concat(), "a node of a list has an unknown kind"),
        (18, [&[1, 1][..], &string("")].concat(), "a plain node of a list is empty"),
    ] {
        assert_eq!(problem_of(code, &value), problem, "{code}");
    }
    let score = |score: &[u8]| read(10, 17, &scored(score)).expect("a score");
    for (text, expected) in
        [(&b"\x83inf"[..], f64::INFINITY), (b"\x84-inf", f64::NEG_INFINITY), (b"\x85-1e-5", -1e-5)]
    {
        assert_eq!(score(text), RdbValue::SortedSet(vec![(b"a".to_vec(), expected)]));
    }
}

#[test]
fn a_compressed_container_is_read_as_it_is_expanded() {
    // A literal run, then a reference that makes the entry before twenty times.
    let mut entries: Vec<&[u8]> =
        vec![b"\x3cxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"; 5];
    entries.push(b"\xfe\x11");
    let plain = ziplist(&entries, false);
    let mut packed = Vec::new();
    plain.chunks(32).for_each(|run| {
        packed.push(run.len() as u8 - 1);
        packed.extend_from_slice(run);
    });
    let head = |packed: usize, plain: usize| {
        [&b"\xc3\x80"[..], &(packed as u32).to_be_bytes(), b"\x80", &(plain as u32).to_be_bytes()].concat()
    };
    let value = [&head(packed.len(), plain.len())[..], &packed].concat();
    let x = "x".repeat(60);
    assert_eq!(read(9, 10, &value).expect("a list"), items(&[&x, &x, &x, &x, &x, "17"]));
    for (packed_bytes, plain_bytes) in [(packed.len() - 1, plain.len()), (packed.len(), plain.len() - 1)] {
        let value = [&head(packed_bytes, plain_bytes)[..], &packed].concat();
        assert!(read(9, 10, &value).is_err());
    }
}

#[test]
fn empty_collections_are_left_out_and_counted() {
    let nodes = [&[1][..], &blob(&ziplist(&[], false))].concat();
    let cases = [
        (1, vec![0]),
        (2, vec![0]),
        (3, vec![0]),
        (4, vec![0]),
        (5, vec![0]),
        (9, blob(b"\0\xff")),
        (10, blob(&ziplist(&[], false))),
        (12, blob(&ziplist(&[], true))),
        (14, vec![0]),
        (14, nodes),
        (16, blob(&listpack(&[]))),
        (18, vec![0]),
        (20, blob(&listpack(&[]))),
    ];
    let empty_count = cases.len() as u64;
    let empty: Vec<u8> = cases.iter().flat_map(|(code, value)| entry(*code, "empty", value)).collect();
    // Their deadline is not that of the next key.
    let body = [&b"\xfd\x80\x51\x01\x00"[..], &empty, &entry(0, "k", &string("v"))].concat();
    let bytes = dump(10, &body);
    let mut reader = Reader::new(bytes.as_slice(), skipping());
    let entries: Vec<_> = reader.by_ref().map(|entry| entry.expect("an entry")).collect();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].meta.expire_at_ms, None);
    assert_eq!(reader.empty_key_count(), empty_count);
}

#[test]
fn the_elements_of_a_dump_come_one_by_one() {
    let members: Vec<u8> = (10..60).flat_map(|number| string(&format!("member {number}"))).collect();
    let set = entry(2, "set", &[&[50][..], &members].concat());
    let list = entry(18, "list", &[&[1, 1][..], &string("item")].concat());
    let bytes = dump(10, &[&set[..], &list, &set, &entry(0, "k", &string("v"))].concat());
    let mut reader = Reader::new(bytes.as_slice(), ReaderOptions::default());
    let Ok(Some(Next::Collection { key, count_hint, .. })) = reader.next_up_to(100) else { panic!("a set") };
    assert_eq!((key.as_slice(), count_hint), (&b"set"[..], Some(50)));
    for number in 10..60 {
        let member = format!("member {number}");
        assert_eq!(reader.element().expect("a member"), Some(Element::Member(member.as_bytes())));
    }
    assert_eq!(reader.element().expect("the end"), None);
    assert_eq!(reader.element().expect("the end"), None);
    let Ok(Some(Next::Collection { count_hint: None, .. })) = reader.next_up_to(100) else {
        panic!("a list")
    };
    assert_eq!(reader.element().expect("an item"), Some(Element::Item(b"item")));
    // What is not asked for is passed over.
    let Ok(Some(Next::Collection { .. })) = reader.next_up_to(100) else { panic!("a set") };
    assert_eq!(reader.element().expect("a member"), Some(Element::Member(b"member 10")));
    let Ok(Some(Next::Entry(entry))) = reader.next_up_to(100) else { panic!("a string") };
    assert_eq!(entry.key, b"k");
    assert_eq!(reader.element().expect("no collection"), None);
    assert!(matches!(reader.next_up_to(100), Ok(None)));
}

#[test]
fn a_caller_that_sees_an_element_twice_ends_the_reading() {
    let set = entry(2, "set", &[&[2][..], &string("a"), &string("a")].concat());
    let bytes = dump(10, &set);
    let mut reader = Reader::new(bytes.as_slice(), ReaderOptions::default());
    assert!(matches!(reader.next_up_to(100), Ok(Some(Next::Collection { .. }))));
    assert!(reader.element().expect("a member").is_some() && reader.element().expect("a member").is_some());
    assert_eq!(
        reader.refuse_duplicate().to_string(),
        "corrupt dump: an element comes twice at key \"set\" in db 0, byte 19 of dump.rdb"
    );
    assert!(matches!(reader.element(), Err(error) if matches!(error.kind, ReadErrorKind::Failed)));
    assert!(matches!(reader.next_up_to(100), Err(error) if matches!(error.kind, ReadErrorKind::Failed)));
}
