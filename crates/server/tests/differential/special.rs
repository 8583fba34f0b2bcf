//! Sequences about one thing, denser than random ones.

use fastrand::Rng;

use crate::sequence::{Action, Arg, Sequence, Step};
use crate::words;

fn sequence(seed: u64, commands: Vec<Vec<Vec<u8>>>) -> Sequence {
    let step = |words: Vec<Vec<u8>>| Step {
        conn: 0,
        action: Action::Command(words.into_iter().map(Arg::Bytes).collect()),
    };
    Sequence { seed, resp3: false, pipelined: true, steps: commands.into_iter().map(step).collect() }
}

/// Sums of numbers of all sizes, in all notations.
pub fn floats(seed: u64) -> Sequence {
    let mut rng = Rng::with_seed(seed);
    let mut commands = Vec::new();
    for _ in 0..100 {
        let (a, b) = (float(&mut rng), float(&mut rng));
        // The sum of near numbers loses its leading digits and shows the last bits.
        let b = if rng.u8(0..4) == 0 { format!("-{}", a.trim_start_matches('-')) } else { b };
        commands.extend([words!["SET", "a", a.clone()], words!["INCRBYFLOAT", "a", b]]);
        if rng.u8(0..4) == 0 {
            commands.push(words!["INCRBYFLOAT", "a", float(&mut rng)]);
        }
    }
    sequence(seed, commands)
}

fn float(rng: &mut Rng) -> String {
    let sign = ["", "-", "", "+"][rng.usize(..4)];
    let mut digits = |max: usize| -> String { (0..rng.usize(0..max)).map(|_| rng.digit(10)).collect() };
    let (whole, fraction, long) = (digits(22), digits(25), digits(400));
    let exponent = rng.i32(-40..40);
    match rng.u8(0..9) {
        0 => format!("{sign}{}", rng.i64(..)),
        1 => format!("{sign}{whole}.{fraction}"),
        2 => format!("{sign}{whole}.{fraction}e{exponent}"),
        3 => format!("{sign}{whole}1E{}", rng.i32(-4980..4940)),
        4 => format!("{sign}{whole}.{long}"),
        5 => format!("{sign}0x{:x}.{:x}p{}", rng.u64(..), rng.u64(..), exponent),
        6 => format!("{sign}0X.{:x}p{}", rng.u64(..), rng.i32(-16_600..16_600)),
        7 => format!("{sign}{}", rng.f64() * 10f64.powi(exponent)),
        _ => format!("{sign}{}.5", rng.u64(..)),
    }
}

/// Patterns over short keys of the bytes that mean something in them.
pub fn patterns(seed: u64) -> Sequence {
    let mut rng = Rng::with_seed(seed);
    let mut text = |alphabet: &[u8], max: usize| -> Vec<u8> {
        (0..rng.usize(0..max)).map(|_| alphabet[rng.usize(..alphabet.len())]).collect()
    };
    let mut commands: Vec<_> = (0..60).map(|_| words!["SET", text(b"aab-]^\\\0", 6), ""]).collect();
    commands.extend((0..150).map(|_| words!["KEYS", text(b"ab**?[]^-\\\0", 9)]));
    sequence(seed, commands)
}

/// What takes too much time or memory to be tried at random.
pub fn limits() -> Sequence {
    let lines = [
        "SETBIT big 4294967295 1",
        "STRLEN big",
        "APPEND big x",
        "SETRANGE big 536870911 ab",
        "SETRANGE big 536870912 a",
        "SETRANGE big 536870911 b",
        "GETRANGE big -3 -1",
        "BITCOUNT big",
        "BITPOS big 1",
        "BITPOS big 0 536870911",
        "BITFIELD big GET u8 4294967288 GET u8 4294967291 SET u8 #536870911 7",
        "BITFIELD_RO big GET i64 4294967264",
        "GETBIT big 4294967295",
        "GETBIT big 4294967296",
        "SETRANGE other 536870912 a",
        "APPEND other x",
        "DEL big",
        "SETRANGE a 40000 x",
        "LCS a a",
        "LCS a a LEN",
        "SET dead 1 PXAT 1",
        "GET dead",
        "SET dead 1",
        "SET dead 2 GET EXAT 1000",
        "EXISTS dead",
        "SET dead 3",
        "GETEX dead PXAT 1",
        "EXISTS dead",
        "DEBUG POPULATE 1000",
        "DBSIZE",
        "GET key:999",
        "DEBUG POPULATE 10 p 5",
        "GET p:9",
        "DEBUG POPULATE 10 q 50",
        "GET q:9",
    ];
    let words = |line: &str| line.split(' ').map(|w| w.as_bytes().to_vec()).collect();
    sequence(0, lines.iter().map(|line| words(line)).collect())
}
