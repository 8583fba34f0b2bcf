//! Random scripts: commands of all types between conditions, loops and conversions, with their replies as results.

use std::fmt::Write as _;

use fastrand::Rng;

use crate::compare::{mode_of, Mode};
use crate::gen::{is_racy, Gen, Words, LAST_DUMP};
use crate::sequence::Sequence;
use crate::words;
use crate::{gen_elements, gen_hash, gen_list, gen_set, gen_sorted_set, gen_strings};

/// Left out within scripts: what is refused there is tried now and then, what tells of the server or of chance is not compared.
const LEFT_OUT: &[&[u8]] =
    &[b"DEBUG", b"OBJECT", b"RESTORE", b"MEMORY", b"SRANDMEMBER", b"SPOP", b"HRANDFIELD", b"ZRANDMEMBER"];

/// A command that a script may call, and that answers the same everywhere.
fn called(gen: &mut Gen) -> Words {
    loop {
        let mut words = match gen.rng.u8(0..10) {
            0..=3 => gen_strings::command(gen),
            4 | 5 => gen_list::command(gen),
            6 => gen_hash::command(gen),
            7 => gen_set::command(gen),
            8 => gen_sorted_set::command(gen),
            _ => {
                let names = ["WATCH", "MULTI", "BLPOP", "nosuch", "SUBSCRIBE", "EXISTS", "DBSIZE", "EVAL"];
                words![gen.pick(&names), gen.key(), "0"]
            }
        };
        if gen.chance(5) {
            gen.spoil(&mut words);
        }
        let name = words[0].to_ascii_uppercase();
        let sets_absolute = |w: &Vec<u8>| w.eq_ignore_ascii_case(b"EXAT") || w.eq_ignore_ascii_case(b"PXAT");
        let is_left_out = LEFT_OUT.contains(&&name[..])
            || words.iter().any(|w| w == LAST_DUMP || sets_absolute(w))
            || words.iter().map(Vec::len).sum::<usize>() > 4000
            || gen_elements::is_special(&words)
            || mode_of(&words) != Mode::Exact
            || is_racy(&words);
        if !is_left_out {
            return words;
        }
    }
}

/// A string of Lua.
fn literal(bytes: &[u8]) -> String {
    let mut text = String::from("'");
    for &byte in bytes {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b' ' | b':' | b'_' => text.push(byte as char),
            _ => drop(write!(text, "\\{byte:03}")),
        }
    }
    text.push('\'');
    text
}

/// A call; some of its words are arguments of the script.
fn call(gen: &mut Gen, args: &mut Words) -> String {
    let words = called(gen);
    let function = gen.pick(&["redis.call", "redis.pcall", "redis.pcall", "redis.pcall"]);
    let mut text = format!("{function}(");
    for (index, word) in words.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        let is_number =
            !word.is_empty() && word.len() < 8 && word.iter().all(u8::is_ascii_digit) && word[0] != b'0';
        match gen.rng.u8(0..4) {
            0 => {
                args.push(word);
                let _ = write!(text, "ARGV[{}]", args.len());
            }
            1 if is_number => text.push_str(&String::from_utf8_lossy(&word)),
            _ => text.push_str(&literal(&word)),
        }
    }
    text.push(')');
    text
}

fn statement(gen: &mut Gen, args: &mut Words, depth: u32) -> String {
    let what = gen.rng.u8(0..20);
    match what {
        0 if depth < 3 => {
            let (count, inside) = (gen.rng.u8(0..4), block(gen, args, depth + 1));
            format!("for i = 1, {count} do {inside} end")
        }
        1 | 2 if depth < 3 => {
            let (condition, then) = (call(gen, args), block(gen, args, depth + 1));
            let other = block(gen, args, depth + 1);
            format!("if {condition} then {then} else {other} end")
        }
        3 => format!("out[#out + 1] = type({})", call(gen, args)),
        4 => format!("local r = {} if type(r) == 'table' then out[#out + 1] = #r end", call(gen, args)),
        5 => format!(
            "out[#out + 1] = tostring({}) .. '!'",
            gen.pick(&["1.5", "2^53", "1e100", "true", "nil", "0.1"])
        ),
        6 => format!(
            "out[#out + 1] = {}",
            gen.pick(&["1.9", "-1.9", "true", "'x'", "{1, {2, 'y'}}", "{ok = 'fine'}"])
        ),
        7 if gen.chance(30) => format!("redis.setresp({})", gen.pick(&["2", "3", "4"])),
        8 if gen.chance(20) => {
            gen.pick(&["error('mine')", "nosuch()", "local x = nil + 1", "error({err = 'OWN kind'})"]).into()
        }
        9 => format!("pcall(function() {} end)", block(gen, args, depth + 1)),
        10 => format!("redis.call('SELECT', {})", gen.pick(&["0", "1", "3", "'x'"])),
        _ => format!("out[#out + 1] = {}", call(gen, args)),
    }
}

fn block(gen: &mut Gen, args: &mut Words, depth: u32) -> String {
    let count = gen.rng.usize(1..if depth == 0 { 7 } else { 3 });
    (0..count).map(|_| statement(gen, args, depth)).collect::<Vec<_>>().join("\n")
}

fn script(gen: &mut Gen) -> Words {
    let mut args = Words::new();
    let head = match gen.rng.u8(0..20) {
        0 => "#!lua\n",
        1 => "#!lua flags=no-writes\n",
        2 => "#!lua flags=allow-oom,no-cluster\n",
        _ => "",
    };
    let body = block(gen, &mut args, 0);
    let end = gen.pick(&[
        "return out",
        "return out",
        "return out",
        "return #out",
        "return out[1]",
        "return redis.error_reply('mine ' .. #out)",
        "return redis.status_reply('FINE')",
        "return cjson.encode(#out)",
        "return {out, {map = {a = 1}}, {double = 1.5}}",
        "return",
    ]);
    let source = format!("{head}local out = {{}}\n{body}\n{end}");
    let name = if gen.chance(10) { "EVAL_RO" } else { "EVAL" };
    let mut words = words![name, source];
    let key_count = gen.rng.usize(0..3);
    words.push(key_count.to_string().into_bytes());
    (0..key_count).for_each(|_| words.push(gen.key()));
    // What the script reads as ARGV begins behind the keys.
    words.extend(args);
    words
}

fn command(gen: &mut Gen) -> Words {
    match gen.rng.u8(0..20) {
        0 => words!["SCRIPT", gen.pick(&["EXISTS", "LOAD", "FLUSH", "KILL", "nosuch"]), gen.key()],
        1 => words![gen.pick(&["EVALSHA", "EVALSHA_RO"]), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
        2 => words!["EVAL", "return 1", "0"],
        3 => gen_list::command(gen),
        4 => words!["EVAL", gen.random_bytes(20), gen.integer(), gen.key()],
        _ => script(gen),
    }
}

/// A sequence by its seed.
pub fn sequence(seed: u64) -> Sequence {
    gen_elements::sequence(Gen::new(Rng::with_seed(seed)), seed, command, |_| None)
}
