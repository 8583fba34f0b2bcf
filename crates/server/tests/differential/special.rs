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

/// Differences of sets of all sizes: which of its two ways Redis has gone shows in the encoding of the result.
pub fn differences(seed: u64) -> Sequence {
    let mut rng = Rng::with_seed(seed);
    let mut commands = Vec::new();
    for _ in 0..40 {
        let len_max = if rng.u8(0..8) == 0 { 800 } else { 12 };
        for key in ["a", "b", "c"] {
            let (first, len) = (rng.usize(..len_max), rng.usize(..len_max));
            let mut members: Vec<_> = (first..first + len).map(|member| member.to_string().into()).collect();
            members.extend((rng.u8(0..4) == 0).then(|| b"word".to_vec()));
            commands.push(words!["DEL", key]);
            if !members.is_empty() {
                commands.push([words!["SADD", key], members].concat());
            }
        }
        let others = &["b", "c", "none", "a"][..rng.usize(1..4)];
        let others: Vec<_> = others.iter().map(|key| key.as_bytes().to_vec()).collect();
        commands.push([words!["SDIFFSTORE", "d", "a"], others].concat());
        commands.extend([words!["OBJECT", "ENCODING", "d"], words!["SCARD", "d"]]);
    }
    sequence(seed, commands)
}

/// Elements for sketches whose runs make up too many registers or too few: some are added before that is met. Each run is whole:
/// of one that ends with the value Redis 7.0 reads what lies behind.
pub fn spoiled_sketches(seed: u64) -> Sequence {
    let mut rng = Rng::with_seed(seed);
    let mut commands = Vec::new();
    for _ in 0..40 {
        let mut sketch = [&b"HYLL\x01\0\0\0"[..], &rng.u64(..).to_le_bytes()].concat();
        for _ in 0..rng.usize(1..8) {
            match rng.u8(0..4) {
                0 => sketch.push(rng.u8(0..0x40)),
                1 => sketch.push(rng.u8(0x80..)),
                _ => sketch.extend([0x40 | rng.u8(0..0x20), rng.u8(..)]),
            }
        }
        let elements = (0..rng.usize(1..8)).map(|_| rng.u16(..5000).to_string().into());
        commands.push(words!["SET", "h", sketch]);
        commands.push([words!["PFADD", "h"], elements.collect()].concat());
        commands.extend([words!["GET", "h"], words!["PFCOUNT", "h"], words!["OBJECT", "ENCODING", "h"]]);
    }
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
        "RPUSH list a b a c a",
        "LPOS list a RANK -9223372036854775808",
        "LPOS list a RANK -9223372036854775808 COUNT 1",
        "LPOS list a RANK -9223372036854775807 COUNT 1",
        "LPOS list a RANK 9223372036854775807",
        "DEL list",
        "DEBUG POPULATE 1000",
        "DBSIZE",
        "GET key:999",
        "DEBUG POPULATE 10 p 5",
        "GET p:9",
        "DEBUG POPULATE 10 q 50",
        "GET q:9",
        "CONFIG SET proto-max-bulk-len 1mb",
        "SETRANGE small 1048575 x",
        "SETRANGE small 1048576 x",
        "APPEND small x",
        "SETBIT small 8388607 0",
        "SETBIT small 8388608 0",
        "BITFIELD small SET u8 8388600 1",
        "BITFIELD small SET u8 8388608 1",
        "SETRANGE a 500 x",
        "SETRANGE b 520 x",
        "SETRANGE b 530 y",
        "LCS b a LEN",
        "LCS b b LEN",
        "CONFIG SET proto-max-bulk-len 512mb",
    ];
    sequence(0, lines.iter().map(|line| split(line)).collect())
}

fn split(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|w| w.as_bytes().to_vec()).collect()
}

/// What the servers say of their commands.
pub fn descriptions() -> Sequence {
    let names = "append bitcount bitfield bitfield_ro bitop bitpos copy dbsize debug decr decrby del dump exists \
                 expire expireat expiretime flushall flushdb get getbit getdel getex getrange getset incr incrby \
                 incrbyfloat keys lcs memory|usage mget move mset msetnx object|encoding object|freq persist pexpire \
                 pexpireat pexpiretime psetex pttl randomkey rename renamenx restore scan set setbit setex setnx \
                 setrange sort sort_ro strlen substr swapdb touch ttl type unlink auth client|id client|kill echo \
                 hello pfadd pfcount pfdebug pfmerge pfselftest publish \
                 ping quit reset select multi exec discard watch unwatch config|get config|set info lastsave \
                 save shutdown slowlog|get latency|doctor monitor time role nosuch";
    let mut lines: Vec<_> = names.split_whitespace().map(|name| format!("COMMAND INFO {name}")).collect();
    let calls = [
        "GET a",
        "MSET a 1 b 2",
        "MSETNX a 1 b",
        "BITOP AND d a b c",
        "SORT a BY w_* STORE d STORE e LIMIT 1 2",
        "SORT_RO a GET STORE",
        "COPY a b DB 1",
        "OBJECT ENCODING a",
        "MEMORY USAGE a SAMPLES 1",
        "PING",
        "NOSUCH a",
        "SET a",
        "EXISTS a b a",
        "DEBUG OBJECT a",
        "LCS a b IDX",
        "PFADD a b",
        "PFCOUNT a b c",
        "PFDEBUG ENCODING a",
        "PFMERGE a b c",
        "PFSELFTEST",
        "GEOADD a 1 1 m",
        "GEORADIUS a 1 1 1 m",
        "GEORADIUS a 1 1 1 m COUNT 1 store b",
        "GEORADIUS a 1 1 1 m STOREDIST b STORE c",
        "GEORADIUS a 1 1 1 m STORE",
        "GEORADIUS_RO a 1 1 1 m STORE b",
        "GEORADIUSBYMEMBER a STORE 1 m STOREDIST b",
        "GEORADIUSBYMEMBER_RO a m 1 m STORE b",
        "GEOSEARCH a FROMMEMBER m BYRADIUS 1 m",
        "GEOSEARCHSTORE a b FROMMEMBER m BYRADIUS 1 m STOREDIST",
        "SET a 1 GET",
        "SET a 1 EX 5 get",
        "SET a get",
        "SET a 1 NX XX",
        "BITFIELD a",
        "BITFIELD a GET u8 0",
        "BITFIELD a OVERFLOW SAT GET u8 0 GET u4 4",
        "BITFIELD a GET u8 0 SET u8 0 1",
        "BITFIELD a INCRBY u8 0 1",
        "BITFIELD a GET u8",
        "BITFIELD a NOSUCH",
    ];
    lines.extend(calls.iter().map(|call| format!("COMMAND GETKEYS {call}")));
    lines.extend(calls.iter().map(|call| format!("COMMAND GETKEYSANDFLAGS {call}")));
    sequence(0, lines.iter().map(|line| split(line)).collect())
}

/// Settings and calls whose replies do not depend on what has been stored.
pub fn administration() -> Sequence {
    let lines = [
        "CONFIG SET a b c",
        "CONFIG SET timeout",
        "CONFIG SET hz 0",
        "CONFIG GET hz",
        "CONFIG SET hz 1000",
        "CONFIG GET hz",
        "CONFIG SET hz -5",
        "CONFIG SET hz 10",
        "CONFIG SET maxmemory-clients 10%",
        "CONFIG GET maxmemory-clients",
        "CONFIG SET maxmemory-clients 101%",
        "CONFIG SET maxmemory-clients foo",
        "CONFIG SET maxmemory-clients 1gb",
        "CONFIG GET maxmemory-clients",
        "CONFIG SET maxmemory-clients 0%",
        "CONFIG GET maxmemory-clients",
        "CONFIG SET shutdown-on-sigterm now",
        "CONFIG GET shutdown-on-sigterm",
        "CONFIG SET shutdown-on-sigterm bogus",
        "CONFIG SET shutdown-on-sigterm default",
        "CONFIG SET proc-title-template {bogus}",
        "CONFIG SET proc-title-template {title",
        "CONFIG SET port x",
        "CONFIG SET port 70000",
        "CONFIG SET dir /",
        "CONFIG SET databases 3",
        "COMMAND LIST FILTERBY ACLCAT nosuch",
        "COMMAND LIST FILTERBY MODULE x",
        "COMMAND LIST FILTERBY PATTERN",
        "COMMAND LIST FOO bar baz",
        "COMMAND LIST FILTERBY PATTERN ping",
        "COMMAND LIST FILTERBY PATTERN config|s*",
        "ACL CAT",
        "ACL CAT transaction",
        "ACL CAT nosuch",
        "ACL WHOAMI",
        "MULTI",
        "MONITOR",
        "EXEC",
        "AUTH a b c",
        "AUTH x",
        "HELLO 3 AUTH x",
        "CLIENT SETNAME",
        "CLIENT",
        "CLIENT NOSUCH",
    ];
    let mut commands: Vec<_> = lines.iter().map(|line| split(line)).collect();
    for value in ["nosave now", "now force", "save nosave", "default now", ""] {
        commands.push(words!["CONFIG", "SET", "shutdown-on-sigterm", value]);
        commands.push(words!["CONFIG", "GET", "shutdown-on-sigterm"]);
    }
    for value in ["--x {title}", "", "{title} {nosuch}"] {
        commands.push(words!["CONFIG", "SET", "proc-title-template", value]);
    }
    sequence(0, commands)
}
