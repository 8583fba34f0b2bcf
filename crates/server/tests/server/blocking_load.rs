//! Many clients that wait, some of which die: nothing is lost, nobody is forgotten, and waiting costs next to nothing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::*;

/// All items of lists: each number once.
fn items_of(client: &mut Client, keys: &[String]) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    for key in keys {
        for item in client.run(&format!("LRANGE {key} 0 -1")).items() {
            let number = item.text().parse().expect("a number");
            assert!(all.insert(number), "{number} is there twice");
        }
    }
    all
}

fn wait_for_waiters(observer: &mut Client, count: usize) {
    eventually("they wait", || observer.info("blocked_clients") == count.to_string());
}

/// Connections that each send a command and then wait.
fn waiting(server: &TestServer, count: usize, line: impl Fn(usize) -> String) -> Vec<Client> {
    let mut observer = server.connect();
    (0..count)
        .map(|number| {
            let mut client = server.connect();
            client.send(&line(number));
            if number % 16 == 0 {
                wait_for_waiters(&mut observer, number + 1);
            }
            client
        })
        .collect()
}

/// Moves items from `k` to `done` until it is killed, hangs up in the midst, or all is moved.
fn move_and_die(server: &TestServer, rng: &mut fastrand::Rng, moved_count: &AtomicU32, most: u32) {
    let mut client = server.connect();
    while moved_count.load(Ordering::Relaxed) < most {
        match rng.u32(..12) {
            // It may wait, or be served just now.
            0 => {
                client.send("BLMOVE k done LEFT RIGHT 0");
                std::thread::sleep(Duration::from_micros(rng.u64(..2_000)));
                client = server.connect();
            }
            1 => {
                let id = client.run("CLIENT ID").text();
                client.send("BLMOVE k done LEFT RIGHT 0");
                server.connect().run(&format!("CLIENT KILL ID {id}"));
                client = server.connect();
            }
            2 => {
                let id = client.run("CLIENT ID").text();
                client.send("BLMOVE k done LEFT RIGHT 0");
                server.connect().run(&format!("CLIENT UNBLOCK {id} ERROR"));
                drop(client);
                client = server.connect();
            }
            _ => {
                let reply = client.run("BLMOVE k done LEFT RIGHT 0.01");
                moved_count.fetch_add(u32::from(!reply.is_null()), Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn no_item_is_lost_when_those_who_wait_die() {
    let (pushers, each) = (3, 400);
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let moved_count = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for pusher in 0..pushers {
                let mut client = server.connect();
                scope.spawn(move || {
                    for number in 0..each {
                        client.run(&format!("RPUSH k {}", pusher * each + number));
                    }
                });
            }
            for popper in 0..4 {
                let (server, moved_count) = (&server, &moved_count);
                // Some are moved for clients that never hear of it.
                let most = pushers * each / 3;
                scope.spawn(move || {
                    move_and_die(server, &mut fastrand::Rng::with_seed(popper), moved_count, most);
                });
            }
        });
        let mut client = server.connect();
        wait_for_waiters(&mut client, 0);
        let all = items_of(&mut client, &["k".to_owned(), "done".to_owned()]);
        assert_eq!(all, (0..pushers * each).collect(), "{workers} workers");
    }
}

#[test]
fn thousands_wait_and_are_served_in_their_order() {
    let count = 2_000;
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let mut pusher = server.connect();
        let mut clients = waiting(&server, count, |_| "BLPOP k 0".to_owned());
        wait_for_waiters(&mut pusher, count);
        for first in (0..count).step_by(500) {
            let items: Vec<String> = (first..first + 500).map(|item| item.to_string()).collect();
            assert_eq!(pusher.run(&format!("RPUSH k {}", items.join(" "))), Reply::Int(500));
        }
        let mut got: Vec<usize> =
            clients.iter_mut().map(|client| client.read().items()[1].text().parse().unwrap()).collect();
        assert_eq!(pusher.run("EXISTS k"), Reply::Int(0));
        // Of those who came within the same moment, the order is not known.
        assert!(got.iter().enumerate().all(|(at, item)| at.abs_diff(*item) <= 16), "{workers} workers");
        got.sort_unstable();
        assert_eq!(got, (0..count).collect::<Vec<_>>());
    }
}

/// Each has a target of its own, more than are locked together: all are served, by one push.
#[test]
fn many_move_items_to_lists_of_their_own() {
    let count = 300;
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let mut pusher = server.connect();
        let mut clients = waiting(&server, count, |number| format!("BLMOVE k to:{number} LEFT RIGHT 0"));
        wait_for_waiters(&mut pusher, count);
        let items: Vec<String> = (0..count).map(|item| item.to_string()).collect();
        assert_eq!(pusher.run(&format!("RPUSH k {}", items.join(" "))), Reply::Int(count as i64));
        clients.iter_mut().for_each(|client| assert!(client.read().bytes().is_some()));
        let lists: Vec<String> = (0..count).map(|number| format!("to:{number}")).collect();
        assert_eq!(items_of(&mut pusher, &lists), (0..count as u32).collect());
        assert_eq!(pusher.run("EXISTS k"), Reply::Int(0));
    }
}

/// Two clients hand an item on to each other's lists, on two workers, while others push: no deadlock.
#[test]
fn circles_do_not_lock_each_other_out() {
    let server = TestServer::start(&["--workers", "2"]);
    let each = 300;
    std::thread::scope(|scope| {
        for (from, to) in [("a", "b"), ("b", "c"), ("c", "a")] {
            let (mut mover, mut pusher) = (server.connect(), server.connect());
            scope.spawn(move || {
                (0..each).for_each(|_| drop(mover.run(&format!("BLMOVE {from} {to} LEFT RIGHT 0"))))
            });
            scope.spawn(move || (0..each).for_each(|item| drop(pusher.run(&format!("RPUSH {from} {item}")))));
        }
    });
    let mut client = server.connect();
    let total: i64 =
        ["a", "b", "c"].iter().map(|key| client.run(&format!("LLEN {key}")).integer().unwrap()).sum();
    assert_eq!(total, 3 * each);
}

fn cpu_ticks(server: &TestServer) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn waiting_takes_little_memory_and_no_time() {
    let count = 2_000;
    let server = TestServer::start(&["--workers", "1"]);
    let mut observer = server.connect();
    let mut clients: Vec<Client> = (0..count).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.run("PING").text(), "PONG"));
    let before = server.resident_bytes();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&format!("BLPOP queue:{number} 1000"));
    }
    wait_for_waiters(&mut observer, count);
    let per_waiter = server.resident_bytes().saturating_sub(before) / count as u64;
    assert!(per_waiter <= 2_048, "{per_waiter} bytes for each");
    let (ticks, start) = (cpu_ticks(&server), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let busy = Duration::from_millis(10 * (cpu_ticks(&server) - ticks));
    assert!(busy < start.elapsed() / 5, "{busy:?} of a second spent on nothing");
}

#[test]
fn a_pause_keeps_pushes_away_and_not_the_end_of_waits() {
    let server = TestServer::start(&["--workers", "2"]);
    let (mut a, mut b, mut pusher, mut observer) =
        (server.connect(), server.connect(), server.connect(), server.connect());
    a.send("BLPOP k 0");
    b.send("BLPOP j 0.1");
    wait_for_waiters(&mut observer, 2);
    observer.ok("CLIENT PAUSE 100000 WRITE");
    pusher.send("RPUSH k 1");
    assert_eq!(b.read(), Reply::NullArray);
    assert!(a.is_silent());
    observer.ok("CLIENT UNPAUSE");
    assert_eq!(a.read().items()[1].text(), "1");
    assert_eq!(pusher.read(), Reply::Int(1));
}

#[test]
fn the_server_ends_while_clients_wait() {
    for workers in ["1", "2"] {
        let mut server = TestServer::start(&["--workers", workers]);
        let mut clients = waiting(&server, 32, |_| "BLPOP k 0".to_owned());
        server.signal(Signal::TERM);
        assert!(server.wait().success());
        clients.iter_mut().for_each(|client| assert!(!client.read_to_end().starts_with(b"*2")));
    }
}

/// What a waiter takes from one list and puts into another is in both, or in neither, in every save.
#[test]
fn saves_have_each_item_once() {
    let mut server = TestServer::start(&["--workers", "2"]);
    for round in 0..3 {
        let first = round * 10_000;
        let mut observer = server.connect();
        observer.ok("FLUSHALL");
        let (sent, is_saved) = (AtomicU32::new(first), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (mut pusher, mut saver) = (server.connect(), server.connect());
            let (sent, is_saved) = (&sent, &is_saved);
            scope.spawn(move || {
                eventually("there is something", || sent.load(Ordering::Relaxed) > first + 100);
                let have_succeeded = [(); 2].map(|()| saver.save_in_background("BGSAVE"));
                is_saved.store(true, Ordering::Relaxed);
                assert_eq!(have_succeeded, [true; 2]);
            });
            for _ in 0..4 {
                let mut mover = server.connect();
                scope.spawn(move || {
                    while !is_saved.load(Ordering::Relaxed) {
                        mover.run("BLMOVE k done LEFT RIGHT 0.02");
                    }
                });
            }
            while !is_saved.load(Ordering::Relaxed) {
                pusher.run(&format!("RPUSH k {}", sent.load(Ordering::Relaxed)));
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
        server = server.restarted(Signal::KILL, &["--workers", "2"]);
        let mut client = server.connect();
        client.wait_until_loaded();
        let all = items_of(&mut client, &["k".to_owned(), "done".to_owned()]);
        let last = *all.last().expect("something was saved");
        assert_eq!(all, (first..=last).collect(), "round {round}");
    }
}

/// Lists that are not in memory: who waits is served once their pages are.
#[test]
fn lists_that_are_not_in_memory_are_taken_from() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers, "--maxmemory", "8mb"]);
        let (lists, item) = (400, "x".repeat(1_000));
        let mut client = server.connect();
        for number in 0..lists {
            let items = [item.as_str(); 60].join(" ");
            assert_eq!(client.run(&format!("RPUSH cold:{number} {items}")), Reply::Int(60));
        }
        let mut clients =
            waiting(&server, 64, |number| format!("BLMOVE k:{number} cold:{} LEFT LEFT 0", number * 6));
        wait_for_waiters(&mut client, 64);
        for number in 0..64 {
            client.queue_line(&format!("RPUSH k:{number} {number}"));
        }
        client.flush().unwrap();
        (0..64).for_each(|_| assert_eq!(client.read(), Reply::Int(1)));
        for (number, waiter) in clients.iter_mut().enumerate() {
            assert_eq!(waiter.read().text(), number.to_string(), "{workers} workers");
            let cold = number * 6;
            assert_eq!(client.run(&format!("LLEN cold:{cold}")), Reply::Int(61));
            assert_eq!(client.run(&format!("LINDEX cold:{cold} 0")).text(), number.to_string());
            assert_eq!(client.run(&format!("EXISTS k:{number}")), Reply::Int(0));
        }
        // Those that wait for a key which comes from the file under another name.
        let mut waiter = server.connect();
        waiter.send("BLMPOP 0 1 wanted LEFT COUNT 2");
        wait_for_waiters(&mut client, 1);
        client.ok("RENAME cold:7 wanted");
        assert_eq!(waiter.read().items()[1].items().len(), 2);
        assert_eq!(client.run("LLEN wanted"), Reply::Int(58));
    }
}
