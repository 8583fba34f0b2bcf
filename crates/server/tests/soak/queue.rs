//! Items that are pushed, passed on by clients that wait for them, and drained: each comes once, in its order. And a sorted set from
//! which a client pops that waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stillframe_testkit::Reply;

use crate::conn::words;
use crate::Soak;

/// Items that are drained together.
const DRAIN_COUNT: usize = 50;
/// Items that are under way at most.
const UNDER_WAY_MAX: u64 = 5_000;

#[derive(Default)]
pub struct Queue {
    pushed: AtomicU64,
    drained: AtomicU64,
    scores_pushed: AtomicU64,
    scores_popped: AtomicU64,
}

fn next_of(text: &str, counter: &AtomicU64) {
    let expected = counter.fetch_add(1, Ordering::Relaxed);
    assert_eq!(text.parse(), Ok(expected), "an item is lost, comes twice, or in another order");
}

impl Queue {
    /// Pushes items, one or several at a time, until the end.
    pub fn push(&self, run: &Soak) {
        let (mut conn, mut rng) = (run.connect("push"), run.rng(20));
        while run.goes_on() {
            let first = self.pushed.load(Ordering::Relaxed);
            if first - self.drained.load(Ordering::Relaxed) > UNDER_WAY_MAX {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            let items: Vec<String> = (first..first + rng.u64(1..6)).map(|item| item.to_string()).collect();
            let push = words(&format!("RPUSH q {}", items.join(" ")));
            match rng.bool() {
                true => drop(conn.run(push)),
                false => drop(conn.transaction(vec![push, words("PING")])),
            }
            self.pushed.fetch_add(items.len() as u64, Ordering::Relaxed);
            let score = self.scores_pushed.fetch_add(1, Ordering::Relaxed);
            conn.expect(&format!("ZADD scores {score} {score}"), Reply::Int(1));
            std::thread::sleep(Duration::from_micros(rng.u64(..2_000)));
        }
    }

    /// Waits for items and passes each on, hanging up now and then in the midst.
    pub fn pass_on(&self, run: &Soak, number: u64) {
        let (mut conn, mut rng) = (run.connect("move"), run.rng(30 + number));
        while run.goes_on() {
            match rng.u32(..60) {
                0 => {
                    conn.send_line("BLMOVE q done LEFT RIGHT 0");
                    std::thread::sleep(Duration::from_micros(rng.u64(..2_000)));
                    conn = run.connect("move");
                }
                // Somebody may end the wait.
                _ => drop(conn.try_line("BLMOVE q done LEFT RIGHT 0.5")),
            }
        }
    }

    /// Takes what has been passed on until the end.
    pub fn drain(&self, run: &Soak) {
        let mut conn = run.connect("drain");
        while run.goes_on() {
            let commands = vec![
                words(&format!("LRANGE done 0 {}", DRAIN_COUNT - 1)),
                words(&format!("LTRIM done {DRAIN_COUNT} -1")),
            ];
            let replies = conn.transaction(commands).expect("nothing is watched");
            let items = replies[0].items();
            items.iter().for_each(|item| next_of(&item.text(), &self.drained));
            if items.len() < DRAIN_COUNT {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Pops the lowest scores, waiting for them, until the end.
    pub fn pop_scores(&self, run: &Soak) {
        let mut conn = run.connect("scores");
        while run.goes_on() {
            // The search for a client to unblock passes it over.
            let Some(reply) = conn.try_line("BZPOPMIN scores 0.2") else { continue };
            if let Some([_, member, _]) = reply.try_items() {
                next_of(&member.text(), &self.scores_popped);
            }
        }
    }

    /// What has not been taken is there.
    pub fn check(&self, run: &Soak) {
        let mut conn = run.connect("queue");
        let (done, waiting) = (conn.run_line("LRANGE done 0 -1"), conn.run_line("LRANGE q 0 -1"));
        let next = AtomicU64::new(self.drained.load(Ordering::Relaxed));
        let items = done.items().iter().chain(waiting.items());
        items.for_each(|item| next_of(&item.text(), &next));
        assert_eq!(next.into_inner(), self.pushed.load(Ordering::Relaxed), "the last are lost");
        let scores = conn.run_line("ZRANGE scores 0 -1");
        let next = AtomicU64::new(self.scores_popped.load(Ordering::Relaxed));
        scores.items().iter().for_each(|member| next_of(&member.text(), &next));
        assert_eq!(next.into_inner(), self.scores_pushed.load(Ordering::Relaxed), "the last are lost");
    }
}
