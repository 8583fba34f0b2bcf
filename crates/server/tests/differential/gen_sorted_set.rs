//! Random commands on sorted sets, small ones and large ones. By name they are compared only where all scores are alike: in
//! others Redis finds what its towers happen to lead to.

use fastrand::Rng;

use crate::gen::{Gen, Words};
use crate::gen_elements;
use crate::gen_hash::scan_options;
use crate::sequence::{Action, Sequence};
use crate::words;

const NAMES: &[&str] = &[
    "ZADD",
    "ZADD",
    "ZADD",
    "ZADD",
    "ZADD",
    "ZINCRBY",
    "ZREM",
    "ZREM",
    "ZCARD",
    "ZSCORE",
    "ZMSCORE",
    "ZRANK",
    "ZREVRANK",
    "ZCOUNT",
    "ZRANGE",
    "ZRANGE",
    "ZRANGE",
    "ZRANGESTORE",
    "ZREVRANGE",
    "ZRANGEBYSCORE",
    "ZREVRANGEBYSCORE",
    "ZREMRANGEBYRANK",
    "ZREMRANGEBYSCORE",
    "ZPOPMIN",
    "ZPOPMAX",
    "ZMPOP",
    "ZRANDMEMBER",
    "ZUNION",
    "ZINTER",
    "ZDIFF",
    "ZUNIONSTORE",
    "ZINTERSTORE",
    "ZDIFFSTORE",
    "ZINTERCARD",
    "ZSCAN",
    "NAMES",
    "NAMES",
    "NAMES",
    "FILL",
    "FILL",
    "OBJECT",
    "KEY",
    "OTHER",
];

/// All its scores are 0.
pub const OF_NAMES: &str = "names";

fn key(gen: &mut Gen) -> Vec<u8> {
    gen.pick(&["a", "a", "a", "b", "b", "c", "s"]).into()
}

fn member(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..25) {
        0 => gen.value(),
        1 => vec![b'm'; gen.pick(&[0, 64, 65, 493])],
        // Of those that are longer each begins in a way of its own: such as do not are in another order here.
        2 => {
            let number = gen.rng.usize(0..6);
            [format!("{number}").into_bytes(), vec![b'm'; [493, 600, 5000][number % 3]]].concat()
        }
        3..=10 => gen.rng.u32(0..600).to_string().into_bytes(),
        _ => format!("m{}", gen.rng.u32(0..20)).into_bytes(),
    }
}

fn score(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..12) {
        0 => gen.odd_number(),
        1 => gen.float(),
        2 => gen.pick(&["inf", "-inf", "-0", "1e17", "0x10", "5e-324", "9007199254740993"]).into(),
        3 | 4 => format!("{:?}", gen.rng.f64() * 100.0).into_bytes(),
        _ => gen.rng.i32(-20..20).to_string().into_bytes(),
    }
}

fn score_bound(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..8) {
        0 => gen.pick(&["-inf", "+inf", "(inf", "(-inf"]).into(),
        1 | 2 => [b"(".to_vec(), score(gen)].concat(),
        _ => score(gen),
    }
}

fn name_bound(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..10) {
        0..=2 => gen.pick(&["-", "+", "-", "+", "[", "(", "x", ""]).into(),
        3..=5 => [b"(".to_vec(), member(gen)].concat(),
        _ => [b"[".to_vec(), member(gen)].concat(),
    }
}

fn limit(gen: &mut Gen, words: &mut Words) {
    if gen.chance(40) {
        words.push(gen.case("LIMIT"));
        words.extend([
            gen.rng.i32(-2..8).to_string().into_bytes(),
            gen.rng.i32(-2..20).to_string().into_bytes(),
        ]);
    }
}

fn option(gen: &mut Gen, words: &mut Words, percent: u32, name: &str) {
    if gen.chance(percent) {
        words.push(gen.case(name));
    }
}

fn add(gen: &mut Gen, key: Vec<u8>) -> Words {
    let mut words = words!["ZADD", key];
    for name in ["NX", "XX", "GT", "LT", "CH", "INCR"] {
        option(gen, &mut words, 8, name);
    }
    for _ in 0..gen.pick(&[1, 1, 2, 5, 30]) {
        words.extend([score(gen), member(gen)]);
    }
    words
}

fn range(gen: &mut Gen, mut words: Words) -> Words {
    let stores = words[0] == b"ZRANGESTORE";
    let by_score = gen.rng.bool();
    for _ in 0..2 {
        words.push(if by_score { score_bound(gen) } else { gen.index() });
    }
    option(gen, &mut words, 40, "REV");
    if by_score {
        words.push(gen.case("BYSCORE"));
        limit(gen, &mut words);
    }
    option(gen, &mut words, if stores { 3 } else { 40 }, "WITHSCORES");
    words
}

/// Commands by name, on the one key for them.
fn by_name(gen: &mut Gen) -> Words {
    let name = gen.pick(&[
        "ZADD",
        "ZADD",
        "ZREM",
        "ZLEXCOUNT",
        "ZRANGE",
        "ZRANGEBYLEX",
        "ZREVRANGEBYLEX",
        "ZREMRANGEBYLEX",
    ]);
    let mut words = words![name, OF_NAMES];
    match name {
        "ZADD" => (0..gen.pick(&[1, 5, 60])).for_each(|_| words.extend([b"0".to_vec(), member(gen)])),
        "ZREM" => (0..gen.pick(&[1, 5])).for_each(|_| words.push(member(gen))),
        _ => {
            words.extend([name_bound(gen), name_bound(gen)]);
            if name == "ZRANGE" {
                words.push(gen.case("BYLEX"));
                option(gen, &mut words, 50, "REV");
            }
            if !matches!(name, "ZLEXCOUNT" | "ZREMRANGEBYLEX") {
                limit(gen, &mut words);
            }
        }
    }
    words
}

fn combination(gen: &mut Gen, mut words: Words) -> Words {
    let name = words[0].clone();
    let key_count = gen.rng.usize(1..4);
    words.push(if gen.chance(95) { key_count } else { gen.rng.usize(0..9) }.to_string().into_bytes());
    (0..key_count).for_each(|_| words.push(key(gen)));
    if name == b"ZINTERCARD" {
        if gen.chance(50) {
            words.extend([gen.case("LIMIT"), gen.rng.i32(-1..6).to_string().into_bytes()]);
        }
        return words;
    }
    if !name.starts_with(b"ZDIFF") {
        if gen.chance(30) {
            words.push(gen.case("WEIGHTS"));
            (0..key_count).for_each(|_| words.push(score(gen)));
        }
        if gen.chance(30) {
            words.push(gen.case("AGGREGATE"));
            words.push(gen.pick(&["SUM", "MIN", "max", "AVG"]).into());
        }
    }
    option(gen, &mut words, if name.ends_with(b"STORE") { 3 } else { 50 }, "WITHSCORES");
    words
}

fn pop_of_several(gen: &mut Gen) -> Words {
    let key_count = gen.rng.usize(1..4);
    let mut words = words!["ZMPOP", key_count.to_string()];
    (0..key_count).for_each(|_| words.push(key(gen)));
    words.push(gen.pick(&["MIN", "MAX", "min"]).into());
    if gen.chance(50) {
        words.extend([gen.case("COUNT"), gen.rng.i32(-1..6).to_string().into_bytes()]);
    }
    words
}

pub fn command(gen: &mut Gen) -> Words {
    let (name, key_word) = (gen.pick(NAMES), key(gen));
    match name {
        "ZADD" => add(gen, key_word),
        "ZINCRBY" => words![name, key_word, score(gen), member(gen)],
        "ZREM" | "ZMSCORE" => {
            let mut words = words![name, key_word];
            (0..gen.pick(&[1, 2, 5, 20])).for_each(|_| words.push(member(gen)));
            words
        }
        "ZSCORE" | "ZRANK" | "ZREVRANK" => words![name, key_word, member(gen)],
        "ZCOUNT" | "ZREMRANGEBYSCORE" => words![name, key_word, score_bound(gen), score_bound(gen)],
        "ZREMRANGEBYRANK" => words![name, key_word, gen.rng.i32(-9..9).to_string(), gen.index()],
        "ZRANGE" => range(gen, words![name, key_word]),
        "ZRANGESTORE" => {
            let target = key(gen);
            range(gen, words![name, target, key_word])
        }
        "ZREVRANGE" => {
            let mut words = words![name, key_word, gen.index(), gen.index()];
            option(gen, &mut words, 40, "WITHSCORES");
            words
        }
        "ZRANGEBYSCORE" | "ZREVRANGEBYSCORE" => {
            let mut words = words![name, key_word, score_bound(gen), score_bound(gen)];
            option(gen, &mut words, 40, "WITHSCORES");
            limit(gen, &mut words);
            words
        }
        "ZPOPMIN" | "ZPOPMAX" if gen.chance(60) => words![name, key_word, gen.rng.i32(-1..6).to_string()],
        "ZMPOP" => pop_of_several(gen),
        "ZRANDMEMBER" => {
            let mut words = words![name, key_word];
            if gen.chance(80) {
                words.push(gen.rng.i32(-20..20).to_string().into_bytes());
                option(gen, &mut words, 50, "WITHSCORES");
            }
            words
        }
        "ZUNION" | "ZINTER" | "ZDIFF" | "ZINTERCARD" => combination(gen, words![name]),
        "ZUNIONSTORE" | "ZINTERSTORE" | "ZDIFFSTORE" => combination(gen, words![name, key_word]),
        "ZSCAN" => {
            let mut words = words![name, key_word, gen.pick(&["0", "0", "1x"])];
            words.extend(scan_options(gen));
            words
        }
        "NAMES" => by_name(gen),
        "FILL" => {
            let (first, step) = (gen.rng.u32(0..500), gen.rng.u32(0..3));
            let mut words = words!["ZADD", key_word];
            for number in first..first + gen.rng.u32(50..400) {
                let score = (number * step).to_string();
                words.extend([score.into_bytes(), format!("member:{number}").into_bytes()]);
            }
            words
        }
        "OBJECT" => words![name, "ENCODING", key_word],
        "KEY" => gen_elements::on_key(gen, key_word, "zset", key),
        "OTHER" => words![gen.pick(&["SET", "HSET", "LPUSH", "SADD"]), gen.pick(&["s", "a"]), member(gen)],
        _ => words![name, key_word],
    }
}

fn scan(gen: &mut Gen) -> Option<Action> {
    gen.chance(4).then(|| Action::ScanElements(words!["ZSCAN", key(gen)], scan_options(gen)))
}

/// A sequence by its seed.
pub fn sequence(seed: u64) -> Sequence {
    gen_elements::sequence(Gen::new(Rng::with_seed(seed)), seed, command, scan)
}
