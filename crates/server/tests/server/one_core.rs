//! A server that may use one processor: its background threads give way, and say how.

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use stillframe_testkit::with_refused;

use crate::harness::*;

/// `sched_setscheduler`, by number.
#[cfg(target_arch = "x86_64")]
const SCHED_SETSCHEDULER: i64 = 144;
#[cfg(target_arch = "aarch64")]
const SCHED_SETSCHEDULER: i64 = 119;
const EPERM: i32 = 1;

/// Runs `test` on a thread of one processor: what it starts has the same.
fn on_one_core<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let pinned = scope.spawn(|| {
            let all = sched_getaffinity(None).expect("its processors");
            let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).expect("one");
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).expect("it is its own");
            test()
        });
        pinned.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn idle_steps(client: &mut Client) -> u64 {
    client.info("background_idle_steps").parse().expect("a number")
}

/// Fills, saves in both forms, deletes a large value, and starts again.
fn works(args: &[&str]) -> (TestServer, u64) {
    let server = TestServer::start(args);
    let mut client = server.connect();
    assert_eq!(client.info("background_on_one_processor"), "1");
    client.wait_until_loaded();
    client.ok("DEBUG POPULATE 60000 key 200");
    let before = idle_steps(&mut client);
    assert!(client.save_in_background("BGSAVE") && client.save_in_background("BGSAVE RDB"));
    client.ok(&format!("SET large {}", "x".repeat(3 << 20)));
    assert_eq!(client.run("DEL large"), Reply::Int(1));
    let steps = idle_steps(&mut client) - before;
    // No thread stays in the class.
    eventually("all are back", || !client.info("background_threads").contains("=idle"));
    assert_eq!(client.run("DBSIZE"), Reply::Int(60_000));
    (server, steps)
}

#[test]
fn background_threads_give_way_on_one_core() {
    on_one_core(|| {
        let (server, steps) = works(&["--appendonly", "yes"]);
        let mut client = server.connect();
        let threads = client.info("background_threads");
        for name in ["sf-stock=", "sf-collect=", "saver=", "scrubber=", "sf-log-spares="] {
            assert!(threads.contains(name), "{name} of {threads}");
        }
        if client.info("background_idle_class") == "full" {
            // Each megabyte of the save is a step, or several.
            assert!(steps >= 12, "{steps} steps in the idle class");
        } else {
            assert_eq!(steps, 0, "nobody becomes idle who would stay so");
        }
    });
}

/// A filter of system calls, as the unit's, is no reason to stop.
#[test]
fn background_threads_go_on_where_the_class_is_refused() {
    let steps = with_refused(&[SCHED_SETSCHEDULER], EPERM, || {
        on_one_core(|| {
            let (server, steps) = works(&["--workers", "2"]);
            assert_eq!(server.connect().info("background_idle_class"), "refused");
            steps
        })
    });
    assert_eq!(steps, 0);
}

#[test]
fn on_several_cores_nobody_gives_way() {
    let server = TestServer::start(&[]);
    let mut client = server.connect();
    if std::thread::available_parallelism().is_ok_and(|count| count.get() == 1) {
        return;
    }
    assert_eq!(client.info("background_on_one_processor"), "0");
    client.ok("DEBUG POPULATE 20000 key 200");
    assert!(client.save_in_background("BGSAVE"));
    assert_eq!(idle_steps(&mut client), 0);
}
