//! Random commands on sets: of integers, of anything, small ones and large ones. What is popped at random is all there is, so
//! that both servers have the same afterwards.

use fastrand::Rng;

use crate::gen::{Gen, Words};
use crate::gen_elements;
use crate::gen_hash::scan_options;
use crate::sequence::{Action, Sequence};
use crate::words;

const NAMES: &[&str] = &[
    "SADD",
    "SADD",
    "SADD",
    "SADD",
    "SREM",
    "SREM",
    "SISMEMBER",
    "SMISMEMBER",
    "SCARD",
    "SMEMBERS",
    "SMEMBERS",
    "SMOVE",
    "SMOVE",
    "SPOP",
    "SRANDMEMBER",
    "SRANDMEMBER",
    "SINTER",
    "SUNION",
    "SDIFF",
    "SINTERCARD",
    "SINTERSTORE",
    "SUNIONSTORE",
    "SDIFFSTORE",
    "SSCAN",
    "FILL",
    "FILL",
    "OBJECT",
    "KEY",
    "OTHER",
];

fn key(gen: &mut Gen) -> Vec<u8> {
    gen.pick(&["a", "a", "a", "b", "b", "c", "s"]).into()
}

fn member(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..25) {
        0 => gen.value(),
        1 => vec![b'm'; gen.pick(&[0, 64, 255, 256, 5000])],
        2..=14 => gen.rng.i32(-20..20).to_string().into_bytes(),
        15 => gen.pick(&["-0", "007", "9223372036854775807", "9223372036854775808", " 1"]).into(),
        16 => gen.rng.i64(..).to_string().into_bytes(),
        _ => format!("m{}", gen.rng.u32(0..12)).into_bytes(),
    }
}

fn intersection_size(gen: &mut Gen) -> Words {
    let count = gen.rng.usize(1..4);
    let mut words =
        words!["SINTERCARD", if gen.chance(85) { count.to_string() } else { gen.rng.i32(-1..9).to_string() }];
    (0..count).for_each(|_| words.push(key(gen)));
    if gen.chance(50) {
        words.push(gen.case("LIMIT"));
        words.push(gen.rng.i32(-1..6).to_string().into_bytes());
    }
    words
}

pub fn command(gen: &mut Gen) -> Words {
    let (name, key_word) = (gen.pick(NAMES), key(gen));
    let count = gen.pick(&[1, 1, 1, 2, 5, 20]);
    match name {
        "SADD" | "SREM" | "SMISMEMBER" => {
            let mut words = words![name, key_word];
            (0..count).for_each(|_| words.push(member(gen)));
            words
        }
        "SISMEMBER" => words![name, key_word, member(gen)],
        "SMOVE" => words![name, key_word, key(gen), member(gen)],
        "SPOP" => words![name, key_word, gen.pick(&["100000", "100000", "0", "-1", "x"])],
        "SRANDMEMBER" if gen.chance(80) => words![name, key_word, gen.rng.i32(-20..20).to_string()],
        "SINTER" | "SUNION" | "SDIFF" | "SINTERSTORE" | "SUNIONSTORE" | "SDIFFSTORE" => {
            let mut words = words![name, key_word];
            (0..gen.rng.usize(1..4)).for_each(|_| words.push(key(gen)));
            words
        }
        "SINTERCARD" => intersection_size(gen),
        "SSCAN" => {
            let mut words = words![name, key_word, gen.pick(&["0", "0", "1x", "-1"])];
            words.extend(scan_options(gen));
            words
        }
        "FILL" => {
            let (first, is_text) = (gen.rng.u32(0..500), gen.rng.bool());
            let mut words = words![gen.pick(&["SADD", "SADD", "SREM"]), key_word];
            for number in first..first + gen.rng.u32(50..700) {
                words
                    .push(if is_text { format!("member:{number}") } else { number.to_string() }.into_bytes());
            }
            words
        }
        "OBJECT" => words![name, "ENCODING", key_word],
        "KEY" => gen_elements::on_key(gen, key_word, "set", key),
        "OTHER" => words![gen.pick(&["SET", "APPEND", "HSET", "LPUSH"]), gen.pick(&["s", "a"]), member(gen)],
        _ => words![name, key_word],
    }
}

fn scan(gen: &mut Gen) -> Option<Action> {
    gen.chance(4).then(|| Action::ScanElements(words!["SSCAN", key(gen)], scan_options(gen)))
}

/// A sequence by its seed.
pub fn sequence(seed: u64) -> Sequence {
    gen_elements::sequence(Gen::new(Rng::with_seed(seed)), seed, command, scan)
}
