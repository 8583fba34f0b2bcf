//! Random commands on streams and their groups. What is told of times is not compared, but for those that commands give.

use fastrand::Rng;

use crate::gen::{Gen, Words};
use crate::gen_elements;
use crate::sequence::Sequence;
use crate::words;

const NAMES: &[&str] = &[
    "XADD",
    "XADD",
    "XADD",
    "XADD",
    "XADD",
    "XADD",
    "XADD",
    "XDEL",
    "XTRIM",
    "XLEN",
    "XRANGE",
    "XREVRANGE",
    "XREAD",
    "XSETID",
    "XINFO",
    "XINFO",
    "XGROUP",
    "XGROUP",
    "XREADGROUP",
    "XREADGROUP",
    "XREADGROUP",
    "XACK",
    "XPENDING",
    "XPENDING",
    "XCLAIM",
    "XAUTOCLAIM",
    "DEBUG",
    "OBJECT",
    "KEY",
    "OTHER",
];

fn key(gen: &mut Gen) -> Vec<u8> {
    gen.pick(&["x", "x", "x", "x", "y", "y", "z", "s"]).into()
}

fn id(gen: &mut Gen) -> Vec<u8> {
    let odd = [
        "0-0",
        "-",
        "+",
        "$",
        ">",
        "1-",
        "-1",
        "5-x",
        "(5",
        "0",
        "18446744073709551615-18446744073709551615",
    ];
    match gen.rng.u8(0..20) {
        0 => gen.pick(&odd).into(),
        1 => gen.odd_number(),
        2..=5 => gen.rng.u32(0..60).to_string().into_bytes(),
        _ => format!("{}-{}", gen.rng.u32(0..60), gen.rng.u32(0..3)).into_bytes(),
    }
}

fn bound(gen: &mut Gen, open: &str) -> Vec<u8> {
    match gen.rng.u8(0..4) {
        0 => id(gen),
        1 => [b"(", &id(gen)[..]].concat(),
        _ => open.into(),
    }
}

fn count(gen: &mut Gen, words: &mut Words) {
    if gen.chance(50) {
        words.push(gen.case("COUNT"));
        words.push(gen.rng.i32(-1..12).to_string().into_bytes());
    }
}

fn ids(gen: &mut Gen, words: &mut Words) {
    for _ in 0..gen.rng.usize(1..4) {
        words.push(id(gen));
    }
}

/// Entries of the same fields are kept without them.
fn pairs(gen: &mut Gen, words: &mut Words) {
    for _ in 0..gen.pick(&[1, 1, 2, 3]) {
        words.push(gen.pick(&["a", "b", "a", "field"]).into());
        words.push(match gen.rng.u8(0..10) {
            0 => vec![b'v'; gen.pick(&[100, 500, 1000, 3000, 5000])],
            1..=3 => gen.small_int().into_bytes(),
            _ => vec![b'v'; gen.rng.usize(0..40)],
        });
    }
}

fn trim(gen: &mut Gen, words: &mut Words) {
    let by_length = gen.rng.bool();
    words.push(gen.case(if by_length { "MAXLEN" } else { "MINID" }));
    match gen.rng.u8(0..3) {
        0 if by_length => words.push("~".into()),
        1 => words.push("=".into()),
        _ => {}
    }
    words.push(if by_length { gen.rng.i32(-1..30).to_string().into_bytes() } else { id(gen) });
    if gen.chance(20) {
        words.push(gen.case("LIMIT"));
        words.push(gen.pick(&["-1", "0", "1", "5", "1000"]).into());
    }
}

fn add(gen: &mut Gen, key: Vec<u8>) -> Words {
    let mut words = words!["XADD", key];
    if gen.chance(5) {
        words.push(gen.case("NOMKSTREAM"));
    }
    if gen.chance(10) {
        trim(gen, &mut words);
    }
    words.push(match gen.rng.u8(0..4) {
        0 => id(gen),
        _ => format!("{}-*", gen.rng.u32(0..60)).into_bytes(),
    });
    pairs(gen, &mut words);
    words
}

fn group(gen: &mut Gen) -> Vec<u8> {
    gen.pick(&["g", "g", "h", ""]).into()
}

fn consumer(gen: &mut Gen) -> Vec<u8> {
    gen.pick(&["c", "c", "d", "STREAMS"]).into()
}

fn of_groups(gen: &mut Gen, key: Vec<u8>) -> Words {
    let group = group(gen);
    match gen.rng.u8(0..8) {
        0..=3 => {
            let mut words = words!["XGROUP", "CREATE", key, group, gen.pick(&["$", "0", "0-0", "5"])];
            if gen.chance(60) {
                words.push(gen.case("MKSTREAM"));
            }
            if gen.chance(20) {
                words.push(gen.case("ENTRIESREAD"));
                words.push(gen.rng.i32(-2..20).to_string().into_bytes());
            }
            words
        }
        4 => words!["XGROUP", "SETID", key, group, id(gen)],
        5 => words!["XGROUP", "DESTROY", key, group],
        6 => words!["XGROUP", "CREATECONSUMER", key, group, consumer(gen)],
        _ => words!["XGROUP", "DELCONSUMER", key, group, consumer(gen)],
    }
}

fn read(gen: &mut Gen, is_of_group: bool) -> Words {
    let mut words = match is_of_group {
        true => words!["XREADGROUP", gen.case("GROUP"), group(gen), consumer(gen)],
        false => words!["XREAD"],
    };
    count(gen, &mut words);
    if is_of_group && gen.chance(10) {
        words.push(gen.case("NOACK"));
    }
    words.push(gen.case("STREAMS"));
    let key_count = gen.pick(&[1, 1, 1, 2, 3]);
    (0..key_count).for_each(|_| words.push(key(gen)));
    for _ in 0..key_count {
        let usual = if is_of_group { ">" } else { "0" };
        words.push(if gen.chance(60) { usual.into() } else { id(gen) });
    }
    words
}

fn pending(gen: &mut Gen, key: Vec<u8>) -> Words {
    let mut words = words!["XPENDING", key, group(gen)];
    if gen.chance(70) {
        if gen.chance(20) {
            words.push(gen.case("IDLE"));
            words.push(gen.pick(&["0", "1000000"]).into());
        }
        words.extend([bound(gen, "-"), bound(gen, "+"), gen.rng.i32(-1..10).to_string().into_bytes()]);
        if gen.chance(30) {
            words.push(consumer(gen));
        }
    }
    words
}

fn claim(gen: &mut Gen, key: Vec<u8>) -> Words {
    let idle = gen.pick(&["0", "0", "0", "-1", "1000000"]);
    let mut words = words!["XCLAIM", key, group(gen), consumer(gen), idle];
    ids(gen, &mut words);
    for (option, values) in [
        ("FORCE", &[][..]),
        ("JUSTID", &[]),
        ("RETRYCOUNT", &["-1", "0", "3"]),
        ("IDLE", &["0", "5"]),
        ("LASTID", &["5-0"]),
    ] {
        if gen.chance(20) {
            words.push(gen.case(option));
            if !values.is_empty() {
                words.push(gen.pick(values).into());
            }
        }
    }
    words
}

fn command(gen: &mut Gen) -> Words {
    let (name, key_word) = (gen.pick(NAMES), key(gen));
    match name {
        "XADD" => add(gen, key_word),
        "XDEL" => {
            let mut words = words![name, key_word];
            ids(gen, &mut words);
            words
        }
        "XTRIM" => {
            let mut words = words![name, key_word];
            trim(gen, &mut words);
            words
        }
        "XRANGE" | "XREVRANGE" => {
            let ends = if name == "XRANGE" { ["-", "+"] } else { ["+", "-"] };
            let mut words = words![name, key_word, bound(gen, ends[0]), bound(gen, ends[1])];
            count(gen, &mut words);
            words
        }
        "XREAD" => read(gen, false),
        "XREADGROUP" => read(gen, true),
        "XSETID" => {
            let mut words = words![name, key_word, id(gen)];
            if gen.chance(30) {
                words.extend(words!["ENTRIESADDED", gen.rng.i32(-1..50).to_string()]);
            }
            if gen.chance(30) {
                words.extend(words!["MAXDELETEDID", id(gen)]);
            }
            words
        }
        "XINFO" => match gen.rng.u8(0..5) {
            0 => words![name, "GROUPS", key_word],
            1 => words![name, "CONSUMERS", key_word, group(gen)],
            2 => words![name, "STREAM", key_word],
            3 => words![name, "STREAM", key_word, gen.case("FULL"), "COUNT", gen.pick(&["0", "1", "-1"])],
            _ => words![name, "STREAM", key_word, gen.case("FULL")],
        },
        "XGROUP" => of_groups(gen, key_word),
        "XACK" => {
            let mut words = words![name, key_word, group(gen)];
            ids(gen, &mut words);
            words
        }
        "XPENDING" => pending(gen, key_word),
        "XCLAIM" => claim(gen, key_word),
        "XAUTOCLAIM" => {
            let idle = gen.pick(&["0", "0", "1000000"]);
            let mut words = words![name, key_word, group(gen), consumer(gen), idle, bound(gen, "-")];
            count(gen, &mut words);
            if gen.chance(30) {
                words.push(gen.case("JUSTID"));
            }
            words
        }
        "DEBUG" => words![name, "DIGEST-VALUE", key_word],
        "OBJECT" => words![name, "ENCODING", key_word],
        "KEY" => gen_elements::on_key(gen, key_word, "stream", key),
        "OTHER" => words![gen.pick(&["SET", "LPUSH", "SADD"]), gen.pick(&["s", "x"]), "v"],
        _ => words![name, key_word],
    }
}

/// A sequence by its seed.
pub fn sequence(seed: u64) -> Sequence {
    gen_elements::sequence(Gen::new(Rng::with_seed(seed)), seed, command, |_| None)
}
