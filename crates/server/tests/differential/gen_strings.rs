//! Random commands of the string family and the bit operations.

use crate::gen::{Gen, Words};
use crate::words;

const NAMES: &[&str] = &[
    "SET",
    "SET",
    "SET",
    "SET",
    "GET",
    "GET",
    "GETEX",
    "GETDEL",
    "GETSET",
    "MGET",
    "MSET",
    "MSETNX",
    "SETNX",
    "SETEX",
    "PSETEX",
    "APPEND",
    "APPEND",
    "STRLEN",
    "SETRANGE",
    "SETRANGE",
    "GETRANGE",
    "GETRANGE",
    "SUBSTR",
    "INCR",
    "DECR",
    "INCRBY",
    "DECRBY",
    "INCRBYFLOAT",
    "INCRBYFLOAT",
    "LCS",
    "SETBIT",
    "GETBIT",
    "BITCOUNT",
    "BITPOS",
    "BITOP",
    "BITFIELD",
    "BITFIELD",
    "BITFIELD_RO",
];

pub fn command(gen: &mut Gen) -> Words {
    let name = gen.pick(NAMES);
    let key = gen.key();
    match name {
        "SET" => set(gen, key),
        "GETEX" => getex(gen, key),
        "MGET" => {
            let mut words = words![name];
            (0..gen.rng.usize(1..5)).for_each(|_| words.push(gen.key()));
            words
        }
        "MSET" | "MSETNX" => {
            let mut words = words![name];
            for _ in 0..gen.rng.usize(1..4) {
                words.extend([gen.key(), gen.value()]);
            }
            words
        }
        "GETSET" | "SETNX" | "APPEND" => words![name, key, gen.value()],
        "SETEX" | "PSETEX" => words![name, key, relative(gen), gen.value()],
        "SETRANGE" => {
            let offset =
                if gen.chance(8) { gen.index() } else { gen.rng.u32(0..400).to_string().into_bytes() };
            let offset = if gen.chance(2) { b"536870910".to_vec() } else { offset };
            let len = gen.len().max(if offset == b"536870910" { 3 } else { 0 });
            words![name, key, offset, gen.random_bytes(len)]
        }
        "GETRANGE" | "SUBSTR" => words![name, key, gen.index(), gen.index()],
        "INCRBY" | "DECRBY" => words![name, key, gen.integer()],
        "INCRBYFLOAT" => words![name, key, gen.float()],
        "LCS" => lcs(gen, key),
        "SETBIT" => words![name, key, bit_offset(gen), gen.pick(&["0", "1", "1", "0", "2", "-1", "x", ""])],
        "GETBIT" => words![name, key, bit_offset(gen)],
        "BITCOUNT" => {
            let mut words = words![name, key];
            range_and_unit(gen, &mut words);
            words
        }
        "BITPOS" => {
            let mut words = words![name, key, gen.pick(&["0", "1", "0", "1", "0", "1", "2", "x"])];
            if gen.chance(20) {
                words.push(gen.index());
            } else {
                range_and_unit(gen, &mut words);
            }
            words
        }
        "BITOP" => {
            let operation = gen.pick(&["AND", "OR", "XOR", "NOT", "and", "NAND"]);
            let mut words = words![name, operation, key, gen.key()];
            let more = if operation == "NOT" && gen.chance(80) { 0 } else { gen.rng.usize(0..4) };
            (0..more).for_each(|_| words.push(gen.key()));
            words
        }
        "BITFIELD" | "BITFIELD_RO" => bitfield(gen, name, key),
        _ => words![name, key],
    }
}

/// A relative deadline: far, or not acceptable.
pub fn relative(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..12) {
        0 => gen.odd_number(),
        1 => {
            gen.pick(&["0", "-1", "-100", "9223372036854775", "9223372036854776", "92233720368547758"]).into()
        }
        _ => gen.rng.u32(100_000..100_000_000).to_string().into_bytes(),
    }
}

/// An absolute deadline in seconds or milliseconds: past, or far off.
pub fn absolute(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..12) {
        0 => gen.odd_number(),
        1 => gen.pick(&["0", "-1", "-9223372036854775808", "9223372036854775", "9223372036854776"]).into(),
        2 => gen.pick(&["1", "1000", "1600000000", "1600000000000"]).into(),
        _ => gen.rng.u64(33_000_000_000_000..40_000_000_000_000).to_string().into_bytes(),
    }
}

fn set(gen: &mut Gen, key: Vec<u8>) -> Words {
    let mut words = words!["SET", key, gen.value()];
    if gen.chance(60) {
        return words;
    }
    for _ in 0..gen.rng.usize(1..4) {
        let option = gen.pick(&["NX", "XX", "GET", "KEEPTTL", "EX", "PX", "EXAT", "PXAT", "GET", "PERSIST"]);
        words.push(gen.case(option));
        deadline_argument(gen, option, &mut words);
    }
    words
}

fn getex(gen: &mut Gen, key: Vec<u8>) -> Words {
    let mut words = words!["GETEX", key];
    for _ in 0..gen.pick(&[0, 1, 1, 1, 1, 2]) {
        let option = gen.pick(&["EX", "PX", "EXAT", "PXAT", "PERSIST", "PERSIST", "NX", "KEEPTTL"]);
        words.push(gen.case(option));
        deadline_argument(gen, option, &mut words);
    }
    words
}

fn deadline_argument(gen: &mut Gen, option: &str, words: &mut Words) {
    if gen.chance(3) {
        return;
    }
    match option {
        "EX" | "PX" => words.push(relative(gen)),
        "EXAT" | "PXAT" => words.push(absolute(gen)),
        _ => {}
    }
}

fn lcs(gen: &mut Gen, key: Vec<u8>) -> Words {
    let mut words = words!["LCS", key, gen.key()];
    for _ in 0..gen.rng.usize(0..4) {
        let option = gen.pick(&["LEN", "IDX", "IDX", "MINMATCHLEN", "WITHMATCHLEN"]);
        words.push(gen.case(option));
        if option == "MINMATCHLEN" {
            words.push(gen.integer());
        }
    }
    words
}

fn bit_offset(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..12) {
        0 => gen.odd_number(),
        1 => gen.pick(&["4294967296", "-1", "#1", "18446744073709551615"]).into(),
        _ => gen.rng.u32(0..600).to_string().into_bytes(),
    }
}

fn range_and_unit(gen: &mut Gen, words: &mut Words) {
    if gen.chance(20) {
        return;
    }
    words.extend([gen.index(), gen.index()]);
    if gen.chance(60) {
        words.push(gen.pick(&["BYTE", "BIT", "bit", "byte", "BITS"]).into());
    }
}

fn bitfield(gen: &mut Gen, name: &str, key: Vec<u8>) -> Words {
    let mut words = words![name, key];
    for _ in 0..gen.rng.usize(0..5) {
        let only_reads = name == "BITFIELD_RO" && gen.chance(85);
        let operation =
            if only_reads { "GET" } else { gen.pick(&["GET", "SET", "INCRBY", "INCRBY", "OVERFLOW"]) };
        words.push(gen.case(operation));
        if operation == "OVERFLOW" {
            words.push(gen.pick(&["WRAP", "SAT", "FAIL", "wrap", "sat", "fail", "OTHER"]).into());
            continue;
        }
        let bits = gen.pick(&[1u32, 2, 4, 5, 8, 8, 16, 31, 32, 33, 62, 63, 64, 65, 0]);
        let sign = gen.pick(&["i", "u", "i", "u", "i", "x"]);
        words.push(format!("{sign}{bits}").into_bytes());
        let hash = gen.pick(&["", "", "#"]);
        let offset =
            if gen.chance(5) { bit_offset(gen) } else { gen.rng.u32(0..200).to_string().into_bytes() };
        words.push([hash.as_bytes(), &offset].concat());
        if operation != "GET" {
            words.push(gen.integer());
        }
    }
    words
}
