//! What a player does next.

use crate::log_model::{Data, Entry, Space, Value, Words};
use crate::log_player::{unix_ms, Command};
use crate::log_streams::{Id, Stream, GROUP};

/// 2100-01-01: deadlines that no test lives to see.
const FAR_AHEAD_MS: i64 = 4_102_444_800_000;

/// Values in a leaf, in slabs and in pages of their own.
const LENGTHS: [std::ops::Range<usize>; 3] = [0..200, 500..9_000, 12_000..90_000];
/// Values that the log takes by reference.
const GREAT: std::ops::Range<usize> = 300_000..3_000_000;

type Commands = Vec<Command>;

pub struct Moves {
    first_db: u32,
    rng: fastrand::Rng,
    counter: u64,
}

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn command(line: &str) -> Command {
    Command { sent: words(line), meant: None }
}

fn with_bytes(line: &str, bytes: Vec<u8>) -> Command {
    let mut sent = words(line);
    sent.push(bytes);
    Command { sent, meant: None }
}

/// Whether nothing in it is over soon.
fn is_steady(entry: &Entry) -> bool {
    let is_far = |deadline_ms: Option<i64>| deadline_ms.is_none_or(|deadline_ms| deadline_ms >= FAR_AHEAD_MS);
    let fields_are = match &entry.value {
        Value::Hash(fields) => fields.values().all(|field| is_far(field.1)),
        _ => true,
    };
    fields_are && is_far(entry.deadline_ms)
}

impl Moves {
    pub fn new(first_db: u32, rng: fastrand::Rng) -> Moves {
        Moves { first_db, rng, counter: 0 }
    }

    /// Commands of a step, and whether they are a transaction.
    pub fn next(&mut self, data: &Data) -> (Commands, bool) {
        let mut data = data.clone();
        let is_transaction = self.rng.u32(..3) == 0;
        let count = if is_transaction { 2 + self.rng.usize(..6) } else { 1 };
        let db = self.rng.usize(..2);
        let mut commands = vec![command(&format!("SELECT {}", self.first_db + db as u32))];
        data.run(&commands[0].sent);
        for _ in 0..count {
            if is_transaction && self.rng.u32(..5) == 0 {
                let select = command(&format!("SELECT {}", self.first_db + self.rng.u32(..2)));
                data.run(&select.sent);
                commands.push(select);
            }
            let Some(next) = self.one(&data) else { continue };
            data.run(&next.sent);
            commands.push(next);
        }
        (commands, is_transaction)
    }

    /// The key to be dumped, if it is time for a `RESTORE`.
    pub fn wants_payload(&mut self, data: &Data) -> Option<(usize, String)> {
        if self.rng.u32(..25) > 0 {
            return None;
        }
        let db = self.rng.usize(..2);
        let kinds = ["s:", "q:", "e:", "z:", "b:", "x:"];
        let kind = kinds[self.rng.usize(..kinds.len())];
        self.present(&data.dbs[db], kind).map(|key| (db, key))
    }

    pub fn restore(&mut self, db: usize, from: &str, payload: &[u8]) -> (Commands, bool) {
        let to = self.key(&from[..2]);
        let mut restore = words(&format!("RESTORE {to} 0"));
        restore.extend([payload.to_vec(), b"REPLACE".to_vec()]);
        let meant = Some(words(&format!("RESTORE-AS {to} {from}")));
        let select = command(&format!("SELECT {}", self.first_db + db as u32));
        (vec![select, Command { sent: restore, meant }], false)
    }

    fn key(&mut self, kind: &str) -> String {
        let count = match kind {
            "s:" => 30,
            "n:" | "m:" | "t:" => 8,
            "b:" => 2,
            _ => 4,
        };
        format!("{kind}{}", self.rng.u32(..count))
    }

    /// A key of the kind that is there and stays, if one is found soon.
    fn present(&mut self, space: &Space, kind: &str) -> Option<String> {
        (0..4).map(|_| self.key(kind)).find(|key| space.get(key).is_some_and(is_steady))
    }

    fn bytes(&mut self, lens: std::ops::Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; self.rng.usize(lens)];
        self.counter += 1;
        fastrand::Rng::with_seed(self.counter ^ self.rng.u64(..)).fill(&mut bytes);
        bytes
    }

    /// A word that no other is like.
    fn word(&mut self) -> String {
        self.counter += 1;
        let longer = match self.rng.u32(..60) {
            0 => 6_000,
            1..=8 => 120,
            _ => 0,
        };
        format!("{}.{}{}", self.first_db, self.counter, "w".repeat(longer))
    }

    fn member(&mut self) -> String {
        match self.rng.u32(..3) {
            0 => self.rng.u32(..40).to_string(),
            _ => format!("member:{}", self.rng.u32(..60)),
        }
    }

    fn far_ms(&mut self) -> i64 {
        FAR_AHEAD_MS + i64::from(self.rng.u32(..1_000_000))
    }

    fn one(&mut self, data: &Data) -> Option<Command> {
        let space = &data.dbs[data.at];
        match self.rng.u32(..100) {
            0..=27 => self.of_text(space),
            28..=37 => self.of_key(data),
            38..=50 => self.of_hash(space),
            51..=66 => self.of_list(space),
            67..=77 => Some(self.of_set()),
            78..=84 => Some(self.of_sorted()),
            85..=92 => Some(self.of_stream(space)),
            93..=97 => self.fleeting(space),
            98 => Some(command(&format!("SWAPDB {} {}", self.first_db, self.first_db + 1))),
            _ if self.rng.u32(..6) == 0 => Some(command("FLUSHDB")),
            _ => None,
        }
    }

    fn of_text(&mut self, space: &Space) -> Option<Command> {
        let class = [0, 0, 0, 0, 0, 0, 1, 1, 2][self.rng.usize(..9)];
        let key = self.key(if class == 0 { "s:" } else { "m:" });
        Some(match self.rng.u32(..20) {
            0..=4 => with_bytes(&format!("SET {key}"), self.bytes(LENGTHS[class].clone())),
            5 => {
                let mut command = with_bytes(&format!("SET {key}"), self.bytes(LENGTHS[class].clone()));
                command.sent.extend(words(&format!("PXAT {}", self.far_ms())));
                command
            }
            6 => {
                let mut command = with_bytes(&format!("SET {key}"), self.bytes(LENGTHS[class].clone()));
                command.sent.push(b"KEEPTTL".to_vec());
                command
            }
            7..=8 => {
                let is_long = space.get(&key).is_some_and(|entry| match &entry.value {
                    Value::Text(value) => value.len() > 200_000,
                    _ => true,
                });
                if is_long {
                    return None;
                }
                with_bytes(&format!("APPEND {key}"), self.bytes(1..LENGTHS[class].end / 2))
            }
            9 => {
                let offset = self.rng.usize(..LENGTHS[class].end);
                with_bytes(&format!("SETRANGE {key} {offset}"), self.bytes(1..300))
            }
            10..=14 => {
                let by = self.rng.i32(-5..50);
                command(&format!("INCRBY {} {by}", self.key("n:")))
            }
            15 => {
                let mut all = words("MSET");
                for _ in 0..2 + self.rng.usize(..6) {
                    all.extend([self.key("s:").into_bytes(), self.bytes(0..60)]);
                }
                Command { sent: all, meant: None }
            }
            16 => command(&format!("GETDEL {key}")),
            17 => with_bytes(&format!("GETSET {key}"), self.bytes(LENGTHS[class].clone())),
            18 if self.rng.u32(..6) == 0 => with_bytes(&format!("SET {}", self.key("b:")), self.bytes(GREAT)),
            18 if self.rng.u32(..6) == 0 => {
                let (key, offset) = (self.key("b:"), self.rng.usize(..GREAT.end / 2));
                with_bytes(&format!("SETRANGE {key} {offset}"), self.bytes(1..400_000))
            }
            _ => {
                let keys: Vec<_> = (0..1 + self.rng.usize(..4)).map(|_| self.key("s:")).collect();
                command(&format!("DEL {}", keys.join(" ")))
            }
        })
    }

    /// What is the same for all types.
    fn of_key(&mut self, data: &Data) -> Option<Command> {
        let space = &data.dbs[data.at];
        let kinds = ["s:", "s:", "n:", "m:", "b:", "h:", "q:", "e:", "z:", "x:"];
        let kind = kinds[self.rng.usize(..kinds.len())];
        let from = self.present(space, kind)?;
        let to = self.key(kind);
        let db = self.first_db + self.rng.u32(..2);
        Some(match self.rng.u32(..9) {
            0..=1 if from != to => command(&format!("RENAME {from} {to}")),
            2..=3 if from != to => command(&format!("COPY {from} {to} DB {db} REPLACE")),
            4 => command(&format!("MOVE {from} {}", self.first_db + (1 - data.at) as u32)),
            5 => command(&format!("PEXPIREAT {from} {}", self.far_ms())),
            6 => command(&format!("PERSIST {from}")),
            // That is over at once.
            7 => command(&format!("PEXPIREAT {from} 1")),
            _ => command(&format!("DEL {from}")),
        })
    }

    fn of_hash(&mut self, space: &Space) -> Option<Command> {
        let key = self.key("h:");
        let field = format!("field:{}", self.rng.u32(..30));
        let count = 1 + self.rng.usize(..8);
        Some(match self.rng.u32(..9) {
            0..=3 => {
                let pairs: Vec<_> =
                    (0..count).map(|_| format!("field:{} {}", self.rng.u32(..30), self.word())).collect();
                command(&format!("HSET {key} {}", pairs.join(" ")))
            }
            4 => command(&format!("HDEL {key} {field} field:{}", self.rng.u32(..30))),
            5 => command(&format!("HINCRBY {key} count:{} {}", self.rng.u32(..3), self.rng.i32(-9..99))),
            _ => {
                let key = self.present(space, "h:")?;
                let at = match self.rng.u32(..4) {
                    0 => return Some(command(&format!("HPERSIST {key} FIELDS 1 {field}"))),
                    1 => 1,
                    _ => self.far_ms(),
                };
                command(&format!("HPEXPIREAT {key} {at} FIELDS 1 {field}"))
            }
        })
    }

    fn of_list(&mut self, space: &Space) -> Option<Command> {
        let key = self.key("q:");
        let found = self.present(space, "q:");
        let side = |rng: &mut fastrand::Rng| if rng.bool() { "LEFT" } else { "RIGHT" };
        Some(match self.rng.u32(..14) {
            0..=4 => {
                let items: Vec<_> = (0..1 + self.rng.usize(..5)).map(|_| self.word()).collect();
                command(&format!("{} {key} {}", ["LPUSH", "RPUSH"][self.rng.usize(..2)], items.join(" ")))
            }
            5..=6 => command(&format!("{} {key}", ["LPOP", "RPOP"][self.rng.usize(..2)])),
            7..=8 => {
                let (from, to) = (side(&mut self.rng), side(&mut self.rng));
                command(&format!("LMOVE {key} {} {from} {to}", self.key("q:")))
            }
            9 => command(&format!("LTRIM {key} {} {}", self.rng.i32(-40..3), self.rng.i32(-3..40))),
            kind => {
                let key = found?;
                let Value::List(items) = &space[&key].value else { return None };
                let index = self.rng.usize(..items.len());
                match kind {
                    10 => command(&format!("LSET {key} {index} {}", self.word())),
                    11 => command(&format!("LREM {key} 0 {}", items[index])),
                    _ => command(&format!("LINSERT {key} BEFORE {} {}", items[index], self.word())),
                }
            }
        })
    }

    fn of_set(&mut self) -> Command {
        let (key, other, third) = (self.key("e:"), self.key("e:"), self.key("e:"));
        let members: Vec<_> = (0..1 + self.rng.usize(..5)).map(|_| self.member()).collect();
        command(&match self.rng.u32(..10) {
            0..=4 => format!("SADD {key} {}", members.join(" ")),
            5..=6 => format!("SREM {key} {}", members.join(" ")),
            7 => format!("SMOVE {key} {other} {}", members[0]),
            8 => format!("SUNIONSTORE {key} {other} {third}"),
            _ => format!("SDIFFSTORE {key} {other} {third}"),
        })
    }

    fn of_sorted(&mut self) -> Command {
        let key = self.key("z:");
        let pairs: Vec<_> = (0..1 + self.rng.usize(..5))
            .map(|_| format!("{} {}", self.rng.i32(-100..100), self.member()))
            .collect();
        command(&match self.rng.u32(..10) {
            0..=4 => format!("ZADD {key} {}", pairs.join(" ")),
            5 => format!("ZINCRBY {key} {} {}", self.rng.i32(-9..9), self.member()),
            6 => format!("ZREM {key} {} {}", self.member(), self.member()),
            7..=8 => format!("ZPOPMIN {key}"),
            _ => format!("ZUNIONSTORE {key} 2 {} {}", self.key("z:"), self.key("z:")),
        })
    }

    fn of_stream(&mut self, space: &Space) -> Command {
        let key = self.key("x:");
        let stream = match space.get(&key).map(|entry| &entry.value) {
            Some(Value::Stream(stream)) => stream.clone(),
            _ => Stream::default(),
        };
        let consumer = format!("consumer{}", self.rng.u32(..3));
        let ids: Vec<_> = stream.entries.keys().collect();
        let some = ids.get(self.rng.usize(..ids.len().max(1))).map_or("9-9".to_owned(), ToString::to_string);
        // Only these make a stream.
        let kind = if space.contains_key(&key) { self.rng.u32(..20) } else { self.rng.u32(..8) };
        command(&match (kind, &stream.group) {
            (0..=7, _) => {
                let id = Id(stream.last.0 + self.rng.u64(..2), stream.last.1 + 1);
                let bound = if kind == 0 { format!("MAXLEN {} ", self.rng.u32(..60)) } else { String::new() };
                let field = ["name", "name", "other"][self.rng.usize(..3)];
                format!("XADD {key} {bound}{id} {field} {}", self.word())
            }
            (8..=9, _) => format!("XDEL {key} {some} 9-9"),
            (10, _) => format!("XTRIM {key} MAXLEN {}", self.rng.u32(..80)),
            (_, None) => format!("XGROUP CREATE {key} {GROUP} 0 MKSTREAM"),
            (11, Some(_)) if self.rng.u32(..4) == 0 => format!("XGROUP DESTROY {key} {GROUP}"),
            (11..=14, Some(_)) => {
                let most = self.rng.u32(1..20);
                format!("XREADGROUP GROUP {GROUP} {consumer} COUNT {most} STREAMS {key} >")
            }
            (_, Some(group)) => {
                let pending: Vec<_> = group.pending.keys().collect();
                let id =
                    pending.get(self.rng.usize(..pending.len().max(1))).map_or(some, ToString::to_string);
                match kind {
                    15..=17 => format!("XACK {key} {GROUP} {id} 9-9"),
                    _ => format!("XCLAIM {key} {GROUP} {consumer} 0 {id}"),
                }
            }
        })
    }

    /// Keys and fields that are over soon. While that is near they are only written over.
    fn fleeting(&mut self, space: &Space) -> Option<Command> {
        let soon_ms = unix_ms() + self.rng.i64(1..250);
        let key = self.key("t:");
        let is_steady_now = space.get(&key).is_none_or(is_steady);
        let hash = self.key("f:");
        let field = format!("field:{}", self.rng.u32(..10));
        Some(match self.rng.u32(..9) {
            0..=2 => {
                let mut command = with_bytes(&format!("SET {key}"), self.bytes(0..100));
                command.sent.extend(words(&format!("PXAT {soon_ms}")));
                command
            }
            // After a deadline that is over: it must not come back.
            3..=4 if is_steady_now && !space.contains_key(&key) => command(&format!("INCRBY {key} 7")),
            5 if is_steady_now && space.contains_key(&key) => command(&format!("DEL {key}")),
            6..=7 if space.get(&hash).is_some_and(is_steady) => {
                command(&format!("HPEXPIREAT {hash} {soon_ms} FIELDS 1 {field}"))
            }
            _ if space.get(&hash).is_none_or(is_steady) => {
                command(&format!("HSET {hash} {field} {}", self.word()))
            }
            _ => return None,
        })
    }
}
