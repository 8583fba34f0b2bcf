//! What runs cost, to be measured: `cargo test --release ... cost -- --ignored --nocapture`.

use std::time::Instant;

use stillframe_scripting::{Called, Host, LogLevel, Permission, Replication, Resp};

use crate::runner::state;

struct Value;

impl Host for Value {
    fn call(&mut self, _: &[&[u8]], _: Resp, reply: &mut Vec<u8>) -> Called {
        reply.extend_from_slice(b"$3\r\nabc\r\n");
        Called::Replied
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn may_run(&mut self, _: &[&[u8]]) -> Permission {
        Permission::Allowed
    }

    fn set_replication(&mut self, _: Replication) {}
}

/// How many rounds a script has: none unless it begins with what a variable says, and fewer where each instruction is counted.
fn chosen(source: &str, rounds: u128) -> Option<u128> {
    let only = std::env::var("STILLFRAME_COST_ONLY").unwrap_or_default();
    let divisor =
        std::env::var("STILLFRAME_COST_DIVISOR").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    source.starts_with(&only).then_some((rounds / divisor).max(1))
}

#[test]
#[ignore = "a measurement"]
fn nanoseconds() {
    for (source, keys, args, rounds) in [
        ("return 1", 0, 0, 1_000_000),
        ("return redis.call('get', KEYS[1])", 1, 0, 1_000_000),
        ("if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end", 1, 1, 1_000_000),
        ("for i = 1, 100 do redis.call('get', KEYS[1]) end", 1, 0, 20_000),
        ("local x = 0 for i = 1, 1e7 do x = x + i end return x", 0, 0, 5),
    ] {
        let Some(rounds) = chosen(source, rounds) else { continue };
        let state = state();
        let script = state.compile(source.as_bytes(), "sha").unwrap();
        let (keys, args) = (vec!["key:000001"; keys], vec!["value"; args]);
        let mut reply = Vec::new();
        let begin = Instant::now();
        for _ in 0..rounds {
            reply.clear();
            state.run(&script, &keys, &args, &mut Value, Resp::Two, &mut reply);
        }
        println!("{} ns: {source}", begin.elapsed().as_nanos() / rounds);
    }
}
