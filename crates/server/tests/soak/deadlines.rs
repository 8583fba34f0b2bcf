//! Keys and fields of hashes with deadlines: there until then, and gone afterwards.

use std::time::{Duration, Instant};

use stillframe_testkit::Reply;

use crate::conn::words;
use crate::Soak;

const SLOTS: usize = 400;
/// Deadlines are whole milliseconds of another clock.
const SLACK: Duration = Duration::from_millis(3);

/// When a deadline was asked for and answered, and how far ahead it is.
#[derive(Clone, Copy)]
struct Set {
    value: u64,
    sent: Instant,
    acked: Instant,
    ahead: Duration,
}

pub fn run(run: &Soak) {
    let (mut conn, mut rng) = (run.connect("deadlines"), run.rng(40));
    let mut slots: Vec<Option<Set>> = vec![None; SLOTS];
    // The clocks may be set meanwhile, and a deadline is a date.
    while run.goes_on() {
        let at = rng.usize(..SLOTS);
        let is_field = at % 2 == 1;
        let hash = at % 20;
        if slots[at].is_none() || rng.u32(..8) == 0 {
            let (value, ms) = (rng.u64(..), *rng.choice([1, 20, 300, 2_000, 8_000].iter()).expect("one"));
            let sent = Instant::now();
            match is_field {
                true => {
                    let set = words(&format!("HSET h:{hash} {at} {value}"));
                    let expire = words(&format!("HPEXPIRE h:{hash} {ms} FIELDS 1 {at}"));
                    let replies = conn.run_all(&[set, expire]);
                    assert_eq!(replies[1], Reply::Array(vec![Reply::Int(1)]));
                }
                false => conn.expect(&format!("SET d:{at} {value} PX {ms}"), Reply::ok()),
            }
            slots[at] = Some(Set { value, sent, acked: Instant::now(), ahead: Duration::from_millis(ms) });
            continue;
        }
        let Some(set) = slots[at] else { continue };
        let asked = Instant::now();
        let reply = match is_field {
            true => conn.run_line(&format!("HGET h:{hash} {at}")),
            false => conn.run_line(&format!("GET d:{at}")),
        };
        let answered = Instant::now();
        match reply.bytes() {
            Some(bytes) => {
                assert_eq!(bytes, set.value.to_string().as_bytes(), "of slot {at}");
                assert!(
                    asked < set.acked + set.ahead + SLACK,
                    "slot {at} is there {:?} late",
                    asked - set.acked
                );
            }
            None => {
                assert!(
                    answered + SLACK > set.sent + set.ahead,
                    "slot {at} has gone {:?} after",
                    answered - set.sent
                );
                slots[at] = None;
            }
        }
    }
}
