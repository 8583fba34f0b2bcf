//! Values larger than memory, one after the other.

use std::time::Duration;

use stillframe_testkit::Reply;

use crate::conn::{random_bytes, with};
use crate::Soak;

pub fn run(run: &Soak) {
    let (mut conn, mut rng) = (run.connect("large"), run.rng(50));
    let most = run.memory_bytes as usize * 3 / 2;
    while run.goes_on() {
        let bytes = random_bytes(rng.u64(..), rng.usize(1 << 20..most));
        assert_eq!(conn.run(with("SET large", &bytes)), Reply::ok());
        let (from, part) = (bytes.len() / 2, 100_000);
        let reply = conn.run_line(&format!("GETRANGE large {from} {}", from + part - 1));
        assert!(reply.bytes() == Some(&bytes[from..from + part]), "a part of a large value");
        let ones: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
        conn.expect("BITCOUNT large", Reply::Int(ones as i64));
        conn.expect("COPY large copy REPLACE", Reply::Int(1));
        assert!(conn.run_line("GET copy").bytes() == Some(&bytes[..]), "a copy of a large value");
        conn.expect("DEL copy large", Reply::Int(2));
        std::thread::sleep(Duration::from_millis(500));
    }
}
