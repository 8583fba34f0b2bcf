//! Random commands of HyperLogLog, and some that look at or spoil what they keep.

use crate::gen::{Gen, Words};
use crate::words;

const NAMES: &[&str] = &[
    "PFADD", "PFADD", "PFADD", "PFADD", "PFADD", "PFCOUNT", "PFCOUNT", "PFCOUNT", "PFMERGE", "PFMERGE",
    "PFDEBUG", "PFDEBUG", "GET", "SETRANGE", "OBJECT", "COPY",
];

/// Mostly keys that others leave alone.
fn key(gen: &mut Gen) -> Vec<u8> {
    if gen.chance(15) {
        return gen.key();
    }
    gen.pick(&["h:1", "h:2", "h:3"]).into()
}

fn keys(gen: &mut Gen, words: &mut Words) {
    (0..gen.rng.usize(0..4)).for_each(|_| words.push(key(gen)));
}

/// Few, so that some come again; or many, so that a sketch becomes dense.
fn elements(gen: &mut Gen, words: &mut Words) {
    let count = if gen.chance(6) { gen.rng.usize(300..1500) } else { gen.rng.usize(..6) };
    for _ in 0..count {
        let element = if gen.chance(5) { gen.value() } else { gen.rng.u16(..5000).to_string().into_bytes() };
        words.push(element);
    }
}

/// A place in the header or among the first registers, and what is written there.
fn spoiled(gen: &mut Gen) -> Words {
    let offset = gen.pick(&[0_u32, 3, 4, 4, 5, 8, 12, 15, 16, 17, 18, 20, 30]).to_string();
    let bytes: &[u8] = gen.pick(&[&b"\0"[..], b"\x01", b"\x02", b"\x80", b"\xff", b"\x40\x05", b"\x81\x85"]);
    words!["SETRANGE", key(gen), offset, bytes]
}

pub fn command(gen: &mut Gen) -> Words {
    let name = gen.pick(NAMES);
    match name {
        "PFADD" => {
            let mut words = words![name, key(gen)];
            elements(gen, &mut words);
            words
        }
        "PFCOUNT" | "PFMERGE" => {
            let mut words = words![name, key(gen)];
            keys(gen, &mut words);
            words
        }
        "PFDEBUG" => {
            let subcommands =
                ["GETREG", "DECODE", "ENCODING", "ENCODING", "DECODE", "TODENSE", "getreg", "NOSUCH"];
            let subcommand = gen.pick(&subcommands);
            words![name, gen.case(subcommand), key(gen)]
        }
        // What is spoiled is mostly refused from then on.
        "SETRANGE" if gen.chance(25) => spoiled(gen),
        "OBJECT" => words![name, "ENCODING", key(gen)],
        "COPY" => words![name, key(gen), key(gen), "REPLACE"],
        _ => words!["GET", key(gen)],
    }
}
