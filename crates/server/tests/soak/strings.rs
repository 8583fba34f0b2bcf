//! Strings of all lengths, most of the data: each has the value that was stored last.

use std::collections::HashMap;

use stillframe_testkit::Reply;

use crate::conn::{random_bytes, with, words, Conn, Words};
use crate::Soak;

/// Bytes of data a byte of memory.
const DATA_PART: u64 = 10;
/// Of a value in the mean, with its key.
const MEAN_BYTES: u64 = 4_400;
/// Keys of which parts are changed.
const EDITED_COUNT: u32 = 60;
const EDITED_BYTES_MAX: usize = 60_000;
/// Values up to this length are sent with others.
const TOGETHER_BYTES: usize = 8_000;

/// A value that its seed stands for.
#[derive(Clone, Copy)]
struct Stored {
    seed: u64,
    len: usize,
}

impl Stored {
    fn bytes(self) -> Vec<u8> {
        random_bytes(self.seed, self.len)
    }
}

pub struct Strings {
    rng: fastrand::Rng,
    key_count: u32,
    stored: HashMap<u32, Stored>,
    edited: HashMap<u32, Vec<u8>>,
}

fn key(number: u32) -> String {
    format!("s:{number}")
}

fn int(number: usize) -> Reply {
    Reply::Int(number as i64)
}

impl Strings {
    pub fn new(run: &Soak) -> Strings {
        let key_count = (run.memory_bytes * DATA_PART / MEAN_BYTES) as u32;
        Strings { rng: run.rng(1), key_count, stored: HashMap::new(), edited: HashMap::new() }
    }

    fn new_value(&mut self, number: u32) -> Stored {
        let len = match number {
            _ if number % 997 == 1 => self.rng.usize(300_000..1_500_000),
            _ if number % 16 == 0 => self.rng.usize(20_000..60_000),
            _ if number % 4 == 0 => self.rng.usize(500..4_000),
            _ => self.rng.usize(0..400),
        };
        Stored { seed: self.rng.u64(..), len }
    }

    /// Fills, and then reads and changes until the end.
    pub fn run(&mut self, run: &Soak) {
        let mut conn = run.connect("strings");
        let mut next = 0;
        while run.goes_on() {
            let is_filling = next < self.key_count;
            let mut commands = Vec::new();
            let mut expected = Vec::new();
            let mut bytes = 0;
            while commands.len() < 16 && bytes < TOGETHER_BYTES {
                let number = if is_filling { next } else { self.rng.u32(..self.key_count) };
                next += u32::from(is_filling);
                let (command, reply) = match is_filling {
                    true => self.set(number),
                    false => self.step(number),
                };
                bytes += command.iter().map(Vec::len).sum::<usize>();
                commands.push(command);
                expected.push(reply);
            }
            check(&mut conn, &commands, &expected);
        }
    }

    fn set(&mut self, number: u32) -> (Words, Reply) {
        let value = self.new_value(number);
        self.stored.insert(number, value);
        (with(&format!("SET {}", key(number)), &value.bytes()), Reply::ok())
    }

    fn get(&self, number: u32) -> (Words, Reply) {
        let found = self.stored.get(&number).map(|value| Reply::Bulk(value.bytes()));
        (words(&format!("GET {}", key(number))), found.unwrap_or(Reply::NullBulk))
    }

    fn step(&mut self, number: u32) -> (Words, Reply) {
        let name = key(number);
        match self.rng.u32(..100) {
            0..45 => self.get(number),
            45..80 => self.set(number),
            80..83 => {
                let was_there = self.stored.remove(&number).is_some();
                (words(&format!("DEL {name}")), int(usize::from(was_there)))
            }
            83..86 => {
                let len = self.stored.get(&number).map_or(0, |value| value.len);
                (words(&format!("STRLEN {name}")), int(len))
            }
            86..90 => {
                let bytes = self.stored.get(&number).map_or(Vec::new(), |value| value.bytes());
                let (from, to) = (bytes.len() / 3, bytes.len() / 3 + 50);
                let part = bytes[from.min(bytes.len())..(to + 1).min(bytes.len())].to_vec();
                (words(&format!("GETRANGE {name} {from} {to}")), Reply::Bulk(part))
            }
            _ => self.edit(number % EDITED_COUNT),
        }
    }

    /// Changes a part of a value.
    fn edit(&mut self, number: u32) -> (Words, Reply) {
        let name = format!("e:{number}");
        let added = random_bytes(self.rng.u64(..), self.rng.usize(..3_000));
        let value = self.edited.entry(number).or_default();
        match self.rng.u32(..5) {
            0 if value.len() > EDITED_BYTES_MAX => {
                value.clear();
                (with(&format!("SET {name}"), b""), Reply::ok())
            }
            0 | 1 => {
                value.extend(&added);
                (with(&format!("APPEND {name}"), &added), int(value.len()))
            }
            2 if !added.is_empty() => {
                let at = self.rng.usize(..value.len() + 100);
                value.resize(value.len().max(at + added.len()), 0);
                value[at..at + added.len()].copy_from_slice(&added);
                (with(&format!("SETRANGE {name} {at}"), &added), int(value.len()))
            }
            3 => {
                let ones: u32 = value.iter().map(|byte| byte.count_ones()).sum();
                (words(&format!("BITCOUNT {name}")), int(ones as usize))
            }
            _ => {
                let bytes = value.clone();
                (words(&format!("GETRANGE {name} 0 -1")), Reply::Bulk(bytes))
            }
        }
    }

    /// Each value is as it was stored.
    pub fn check_all(&self, run: &Soak) {
        let mut conn = run.connect("strings, all");
        for number in 0..self.key_count {
            let (command, expected) = self.get(number);
            check(&mut conn, &[command], &[expected]);
        }
        for (number, value) in &self.edited {
            let command = words(&format!("GETRANGE e:{number} 0 -1"));
            check(&mut conn, &[command], &[Reply::Bulk(value.clone())]);
        }
    }
}

fn check(conn: &mut Conn<'_>, commands: &[Words], expected: &[Reply]) {
    let replies = conn.run_all(commands);
    for ((command, reply), expected) in commands.iter().zip(&replies).zip(expected) {
        let line = || String::from_utf8_lossy(&command[..2].join(&b' ')).into_owned();
        let len = |reply: &Reply| reply.bytes().map(<[u8]>::len);
        // Values are long.
        assert!(reply == expected, "{}: {:?} bytes, not {:?}", line(), len(reply), len(expected));
    }
}
