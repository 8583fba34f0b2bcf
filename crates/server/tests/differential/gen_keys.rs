//! Random commands on keys and databases, transactions and the rest.

use crate::gen::{Gen, Words, LAST_DUMP};
use crate::gen_strings::{absolute, relative};
use crate::words;

const NAMES: &[&str] = &[
    "DEL",
    "DEL",
    "UNLINK",
    "EXISTS",
    "EXISTS",
    "TYPE",
    "EXPIRE",
    "PEXPIRE",
    "EXPIREAT",
    "PEXPIREAT",
    "EXPIRE",
    "TTL",
    "PTTL",
    "EXPIRETIME",
    "PEXPIRETIME",
    "PERSIST",
    "KEYS",
    "SCAN",
    "RANDOMKEY",
    "RENAME",
    "RENAMENX",
    "COPY",
    "COPY",
    "MOVE",
    "SWAPDB",
    "FLUSH",
    "DBSIZE",
    "DBSIZE",
    "TOUCH",
    "OBJECT",
    "OBJECT",
    "DUMP",
    "DUMP",
    "RESTORE",
    "RESTORE",
    "SORT",
    "SORT_RO",
    "TX",
    "PING",
    "ECHO",
    "SELECT",
    "SELECT",
    "MEMORY",
    "DEBUG",
    "OTHER",
];

pub fn command(gen: &mut Gen) -> Words {
    let name = gen.pick(NAMES);
    let key = gen.key();
    match name {
        "DEL" | "UNLINK" | "EXISTS" | "TOUCH" => {
            let mut words = words![name, key];
            (0..gen.pick(&[0, 0, 1, 2])).for_each(|_| words.push(gen.key()));
            words
        }
        "EXPIRE" | "PEXPIRE" => with_condition(gen, words![name, key], relative),
        "EXPIREAT" | "PEXPIREAT" => with_condition(gen, words![name, key], absolute),
        "KEYS" => words![name, pattern(gen)],
        "SCAN" => {
            let mut words =
                words![name, gen.pick(&["0", "0", "0", "0", "1x", "-1", "", "18446744073709551616"])];
            words.extend(scan_options(gen));
            words
        }
        "RENAME" | "RENAMENX" => words![name, key, gen.key()],
        "COPY" => {
            let mut words = words![name, key, gen.key()];
            for _ in 0..gen.rng.usize(0..3) {
                let option = gen.pick(&["DB", "REPLACE", "REPLACE"]);
                words.push(gen.case(option));
                if option == "DB" {
                    words.push(db(gen));
                }
            }
            words
        }
        "MOVE" => words![name, key, db(gen)],
        "SWAPDB" => words![name, db(gen), db(gen)],
        "SELECT" => words![name, db(gen)],
        "FLUSH" => {
            let mut words = words![gen.pick(&["FLUSHDB", "FLUSHDB", "FLUSHALL"])];
            if gen.chance(60) {
                words.push(gen.pick(&["ASYNC", "SYNC", "async", "NOW"]).into());
            }
            if gen.chance(60) {
                words!["DBSIZE"]
            } else {
                words
            }
        }
        "OBJECT" => object(gen, key),
        "RESTORE" => restore(gen, key),
        "SORT" | "SORT_RO" => sort(gen, name, key),
        "TX" => words![gen.pick(&["MULTI", "EXEC", "DISCARD", "UNWATCH", "RESET"])],
        "PING" => {
            let mut words = words![name];
            (0..gen.pick(&[0, 0, 1, 2])).for_each(|_| words.push(gen.value()));
            words
        }
        "ECHO" => words![name, gen.value()],
        "MEMORY" => memory(gen, key),
        "DEBUG" => debug(gen, key),
        "OTHER" => match gen.rng.u8(0..4) {
            0 => words!["NOSUCHCOMMAND", gen.value(), gen.value()],
            1 => words![gen.pick(&["", "GE T", "get\r\n", "nosuch\0"]), key],
            2 => words!["WATCH", key],
            _ => words![gen.pick(&["TIME", "LASTSAVE"])],
        },
        "DBSIZE" | "RANDOMKEY" => words![name],
        _ => words![name, key],
    }
}

pub fn scan_options(gen: &mut Gen) -> Words {
    let mut words = Vec::new();
    for _ in 0..gen.pick(&[0, 1, 1, 2, 3]) {
        let option = gen.pick(&["MATCH", "COUNT", "TYPE"]);
        words.push(gen.case(option));
        words.push(match option {
            "MATCH" => pattern(gen),
            "COUNT" if gen.chance(90) => gen.rng.u32(1..30).to_string().into_bytes(),
            "COUNT" => gen.odd_number(),
            _ if gen.may_hold_expired => gen.pick(&["string", "list", "STRING", "String", "hash"]).into(),
            _ => gen.pick(&["string", "list", "STRING", "String", "none", "hash"]).into(),
        });
    }
    words
}

/// A command that looks at its first key, and perhaps at others.
pub fn access(gen: &mut Gen) -> Words {
    let name = gen.pick(&["EXISTS", "EXISTS", "GET", "MGET", "MGET", "TOUCH", "STRLEN"]);
    let mut words = words![name, gen.key()];
    if matches!(name, "EXISTS" | "MGET" | "TOUCH") {
        (0..gen.rng.usize(0..3)).for_each(|_| words.push(gen.key()));
    }
    words
}

fn pattern(gen: &mut Gen) -> Vec<u8> {
    let fixed = [
        "*", "*", "key:*", "?", "a*", "[a-c]", "[^a]", "[^a-c]*", "\\a", "*\\**", "", "{t}*", "k??:?", "[a-",
    ];
    if gen.chance(70) {
        return gen.pick(&fixed).into();
    }
    let parts = [
        "*", "?", "a", "b", "key", ":", "1", "[", "]", "[a-e]", "[^b]", "\\", "-", "[z-a]", "^", "**", "{t}",
    ];
    let mut out = Vec::new();
    (0..gen.rng.usize(1..6)).for_each(|_| out.extend_from_slice(gen.pick(&parts).as_bytes()));
    out
}

fn with_condition(gen: &mut Gen, mut words: Words, deadline: fn(&mut Gen) -> Vec<u8>) -> Words {
    words.push(deadline(gen));
    for _ in 0..gen.pick(&[0, 0, 0, 1, 1, 1, 2]) {
        let option = gen.pick(&["NX", "XX", "GT", "LT", "GE"]);
        words.push(gen.case(option));
    }
    words
}

fn db(gen: &mut Gen) -> Vec<u8> {
    if gen.chance(6) {
        return gen.odd_number();
    }
    gen.pick(&["0", "0", "0", "0", "0", "1", "1", "2", "3", "16", "-1"]).into()
}

fn restore(gen: &mut Gen, key: Vec<u8>) -> Words {
    let ttl = match gen.rng.u8(0..8) {
        0 => gen.odd_number(),
        1..=4 => b"0".to_vec(),
        _ => relative(gen),
    };
    let payload = match gen.rng.u8(0..10) {
        0 => gen.value(),
        1 => b"\x00\x01a\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00".to_vec(),
        _ => LAST_DUMP.to_vec(),
    };
    let mut words = words!["RESTORE", key, ttl, payload];
    for _ in 0..gen.pick(&[0, 1, 1, 1, 2, 3]) {
        let option = gen.pick(&["REPLACE", "REPLACE", "REPLACE", "ABSTTL", "IDLETIME", "FREQ", "X"]);
        words.push(gen.case(option));
        match option {
            "IDLETIME" => words.push(gen.pick(&["1", "100", "-1", "x"]).into()),
            "FREQ" => words.push(gen.pick(&["1", "255", "256", "-1", "x"]).into()),
            "ABSTTL" if gen.chance(70) => words[2] = absolute(gen),
            _ => {}
        }
    }
    words
}

fn sort(gen: &mut Gen, name: &str, key: Vec<u8>) -> Words {
    let mut words = words![name, key];
    for _ in 0..gen.pick(&[0, 1, 2, 3]) {
        let option = gen.pick(&["ASC", "DESC", "ALPHA", "LIMIT", "BY", "GET", "STORE", "X"]);
        words.push(gen.case(option));
        match option {
            "LIMIT" => words.extend([gen.integer(), gen.integer()]),
            "BY" => words.push(gen.pick(&["w_*", "nosort", "w_*->f", "x"]).into()),
            "GET" => words.push(gen.pick(&["#", "w_*", "w_*->f"]).into()),
            "STORE" => words.push(gen.key()),
            _ => {}
        }
    }
    words
}

fn object(gen: &mut Gen, key: Vec<u8>) -> Words {
    match gen.pick(&["ENCODING", "ENCODING", "ENCODING", "REFCOUNT", "IDLETIME", "FREQ", "HELP", "X"]) {
        "HELP" => words!["OBJECT", "HELP"],
        sub => words!["OBJECT", gen.case(sub), key],
    }
}

fn memory(gen: &mut Gen, key: Vec<u8>) -> Words {
    match gen.pick(&["USAGE", "USAGE", "USAGE", "DOCTOR", "PURGE", "MALLOC-STATS", "HELP", "X"]) {
        "USAGE" if gen.chance(30) => words!["MEMORY", "USAGE", key, "SAMPLES", gen.integer()],
        sub @ ("USAGE" | "X") => words!["MEMORY", sub, key],
        sub => words!["MEMORY", sub],
    }
}

fn debug(gen: &mut Gen, key: Vec<u8>) -> Words {
    match gen.rng.u8(0..9) {
        0 => words!["DEBUG", "OBJECT", key],
        1 => words!["DEBUG", "SLEEP", "0"],
        2 => words!["DEBUG", "SET-ACTIVE-EXPIRE", gen.pick(&["0", "1"])],
        3 => words!["DEBUG", "POPULATE", gen.pick(&["3", "12", "0", "x"])],
        4 => words!["DEBUG", "POPULATE", "5", "p", gen.pick(&["3", "30", "0", "x"])],
        5 => words!["DEBUG", "JMAP"],
        6 | 7 if gen.reloads => words!["DEBUG", "RELOAD"],
        _ => words!["DEBUG", "CHANGE-REPL-ID"],
    }
}
