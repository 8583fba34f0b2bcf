//! Messages: each subscriber hears all of them in their order.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::Soak;

/// What ends the feed.
const LAST: &str = "last";

pub fn publish(run: &Soak) {
    let (mut conn, mut rng) = (run.connect("publish"), run.rng(60));
    let mut number = 0_u64;
    let mut publish =
        |text: &str| conn.run_line(&format!("PUBLISH feed {text}")).integer().expect("a number");
    // The subscriber is there.
    while run.goes_on() && publish("0") < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    while run.goes_on() {
        number += 1;
        assert_eq!(publish(&number.to_string()), 2, "both subscriptions hear it");
        std::thread::sleep(Duration::from_micros(rng.u64(..3_000)));
    }
    while publish(LAST) < 2 && !run.is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn listen(run: &Soak) {
    let mut conn = run.connect("listen");
    conn.send_line("SUBSCRIBE feed");
    conn.send_line("PSUBSCRIBE fee?");
    let (mut of_channel, mut of_pattern) = (None::<u64>, None::<u64>);
    loop {
        let message = conn.message();
        let (next, text) = match message.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["message", "feed", text] => (&mut of_channel, text),
            ["pmessage", "fee?", "feed", text] => (&mut of_pattern, text),
            ["subscribe" | "psubscribe", ..] => continue,
            _ => panic!("listen: {message:?}"),
        };
        if text == LAST {
            return;
        }
        let number: u64 = text.parse().expect("a number");
        // Zeros come until both are there.
        assert!(number == 0 || *next == Some(number), "message {number}, after {next:?} was due");
        *next = Some(number + 1);
    }
}
