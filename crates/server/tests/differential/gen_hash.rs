//! Random commands on hashes, small ones and such that grow and shrink across the limits of their encodings.

use fastrand::Rng;

use crate::gen::{Gen, Words};
use crate::gen_elements;
use crate::sequence::{Action, Sequence};
use crate::words;

const NAMES: &[&str] = &[
    "HSET",
    "HSET",
    "HSET",
    "HSET",
    "HMSET",
    "HSETNX",
    "HDEL",
    "HDEL",
    "HGET",
    "HMGET",
    "HEXISTS",
    "HSTRLEN",
    "HLEN",
    "HGETALL",
    "HKEYS",
    "HVALS",
    "HINCRBY",
    "HINCRBY",
    "HINCRBYFLOAT",
    "HRANDFIELD",
    "HSCAN",
    "FILL",
    "OBJECT",
    "KEY",
    "STRING",
];

fn other_key(gen: &mut Gen) -> Vec<u8> {
    key(gen)
}

fn key(gen: &mut Gen) -> Vec<u8> {
    gen.pick(&["h", "h", "h", "g", "g", "i", "s"]).into()
}

fn field(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..20) {
        0 => gen.value(),
        1 => gen.pick(&["", "f\0\r\n", "*", "[f]?"]).into(),
        2 => vec![b'f'; gen.pick(&[63, 64, 65, 300])],
        3..=5 => format!("f{}", gen.rng.u32(0..1000)).into_bytes(),
        _ => format!("f{}", gen.rng.u32(0..12)).into_bytes(),
    }
}

fn value(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..20) {
        0 => gen.value(),
        1 => vec![b'v'; gen.pick(&[63, 64, 65, 448, 449, 5000])],
        2..=8 => gen.small_int().into_bytes(),
        _ => {
            let len = gen.rng.usize(0..40);
            gen.random_bytes(len)
        }
    }
}

fn pattern(gen: &mut Gen) -> Vec<u8> {
    gen.pick(&["*", "f*", "f?", "f[1-5]", "nothing", ""]).into()
}

pub fn scan_options(gen: &mut Gen) -> Words {
    let mut words = Vec::new();
    for _ in 0..gen.pick(&[0, 0, 1, 2]) {
        let option = gen.pick(&["MATCH", "COUNT"]);
        words.push(gen.case(option));
        words.push(match option {
            "MATCH" => pattern(gen),
            _ if gen.chance(90) => gen.rng.u32(1..200).to_string().into_bytes(),
            _ => gen.odd_number(),
        });
    }
    words
}

fn random_field(gen: &mut Gen, key: Vec<u8>) -> Words {
    let mut words = words!["HRANDFIELD", key];
    if gen.chance(80) {
        words.push(match gen.rng.u8(0..8) {
            0 => gen.odd_number(),
            1 => gen.pick(&["-9223372036854775808", "0", "5000000000000000000"]).into(),
            2 => gen.rng.u32(0..700).to_string().into_bytes(),
            _ => gen.rng.i32(-20..20).to_string().into_bytes(),
        });
        if gen.chance(50) {
            words.push(gen.case("WITHVALUES"));
        }
    }
    words
}

pub fn command(gen: &mut Gen) -> Words {
    let (name, key) = (gen.pick(NAMES), key(gen));
    let count = gen.pick(&[1, 1, 1, 2, 5]);
    match name {
        "HSET" | "HMSET" => {
            let mut words = words![name, key];
            (0..count).for_each(|_| words.extend([field(gen), value(gen)]));
            words
        }
        "HSETNX" => words![name, key, field(gen), value(gen)],
        "HDEL" | "HMGET" => {
            let mut words = words![name, key];
            (0..count).for_each(|_| words.push(field(gen)));
            words
        }
        "HGET" | "HEXISTS" | "HSTRLEN" => words![name, key, field(gen)],
        "HINCRBY" => words![name, key, field(gen), gen.integer()],
        "HINCRBYFLOAT" => words![name, key, field(gen), gen.float()],
        "HRANDFIELD" => random_field(gen, key),
        "HSCAN" => {
            let mut words = words![name, key, gen.pick(&["0", "0", "0", "1x", "-1", "18446744073709551616"])];
            words.extend(scan_options(gen));
            words
        }
        "FILL" => {
            let (first, last) = (gen.rng.u32(0..600), gen.rng.u32(0..700));
            let remove = gen.chance(40);
            let mut words = words![if remove { "HDEL" } else { "HSET" }, key];
            for number in first..(last + first).min(900) {
                words.push(format!("f{number}").into_bytes());
                if !remove {
                    words.push(number.to_string().into_bytes());
                }
            }
            words
        }
        "OBJECT" => words![name, "ENCODING", key],
        "KEY" => gen_elements::on_key(gen, key, "hash", other_key),
        "STRING" => words![gen.pick(&["SET", "APPEND", "GET", "INCR"]), gen.pick(&["s", "h"]), value(gen)],
        _ => words![name, key],
    }
}

fn scan(gen: &mut Gen) -> Option<Action> {
    gen.chance(4).then(|| Action::ScanElements(words!["HSCAN", key(gen)], scan_options(gen)))
}

/// A sequence by its seed.
pub fn sequence(seed: u64) -> Sequence {
    gen_elements::sequence(Gen::new(Rng::with_seed(seed)), seed, command, scan)
}
