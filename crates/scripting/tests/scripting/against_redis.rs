//! Each script of the tables gives the same bytes here and on redis-server, for clients of both protocols.

use stillframe_scripting::Resp;

use crate::cases;
use crate::server::Pair;

fn check(scripts: &[&str]) {
    let mut pair = Pair::start();
    let mut different = Vec::new();
    for source in scripts {
        for resp in [Resp::Two, Resp::Three] {
            let keys: [&[u8]; 2] = [b"k1", b"k2"];
            different.extend(pair.compare(source.as_bytes(), &keys, &[b"a1", b"a2", b"3"], resp));
        }
    }
    assert!(different.is_empty(), "{} of {}:\n{}", different.len(), scripts.len(), different.join("\n"));
}

#[test]
fn values() {
    check(cases::VALUES);
}

/// A function of C's has 8,000 slots of Lua's stack: what is kept in them while it is written would be bounded by that.
#[test]
fn more_elements_than_lua_has_slots() {
    const LIST: &str = "local t = {} for i = 1, 20000 do t[i] = 'v' .. i end ";
    const MAP: &str = "local t = {} for i = 1, 20000 do t['k' .. i] = 'v' .. i end ";
    let ends = [
        "return t",
        "return {map = t}",
        "return {set = t}",
        "return cjson.encode(t)",
        "return cmsgpack.pack(t)",
        "local u = cjson.decode(cjson.encode(t)) return {u[20000], u.k1}",
        "local u = cmsgpack.unpack(cmsgpack.pack(t)) return {u[20000], u.k1}",
    ];
    let scripts: Vec<String> =
        [LIST, MAP].iter().flat_map(|begin| ends.map(|end| format!("{begin}{end}"))).collect();
    check(&scripts.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Few and many; some are no text.
#[test]
fn keys_and_arguments() {
    let mut pair = Pair::start();
    let source = b"local n = 0 for _ in pairs(KEYS) do n = n + 1 end return {n, #KEYS, #ARGV, KEYS, ARGV}";
    let words: Vec<Vec<u8>> = (0..5000).map(|n: u32| n.to_le_bytes()[..(n % 5) as usize].to_vec()).collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    for (key_count, arg_count) in [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 3),
        (0, 999),
        (999, 0),
        (500, 500),
        (500, 501),
        (0, 1001),
        (5000, 5000),
    ] {
        let different = pair.compare(source, &words[..key_count], &words[..arg_count], Resp::Two);
        assert!(different.is_none(), "{key_count} keys, {arg_count} arguments: {different:?}");
    }
}

#[test]
fn errors() {
    check(cases::ERRORS);
}

#[test]
fn base() {
    check(cases::BASE);
}

#[test]
fn strings() {
    check(cases::STRINGS);
}

#[test]
fn redis_table() {
    check(cases::REDIS);
}

#[test]
fn json() {
    check(cases::JSON);
}

#[test]
fn msgpack() {
    check(cases::MSGPACK);
}

#[test]
fn structs_and_bits() {
    check(cases::STRUCTS_AND_BITS);
}

#[test]
fn headers() {
    check(cases::HEADERS);
}
