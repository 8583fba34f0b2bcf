//! What sequences of commands on collections have in common.

use crate::gen::{is_racy, Gen, Words};
use crate::gen_sorted_set;
use crate::sequence::{Action, Arg, Sequence, Step, CONN_COUNT};
use crate::words;

/// What is done with any key; `other` gives another one.
pub fn on_key(gen: &mut Gen, name: Vec<u8>, value_type: &str, other: fn(&mut Gen) -> Vec<u8>) -> Words {
    match gen.rng.u8(0..8) {
        0 | 1 => words![gen.pick(&["DEL", "UNLINK"]), name],
        2 => words!["RENAME", name, other(gen)],
        3 => words!["COPY", name, other(gen), "REPLACE"],
        4 => words!["EXPIRE", name, gen.pick(&["100000", "-1", "0"])],
        5 => words!["MOVE", name, gen.pick(&["1", "0"])],
        6 => words![gen.pick(&["TYPE", "EXISTS", "PERSIST", "TTL", "TOUCH"]), name],
        _ => words!["SCAN", "0", "TYPE", value_type, "COUNT", "1000"],
    }
}

fn any_command(gen: &mut Gen, command: fn(&mut Gen) -> Words) -> Action {
    loop {
        let mut words = command(gen);
        if gen.chance(5) {
            gen.spoil(&mut words);
        }
        let name = String::from_utf8_lossy(&words[0]).into_owned();
        words[0] = gen.case(&name);
        if !is_racy(&words) && !is_special(&words) {
            return Action::Command(words.into_iter().map(Arg::Bytes).collect());
        }
    }
}

/// Whether it is not compared, for one of these reasons.
pub fn is_special(words: &[Vec<u8>]) -> bool {
    is_random(words) || is_later(words) || mixes_scores(words) || is_of_time(words)
}

/// Whether an entry gets its ID from the clock; or entries go up to an ID by nodes, which are other ones where some have been removed.
fn is_of_time(words: &[Vec<u8>]) -> bool {
    let has = |wanted: &str| words.iter().any(|word| word.eq_ignore_ascii_case(wanted.as_bytes()));
    let is_of_stream = words[0].eq_ignore_ascii_case(b"XADD") || words[0].eq_ignore_ascii_case(b"XTRIM");
    is_of_stream && (has("*") || has("~") && has("MINID"))
}

/// Whether it leaves other elements on one server than on the other, or gives more than is to be had.
fn is_random(words: &[Vec<u8>]) -> bool {
    let number = words.get(2).and_then(|word| std::str::from_utf8(word).ok()?.parse::<i64>().ok());
    match words[0].to_ascii_uppercase().as_slice() {
        b"SPOP" => words.len() != 3 || number.is_some_and(|count| (1..100_000).contains(&count)),
        b"SRANDMEMBER" | b"HRANDFIELD" | b"ZRANDMEMBER" => number.is_some_and(|count| count < -10_000),
        _ => false,
    }
}

/// Whether it may have an option that Redis has since 7.2.
fn is_later(words: &[Vec<u8>]) -> bool {
    let name = words[0].to_ascii_uppercase();
    matches!(&name[..], b"ZRANK" | b"ZREVRANK") && words.len() > 3
}

/// Whether it gives members that are compared by name different scores.
fn mixes_scores(words: &[Vec<u8>]) -> bool {
    let is_of_names = words.get(1).is_some_and(|key| *key == gen_sorted_set::OF_NAMES.as_bytes());
    let is_command = words[0].eq_ignore_ascii_case(b"ZADD");
    is_command && is_of_names && words.iter().skip(2).step_by(2).any(|score| score != b"0")
}

/// A sequence of such commands, some of them in transactions; `rare` gives other steps now and then.
pub fn sequence(
    mut gen: Gen,
    seed: u64,
    command: fn(&mut Gen) -> Words,
    rare: fn(&mut Gen) -> Option<Action>,
) -> Sequence {
    let (resp3, pipelined) = (gen.rng.bool(), gen.rng.bool());
    let mut steps = Vec::new();
    let plain = |words: Words| Action::Command(words.into_iter().map(Arg::Bytes).collect());
    for _ in 0..gen.rng.usize(5..90) {
        if !gen.chance(4) {
            let conn = if gen.chance(85) { 0 } else { gen.rng.usize(0..CONN_COUNT) };
            let action = rare(&mut gen).unwrap_or_else(|| any_command(&mut gen, command));
            steps.push(Step { conn, action });
            continue;
        }
        let conn = gen.rng.usize(0..CONN_COUNT);
        steps.push(Step { conn, action: plain(words!["MULTI"]) });
        for _ in 0..gen.rng.usize(0..6) {
            steps.push(Step { conn, action: any_command(&mut gen, command) });
        }
        steps.push(Step { conn, action: plain(words!["EXEC"]) });
    }
    Sequence { seed, resp3, pipelined, steps }
}
