//! Random commands on places in sorted sets, small ones and large ones. Many places are on a coarse grid, so that there are
//! equal distances; others are at the edges of the map.

use fastrand::Rng;

use crate::gen::{Gen, Words};
use crate::gen_elements;
use crate::sequence::{Action, Sequence};
use crate::words;

const NAMES: &[&str] = &[
    "GEOADD",
    "GEOADD",
    "GEOADD",
    "GEODIST",
    "GEOHASH",
    "GEOPOS",
    "GEOSEARCH",
    "GEOSEARCH",
    "GEOSEARCH",
    "GEOSEARCH",
    "GEOSEARCHSTORE",
    "GEOSEARCHSTORE",
    "GEORADIUS",
    "GEORADIUS",
    "GEORADIUS_RO",
    "GEORADIUSBYMEMBER",
    "GEORADIUSBYMEMBER",
    "GEORADIUSBYMEMBER_RO",
    "FILL",
    "FILL",
    "ZADD",
    "ZREM",
    "ZRANGE",
    "OBJECT",
    "KEY",
    "OTHER",
];

/// Longitudes and latitudes where something is different.
const EDGES: &[(&str, &str)] = &[
    ("180", "0"),
    ("-180", "0"),
    ("180", "85.05112878"),
    ("-180", "-85.05112878"),
    ("0", "85.05112878"),
    ("0", "-85.05112878"),
    ("0", "0"),
    ("-0", "-0"),
    ("179.9999", "10"),
    ("-179.9999", "10"),
    ("90", "66.0001"),
    ("90", "-80.0001"),
    ("180.0001", "0"),
    ("0", "85.0512"),
    ("5e-324", "1e-300"),
];

fn key(gen: &mut Gen) -> Vec<u8> {
    gen.pick(&["a", "a", "a", "b", "c", "s"]).into()
}

fn member(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..20) {
        0 => gen.value(),
        1 => format!("place:{}", gen.rng.u32(0..400)).into_bytes(),
        _ => format!("m{}", gen.rng.u32(0..30)).into_bytes(),
    }
}

/// On a grid around a city, round the date line, or near a pole.
fn on_grid(gen: &mut Gen) -> Words {
    let (longitude, latitude) =
        gen.pick(&[(15.0, 37.0), (15.0, 37.0), (15.0, 37.0), (179.5, 0.0), (-20.0, 84.0)]);
    let mut near = |middle: f64| middle + f64::from(gen.rng.i32(-4..5)) / 10.0;
    let (longitude, latitude) = (near(longitude), near(latitude));
    let longitude = if longitude > 180.0 { longitude - 360.0 } else { longitude };
    words![longitude.to_string(), latitude.to_string()]
}

fn place(gen: &mut Gen) -> Words {
    match gen.rng.u8(0..20) {
        0..=9 => on_grid(gen),
        10..=13 => {
            let (longitude, latitude) = gen.pick(EDGES);
            words![longitude, latitude]
        }
        14 if gen.chance(30) => words![gen.odd_number(), gen.float()],
        _ => {
            let mut degrees = |most: f64| ((gen.rng.f64() * 2.0 - 1.0) * most).to_string();
            words![degrees(180.0), degrees(85.05)]
        }
    }
}

fn unit(gen: &mut Gen) -> Vec<u8> {
    let unit = gen.pick(&["m", "km", "km", "km", "ft", "mi"]);
    if gen.chance(2) {
        return b"furlong".to_vec();
    }
    gen.case(unit)
}

fn size(gen: &mut Gen) -> Vec<u8> {
    match gen.rng.u8(0..30) {
        0 => gen.odd_number(),
        1 => gen.pick(&["0", "-0", "-1", "inf", "1e300", "1e-9", "5e-324"]).into(),
        2..=5 => format!("{:e}", 10f64.powf(gen.rng.f64() * 9.0)).into_bytes(),
        6..=9 => gen.pick(&["1000", "5000", "20000", "40000"]).into(),
        _ => (f64::from(gen.rng.u32(0..600)) / 2.0).to_string().into_bytes(),
    }
}

fn option(gen: &mut Gen, words: &mut Words, percent: u32, name: &str) {
    if gen.chance(percent) {
        words.push(gen.case(name));
    }
}

/// What all searches take.
fn search_options(gen: &mut Gen, words: &mut Words, details_percent: u32) {
    for name in ["WITHCOORD", "WITHDIST", "WITHHASH"] {
        option(gen, words, details_percent, name);
    }
    if gen.chance(50) {
        words.push(gen.case("COUNT"));
        let count = if gen.chance(95) { gen.rng.i32(0..12).to_string().into_bytes() } else { gen.integer() };
        words.push(count);
        option(gen, words, 30, "ANY");
    }
    option(gen, words, 1, "ANY");
    option(gen, words, 30, "ASC");
    option(gen, words, 30, "DESC");
}

fn by_options(gen: &mut Gen, mut words: Words) -> Words {
    let stores = words[0] == b"GEOSEARCHSTORE";
    if gen.chance(97) {
        match gen.rng.bool() {
            true => words.extend([gen.case("FROMMEMBER"), member(gen)]),
            false => {
                words.push(gen.case("FROMLONLAT"));
                words.extend(place(gen));
            }
        }
    }
    if gen.chance(97) {
        match gen.rng.bool() {
            true => words.extend([gen.case("BYRADIUS"), size(gen)]),
            false => words.extend([gen.case("BYBOX"), size(gen), size(gen)]),
        }
        words.push(unit(gen));
    }
    search_options(gen, &mut words, if stores { 2 } else { 30 });
    option(gen, &mut words, if stores { 40 } else { 2 }, "STOREDIST");
    if gen.chance(5) {
        words.extend([gen.case("FROMMEMBER"), member(gen)]);
    }
    words
}

fn by_radius(gen: &mut Gen, mut words: Words) -> Words {
    match words[0].starts_with(b"GEORADIUSBYMEMBER") {
        true => words.push(member(gen)),
        false => words.extend(place(gen)),
    }
    words.extend([size(gen), unit(gen)]);
    let stores = gen.chance(if words[0].ends_with(b"_RO") { 2 } else { 40 });
    search_options(gen, &mut words, if stores { 2 } else { 30 });
    if stores {
        let option = gen.pick(&["STORE", "STOREDIST"]);
        words.extend([gen.case(option), key(gen)]);
    }
    if stores && gen.chance(5) {
        words.extend([gen.case("STORE"), key(gen)]);
    }
    words
}

fn add(gen: &mut Gen, key: Vec<u8>) -> Words {
    let mut words = words!["GEOADD", key];
    for name in ["NX", "XX", "CH"] {
        option(gen, &mut words, 10, name);
    }
    for _ in 0..gen.pick(&[1, 1, 2, 5, 20]) {
        words.extend(place(gen));
        words.push(member(gen));
    }
    words
}

fn command(gen: &mut Gen) -> Words {
    let (name, key_word) = (gen.pick(NAMES), key(gen));
    match name {
        "GEOADD" => add(gen, key_word),
        "GEODIST" => {
            let mut words = words![name, key_word, member(gen), member(gen)];
            if gen.chance(60) {
                words.push(unit(gen));
            }
            words
        }
        "GEOHASH" | "GEOPOS" | "ZREM" => {
            let mut words = words![name, key_word];
            (0..gen.rng.usize(0..6)).for_each(|_| words.push(member(gen)));
            words
        }
        "GEOSEARCH" => by_options(gen, words![name, key_word]),
        "GEOSEARCHSTORE" => {
            let target = key(gen);
            by_options(gen, words![name, target, key_word])
        }
        "GEORADIUS" | "GEORADIUS_RO" | "GEORADIUSBYMEMBER" | "GEORADIUSBYMEMBER_RO" => {
            by_radius(gen, words![name, key_word])
        }
        "FILL" => {
            let mut words = words!["GEOADD", key_word];
            let first = gen.rng.u32(0..300);
            for number in first..first + gen.rng.u32(10..200) {
                words.extend(if gen.chance(80) { on_grid(gen) } else { place(gen) });
                words.push(format!("place:{number}").into_bytes());
            }
            words
        }
        "ZADD" => {
            let score = match gen.rng.u8(0..3) {
                0 => gen.rng.u64(0..1 << 54).to_string(),
                1 => (gen.rng.f64() * 1e16).to_string(),
                _ => {
                    gen.pick(&["-1", "inf", "-inf", "1e19", "-0.5", "1e15", "4503599627370495.5"]).to_owned()
                }
            };
            words![name, key_word, score, member(gen)]
        }
        "ZRANGE" => words![name, key_word, "0", "-1", "WITHSCORES"],
        "OBJECT" => words![name, "ENCODING", key_word],
        "KEY" => gen_elements::on_key(gen, key_word, "zset", key),
        _ => words![gen.pick(&["SET", "SADD", "LPUSH"]), gen.pick(&["s", "s", "c"]), member(gen)],
    }
}

fn nothing_else(_: &mut Gen) -> Option<Action> {
    None
}

/// A sequence by its seed.
pub fn sequence(seed: u64) -> Sequence {
    gen_elements::sequence(Gen::new(Rng::with_seed(seed)), seed, command, nothing_else)
}
