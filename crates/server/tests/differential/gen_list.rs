//! Random commands on lists, small ones and such that grow and shrink across the limits of their forms.

use fastrand::Rng;

use crate::gen::{Gen, Words};
use crate::gen_elements;
use crate::sequence::Sequence;
use crate::words;

const NAMES: &[&str] = &[
    "LPUSH",
    "RPUSH",
    "LPUSH",
    "RPUSH",
    "LPUSHX",
    "RPUSHX",
    "LPOP",
    "RPOP",
    "LLEN",
    "LINDEX",
    "LINDEX",
    "LSET",
    "LSET",
    "LINSERT",
    "LINSERT",
    "LREM",
    "LTRIM",
    "LRANGE",
    "LRANGE",
    "LPOS",
    "LPOS",
    "LMOVE",
    "LMOVE",
    "RPOPLPUSH",
    "LMPOP",
    "FILL",
    "FILL",
    "OBJECT",
    "KEY",
    "OTHER",
];

fn key(gen: &mut Gen) -> Vec<u8> {
    gen.pick(&["l", "l", "l", "m", "m", "n", "s"]).into()
}

fn item(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..25) {
        0 => gen.value(),
        1 => vec![b'i'; gen.pick(&[0, 253, 254, 512, 513, 5000])],
        2..=5 => gen.small_int().into_bytes(),
        _ => format!("i{}", gen.rng.u32(0..8)).into_bytes(),
    }
}

fn index(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..20) {
        0 => gen.odd_number(),
        1..=4 => gen.rng.i32(-700..700).to_string().into_bytes(),
        _ => gen.rng.i32(-12..12).to_string().into_bytes(),
    }
}

fn end(gen: &mut Gen) -> Vec<u8> {
    let end = gen.pick(&["LEFT", "RIGHT", "LEFT", "RIGHT", "LEFT", "RIGHT", "MIDDLE"]);
    gen.case(end)
}

fn positions(gen: &mut Gen, key: Vec<u8>) -> Words {
    let mut words = words!["LPOS", key, item(gen)];
    for _ in 0..gen.pick(&[0, 0, 1, 2, 3]) {
        let option = gen.pick(&["RANK", "COUNT", "MAXLEN"]);
        words.push(gen.case(option));
        words.push(if gen.chance(90) {
            gen.rng.i32(-4..8).to_string().into_bytes()
        } else {
            gen.odd_number()
        });
    }
    words
}

fn pop_of_several(gen: &mut Gen) -> Words {
    let count = gen.rng.usize(1..4);
    let mut words = words!["LMPOP", if gen.chance(90) { count.to_string() } else { "0".to_string() }];
    (0..count).for_each(|_| words.push(key(gen)));
    words.push(end(gen));
    if gen.chance(50) {
        words.push(gen.case("COUNT"));
        words.push(gen.rng.i32(-1..6).to_string().into_bytes());
    }
    words
}

pub fn command(gen: &mut Gen) -> Words {
    let (name, key_word) = (gen.pick(NAMES), key(gen));
    let count = gen.pick(&[1, 1, 1, 2, 5, 20]);
    match name {
        "LPUSH" | "RPUSH" | "LPUSHX" | "RPUSHX" => {
            let mut words = words![name, key_word];
            (0..count).for_each(|_| words.push(item(gen)));
            words
        }
        "LPOP" | "RPOP" if gen.chance(40) => words![name, key_word, gen.rng.i32(-1..30).to_string()],
        "LINDEX" => words![name, key_word, index(gen)],
        "LSET" => words![name, key_word, index(gen), item(gen)],
        "LINSERT" => {
            words![name, key_word, gen.pick(&["BEFORE", "AFTER", "after", "BESIDE"]), item(gen), item(gen)]
        }
        "LREM" => words![name, key_word, gen.rng.i32(-3..4).to_string(), item(gen)],
        "LTRIM" if gen.chance(70) => {
            words![name, key_word, gen.rng.i32(0..4).to_string(), gen.rng.i32(-4..0).to_string()]
        }
        "LTRIM" | "LRANGE" => words![name, key_word, index(gen), index(gen)],
        "LPOS" => positions(gen, key_word),
        "LMOVE" => words![name, key_word, key(gen), end(gen), end(gen)],
        "RPOPLPUSH" => words![name, key_word, key(gen)],
        "LMPOP" => pop_of_several(gen),
        "FILL" => {
            let mut words = words![gen.pick(&["LPUSH", "RPUSH"]), key_word];
            let first = gen.rng.u32(0..500);
            (first..first + gen.rng.u32(50..700))
                .for_each(|number| words.push(format!("item:{number}").into_bytes()));
            words
        }
        "OBJECT" => words![name, "ENCODING", key_word],
        "KEY" => gen_elements::on_key(gen, key_word, "list", key),
        "OTHER" => words![gen.pick(&["SET", "APPEND", "HSET", "SADD"]), gen.pick(&["s", "l"]), item(gen)],
        _ => words![name, key_word],
    }
}

/// A sequence by its seed.
pub fn sequence(seed: u64) -> Sequence {
    gen_elements::sequence(Gen::new(Rng::with_seed(seed)), seed, command, |_| None)
}
