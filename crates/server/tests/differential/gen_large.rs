//! Sequences with more data than a small server has memory: many keys, values of all sizes, and commands on several of them.

use fastrand::Rng;

use crate::gen::{Gen, Words};
use crate::sequence::{Action, Arg, Sequence, Step, CONN_COUNT};
use crate::words;

/// Keys of each database, and databases.
const KEY_COUNT: u32 = 250;
const DB_COUNT: usize = 3;
/// Keys that a sequence begins with: some 24 MB.
const FIRST_COUNT: usize = 450;

const COMMANDS: &[&str] = &[
    "SET", "SET", "GET", "GET", "GETSET", "MSET", "MSET", "MGET", "MGET", "MSETNX", "APPEND", "APPEND",
    "SETRANGE", "SETRANGE", "GETRANGE", "STRLEN", "RENAME", "RENAME", "RENAMENX", "COPY", "COPY", "COPY",
    "MOVE", "DEL", "UNLINK", "EXPIRE", "PERSIST", "TTL", "EXISTS", "GETDEL", "BITCOUNT", "BITOP", "SETBIT",
    "DBSIZE", "SWAPDB", "INCR", "TYPE",
];

fn key(gen: &mut Gen) -> Vec<u8> {
    // Some are used again and again.
    let number = if gen.chance(30) { gen.rng.u32(..12) } else { gen.rng.u32(..KEY_COUNT) };
    format!("key:{number}").into_bytes()
}

/// In a leaf, in a slab, in pages of its own; some longer than what comes in pieces.
fn value(gen: &mut Gen) -> Vec<u8> {
    let length = match gen.rng.u8(..20) {
        0..=3 => gen.rng.usize(..400),
        4..=10 => gen.rng.usize(400..10_000),
        11..=17 => gen.rng.usize(10_000..120_000),
        18 => gen.rng.usize(120_000..300_000),
        _ => return gen.rng.i64(-1000..1000).to_string().into_bytes(),
    };
    let mut bytes = vec![0; length];
    gen.rng.fill(&mut bytes);
    bytes
}

fn db(gen: &mut Gen) -> String {
    gen.rng.usize(..DB_COUNT).to_string()
}

fn command(gen: &mut Gen) -> Words {
    let name = gen.pick(COMMANDS);
    let key_count = gen.rng.usize(1..6);
    match name {
        "SET" | "GETSET" => words![name, key(gen), value(gen)],
        "APPEND" => words![name, key(gen), value(gen)],
        "MSET" | "MSETNX" => {
            let mut words = words![name];
            (0..key_count).for_each(|_| words.extend([key(gen), value(gen)]));
            words
        }
        "MGET" | "DEL" | "UNLINK" | "EXISTS" => {
            // Nothing is left in the end if much is removed.
            let key_count = if name == "DEL" || name == "UNLINK" { key_count.min(2) } else { key_count };
            let mut words = words![name];
            (0..key_count).for_each(|_| words.push(key(gen)));
            words
        }
        "SETRANGE" => {
            let bytes = value(gen);
            words![
                name,
                key(gen),
                gen.rng.u32(..100_000).to_string(),
                bytes[..bytes.len().min(9_000)].to_vec()
            ]
        }
        "GETRANGE" | "BITCOUNT" => {
            let from = gen.rng.u32(..90_000);
            words![name, key(gen), from.to_string(), (from + gen.rng.u32(..20_000)).to_string()]
        }
        "RENAME" | "RENAMENX" => words![name, key(gen), key(gen)],
        "COPY" => {
            let mut words = words![name, key(gen), key(gen)];
            if gen.chance(40) {
                words.extend(words!["DB", db(gen)]);
            }
            if gen.chance(60) {
                words.extend(words!["REPLACE"]);
            }
            words
        }
        "MOVE" => words![name, key(gen), db(gen)],
        "EXPIRE" => words![name, key(gen), gen.rng.u32(100_000..900_000).to_string()],
        "BITOP" => words![name, gen.pick(&["AND", "OR", "XOR"]), key(gen), key(gen), key(gen)],
        "SETBIT" => words![name, key(gen), gen.rng.u32(..800_000).to_string(), gen.pick(&["0", "1"])],
        "DBSIZE" => words![name],
        "SWAPDB" => words![name, db(gen), db(gen)],
        _ => words![name, key(gen)],
    }
}

fn action(words: Words) -> Action {
    Action::Command(words.into_iter().map(Arg::Bytes).collect())
}

/// What a connection does alone, or what changes a lot.
fn rare(gen: &mut Gen) -> Action {
    match gen.rng.u8(..8) {
        0..=2 => Action::ScanAll(words!["COUNT", gen.rng.u32(1..200).to_string()]),
        3..=4 => Action::ExpireNow(words!["GET", key(gen)]),
        5 => action(words!["FLUSHDB"]),
        _ => action(words!["SELECT", db(gen)]),
    }
}

fn transaction(gen: &mut Gen, conn: usize, steps: &mut Vec<Step>) {
    if gen.chance(30) {
        steps.push(Step { conn, action: action(words!["WATCH", key(gen)]) });
        if gen.chance(50) {
            steps.push(Step { conn: 1 - conn, action: action(command(gen)) });
        }
    }
    steps.push(Step { conn, action: action(words!["MULTI"]) });
    for _ in 0..gen.rng.usize(1..6) {
        let words = if gen.chance(15) { words!["SELECT", db(gen)] } else { command(gen) };
        steps.push(Step { conn, action: action(words) });
    }
    steps.push(Step { conn, action: action(words!["EXEC"]) });
}

/// A sequence by its seed.
pub fn sequence(seed: u64) -> Sequence {
    let mut gen = Gen::new(Rng::with_seed(seed));
    let mut steps = Vec::new();
    for number in 0..FIRST_COUNT {
        // By turns, so that not all of it is one write.
        let conn = number % CONN_COUNT;
        if gen.chance(10) {
            steps.push(Step { conn, action: action(words!["SELECT", db(&mut gen)]) });
        }
        steps.push(Step { conn, action: action(words!["SET", key(&mut gen), value(&mut gen)]) });
    }
    for _ in 0..gen.rng.usize(150..300) {
        let conn = gen.rng.usize(..CONN_COUNT);
        match gen.rng.u8(..100) {
            0..=2 => {
                let action = rare(&mut gen);
                steps.push(Step { conn, action });
            }
            3..=11 => transaction(&mut gen, conn, &mut steps),
            _ => steps.push(Step { conn, action: action(command(&mut gen)) }),
        }
    }
    Sequence { seed, resp3: gen.rng.bool(), pipelined: gen.rng.bool(), steps }
}
