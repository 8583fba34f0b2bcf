//! Random sequences of commands: the words they are made of, and what spoils them.

use fastrand::Rng;

use crate::sequence::{Action, Arg, Sequence, Step, CONN_COUNT};
use crate::{gen_hyperloglog, gen_keys, gen_strings};

/// A command's words.
pub type Words = Vec<Vec<u8>>;

/// `words!["SET", key, value]`: a command out of byte strings and texts.
#[macro_export]
macro_rules! words {
    ($($word:expr),* $(,)?) => { vec![$(Vec::<u8>::from($word)),*] };
}

/// The source of randomness of one sequence.
pub struct Gen {
    pub rng: Rng,
    /// Copies of small integers are not shared in Redis: their reference counts are not compared.
    has_copied: bool,
    /// In Redis a key that was set with a deadline in the past is there for `DBSIZE`, `MEMORY USAGE`, `DEBUG OBJECT`
    /// and `SCAN ... TYPE none` until another command looks at it. A sequence has either such keys or these commands:
    /// `EXEC` may run one after what was generated later.
    pub may_hold_expired: bool,
    /// `DEBUG RELOAD` is for servers with one worker.
    pub reloads: bool,
}

/// Texts that stand where a number is expected. None is an integer that as a length or offset would make
/// the servers allocate much (1e6 to 2^32).
pub const ODD_NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "-2",
    "+1",
    "01",
    "-0",
    "00",
    "1e3",
    " 1",
    "1 ",
    "",
    " ",
    "-",
    "+",
    "abc",
    "0x10",
    "0x1p3",
    "1.0",
    "1.5",
    "-1.5",
    ".5",
    "5.",
    "3.0e2",
    "1e-3",
    "nan",
    "-nan",
    "NaN",
    "inf",
    "-inf",
    "+inf",
    "infinity",
    "1e400",
    "-1e400",
    "1e5000",
    "1e-5000",
    "9223372036854775806",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775807",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "4294967296",
    "-4294967297",
    "99999999999999999999",
    "1\0",
    "\0",
    "1\n",
    "000000000000000000000000000000000000000000001",
    "1_000",
    "0.1",
    "3.14159265358979323846264338327950288",
    "1111111111111111111111111111111111111111111111111111111111",
    "12345678901234567890.5",
    "1e17",
    "1e18",
    "1e19",
];

/// A script may call any of them as a command: so none is one that is unknown here.
const JUNK: &[&str] = &[
    "NX",
    "XX",
    "GT",
    "LT",
    "GET",
    "KEEPTTL",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "PERSIST",
    "REPLACE",
    "DB",
    "MATCH",
    "COUNT",
    "TYPE",
    "BYTE",
    "BIT",
    "AND",
    "NOT",
    "XOR",
    "ABSTTL",
    "IDLETIME",
    "FREQ",
    "LIMIT",
    "BY",
    "ALPHA",
    "STORE",
    "ASC",
    "DESC",
    "LEN",
    "IDX",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "ASYNC",
    "HELP",
    "SAMPLES",
    "OVERFLOW",
    "",
    "junk",
    "*",
    "#",
];

impl Gen {
    pub fn new(rng: Rng) -> Gen {
        Gen { rng, has_copied: false, may_hold_expired: false, reloads: false }
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    pub fn key(&mut self) -> Vec<u8> {
        let keys: [&[u8]; 12] = [
            b"a",
            b"b",
            b"c",
            b"d",
            b"e",
            b"key:1",
            b"key:2",
            b"",
            b"k\0\r\n\xff",
            b"{t}a*",
            b"[a-c]?",
            b"w_1",
        ];
        let n = if self.chance(80) { 6 } else { keys.len() };
        let key = keys[self.rng.usize(..n)];
        key.to_vec()
    }

    pub fn random_bytes(&mut self, len: usize) -> Vec<u8> {
        let alphabet: &[u8] = match self.rng.u8(0..4) {
            0 => b"ab",
            1 => b"\0\xff\x80\x01\r\n",
            2 => b"0123456789",
            _ => b"abcdefghijklmnopqrstuvwxyz ABC",
        };
        if self.chance(25) {
            return (0..len).map(|_| self.rng.u8(..)).collect();
        }
        (0..len).map(|_| alphabet[self.rng.usize(..alphabet.len())]).collect()
    }

    /// A length near the places where something changes.
    pub fn len(&mut self) -> usize {
        match self.rng.u8(0..20) {
            0 => 0,
            1..=8 => self.rng.usize(1..12),
            9..=12 => self.rng.usize(12..60),
            13 => self.pick(&[20, 21, 43, 44, 45, 46, 63, 64, 65]),
            14..=17 => self.rng.usize(60..300),
            18 => self.rng.usize(300..5000),
            _ => self.pick(&[500, 512, 513, 1024, 4064, 4096, 4097, 16_384, 300_000]),
        }
    }

    pub fn small_int(&mut self) -> String {
        match self.rng.u8(0..6) {
            0 => self.rng.i64(..).to_string(),
            1 => (i64::MAX - self.rng.i64(0..20)).to_string(),
            2 => (i64::MIN + self.rng.i64(0..20)).to_string(),
            3 => self.rng.i64(9_990..10_010).to_string(),
            _ => self.rng.i64(-30..30).to_string(),
        }
    }

    pub fn odd_number(&mut self) -> Vec<u8> {
        self.pick(ODD_NUMBERS).as_bytes().to_vec()
    }

    /// Mostly an integer, sometimes not one.
    pub fn integer(&mut self) -> Vec<u8> {
        if self.chance(12) {
            return self.odd_number();
        }
        self.small_int().into_bytes()
    }

    pub fn float(&mut self) -> Vec<u8> {
        match self.rng.u8(0..8) {
            0 => self.odd_number(),
            1 => self.small_int().into_bytes(),
            2 => format!("{}", self.rng.f64()).into_bytes(),
            3 => format!("{:e}", self.rng.f64() * 1e10).into_bytes(),
            4 => format!("{}.{}", self.rng.i32(-5..5), self.rng.u32(..)).into_bytes(),
            5 => format!("{}e{}", self.rng.i32(-99..99), self.rng.i32(-25..25)).into_bytes(),
            6 => format!("{:.2}", self.rng.f64() * 100.0).into_bytes(),
            _ => format!("{}.{}", self.rng.i64(..), self.rng.u64(..)).into_bytes(),
        }
    }

    pub fn value(&mut self) -> Vec<u8> {
        match self.rng.u8(0..10) {
            0..=2 => self.small_int().into_bytes(),
            3 => self.float(),
            4 => self.odd_number(),
            _ => {
                let len = self.len();
                self.random_bytes(len)
            }
        }
    }

    /// A position in a string, counted from either end.
    pub fn index(&mut self) -> Vec<u8> {
        match self.rng.u8(0..10) {
            0 => self.odd_number(),
            1 => self.rng.i64(..).to_string().into_bytes(),
            2..=5 => self.rng.i64(-12..12).to_string().into_bytes(),
            _ => self.rng.i64(-300..300).to_string().into_bytes(),
        }
    }

    /// Mixes upper and lower case.
    pub fn case(&mut self, word: &str) -> Vec<u8> {
        match self.rng.u8(0..6) {
            0 => word.to_ascii_lowercase().into_bytes(),
            1 => word
                .bytes()
                .map(|b| if self.rng.bool() { b.to_ascii_lowercase() } else { b.to_ascii_uppercase() })
                .collect(),
            _ => word.as_bytes().to_vec(),
        }
    }

    /// Makes a command wrong, or odd, in one place.
    pub fn spoil(&mut self, words: &mut Words) {
        let at = self.rng.usize(..words.len());
        match self.rng.u8(0..7) {
            0 if words.len() > 1 => drop(words.remove(at.max(1))),
            1 => words.push(self.pick(JUNK).into()),
            2 => words.insert(at + 1, self.pick(JUNK).into()),
            3 if at > 0 => words[at] = self.odd_number(),
            4 if at > 0 => words[at] = self.pick(JUNK).into(),
            5 => {
                let again = words[at].clone();
                words.push(again);
            }
            _ => words.truncate(at.max(1)),
        }
    }

    /// Whether what came before makes the oracle's reply one that is not to be had.
    fn is_unpredictable(&mut self, words: &[Vec<u8>]) -> bool {
        let word = |i: usize| words.get(i).map(|w| w.to_ascii_uppercase()).unwrap_or_default();
        let sets_absolute = |w: &Vec<u8>| w.eq_ignore_ascii_case(b"EXAT") || w.eq_ignore_ascii_case(b"PXAT");
        match word(0).as_slice() {
            b"COPY" => self.has_copied = true,
            b"SET" => return !self.may_hold_expired && words.iter().any(sets_absolute),
            b"DBSIZE" => return self.may_hold_expired,
            b"OBJECT" => return self.has_copied && word(1) == b"REFCOUNT",
            b"DEBUG" => return (self.has_copied || self.may_hold_expired) && word(1) == b"OBJECT",
            b"MEMORY" => return self.may_hold_expired && word(1) == b"USAGE",
            _ => {}
        }
        false
    }

    fn step(&mut self) -> Step {
        let conn = if self.chance(85) { 0 } else { self.rng.usize(0..CONN_COUNT) };
        let action = match self.rng.u32(0..1000) {
            0..=14 => Action::ScanAll(gen_keys::scan_options(self)),
            15..=24 => Action::ExpireNow(gen_keys::access(self)),
            _ => Action::Command(self.command()),
        };
        Step { conn, action }
    }

    fn command(&mut self) -> Vec<Arg> {
        loop {
            let mut words = match self.rng.u8(0..100) {
                0..=53 => gen_strings::command(self),
                54..=59 => gen_hyperloglog::command(self),
                _ => gen_keys::command(self),
            };
            let name = words[0].to_ascii_uppercase();
            if self.chance(6) && !matches!(name.as_slice(), b"DEBUG" | b"RESTORE") {
                self.spoil(&mut words);
            }
            let name = String::from_utf8_lossy(&words[0]).into_owned();
            words[0] = self.case(&name);
            if is_racy(&words) || is_of_others(&words) || self.is_unpredictable(&words) {
                continue;
            }
            let last_dump = |w: Vec<u8>| if w == LAST_DUMP { Arg::LastDump } else { Arg::Bytes(w) };
            return words.into_iter().map(last_dump).collect();
        }
    }
}

/// Stands for [`Arg::LastDump`] among words.
pub const LAST_DUMP: &[u8] = b"\xff<last dump>\xff";

/// Whether a command sets a deadline so near that the two servers may see it pass at different steps.
pub fn is_racy(words: &[Vec<u8>]) -> bool {
    let near = |word: &Vec<u8>| {
        let number = std::str::from_utf8(word).ok().and_then(|t| t.parse::<i64>().ok());
        number.is_some_and(|n| (1..50_000).contains(&n))
    };
    let is_relative = |word: &Vec<u8>| word.eq_ignore_ascii_case(b"EX") || word.eq_ignore_ascii_case(b"PX");
    match words[0].to_ascii_uppercase().as_slice() {
        b"SET" | b"GETEX" => words.windows(2).any(|pair| is_relative(&pair[0]) && near(&pair[1])),
        b"EXPIRE" | b"PEXPIRE" | b"SETEX" | b"PSETEX" | b"RESTORE" => words.get(2).is_some_and(near),
        _ => false,
    }
}

/// Whether a command would end or change the connection itself.
fn is_of_others(words: &[Vec<u8>]) -> bool {
    let name = words[0].to_ascii_uppercase();
    name == b"HELLO" || name == b"QUIT"
}

/// A sequence by its seed, for a server with one worker.
pub fn sequence(seed: u64) -> Sequence {
    any_sequence(seed, true)
}

/// A sequence by its seed, for a server with any number of workers.
pub fn sequence_for_workers(seed: u64) -> Sequence {
    any_sequence(seed, false)
}

fn any_sequence(seed: u64, reloads: bool) -> Sequence {
    let mut rng = Rng::with_seed(seed);
    let may_hold_expired = rng.u8(0..4) == 0;
    let mut gen = Gen { rng, has_copied: false, may_hold_expired, reloads };
    let (resp3, pipelined) = (gen.rng.bool(), gen.rng.bool());
    let count = gen.rng.usize(5..70);
    let mut steps = Vec::with_capacity(count);
    while steps.len() < count {
        if gen.chance(4) {
            transaction(&mut gen, &mut steps);
        } else {
            steps.push(gen.step());
        }
    }
    Sequence { seed, resp3, pipelined, steps }
}

/// `WATCH`, perhaps a change by the other connection, `MULTI`, commands, and `EXEC` or not.
fn transaction(gen: &mut Gen, steps: &mut Vec<Step>) {
    let conn = gen.rng.usize(0..CONN_COUNT);
    let plain = |conn: usize, words: Words| Step {
        conn,
        action: Action::Command(words.into_iter().map(Arg::Bytes).collect()),
    };
    if gen.chance(50) {
        let mut watch = words!["WATCH", gen.key()];
        if gen.chance(40) {
            watch.push(gen.key());
        }
        steps.push(plain(conn, watch));
        for _ in 0..gen.rng.usize(0..3) {
            let other = Step { conn: gen.rng.usize(0..CONN_COUNT), ..gen.step() };
            steps.push(other);
        }
        if gen.chance(10) {
            steps.push(plain(conn, words!["UNWATCH"]));
        }
    }
    steps.push(plain(conn, words!["MULTI"]));
    for _ in 0..gen.rng.usize(0..6) {
        let action = Action::Command(gen.command());
        steps.push(Step { conn, action });
    }
    if gen.chance(10) {
        steps.push(plain(1 - conn, words!["SET", gen.key(), "other"]));
    }
    match gen.rng.u8(0..10) {
        0 => steps.push(plain(conn, words!["DISCARD"])),
        1 => {}
        _ => steps.push(plain(conn, words!["EXEC"])),
    }
}
