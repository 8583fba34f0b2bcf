//! The barrier under load; `loom_barrier.rs` has all interleavings of small programs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use stillframe_pagepool::Barrier;

#[test]
fn nobody_runs_during_an_action() {
    let barrier = Arc::new(Barrier::default());
    let running = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..3)
        .map(|i| {
            let (barrier, running, stop) = (barrier.clone(), running.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut member = barrier.join();
                let mut commands = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    running.fetch_add(1, Ordering::SeqCst);
                    running.fetch_sub(1, Ordering::SeqCst);
                    commands += 1;
                    member.quiesce();
                    match commands % 64 {
                        n if n == i => member.idle(std::thread::yield_now),
                        63 => {
                            drop(member);
                            member = barrier.join();
                        }
                        _ => {}
                    }
                }
            })
        })
        .collect();
    let actions = Arc::new(AtomicU64::new(0));
    for _ in 0..300 {
        let (running, actions) = (running.clone(), actions.clone());
        let times = barrier.run(move || {
            assert_eq!(running.load(Ordering::SeqCst), 0);
            std::thread::yield_now();
            assert_eq!(running.load(Ordering::SeqCst), 0);
            actions.fetch_add(1, Ordering::SeqCst);
        });
        assert!(times.is_ok());
    }
    stop.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|w| w.join().unwrap());
    assert_eq!(actions.load(Ordering::SeqCst), 300);
}

/// Members that stop the others, actions, and members that come and go: whoever is alone is alone from the first of
/// its steps to the last, whatever it calls in between.
#[test]
fn nobody_comes_between_two_steps_of_one_who_has_stopped_the_others() {
    let barrier = Arc::new(Barrier::default());
    let (running, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let alone_count = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let (barrier, running, stop) = (barrier.clone(), running.clone(), stop.clone());
            let alone_count = alone_count.clone();
            std::thread::spawn(move || {
                let member = barrier.join();
                for command in 0u64.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    member.quiesce();
                    if command % 16 > 0 {
                        running.fetch_add(1, Ordering::SeqCst);
                        running.fetch_sub(1, Ordering::SeqCst);
                        member.idle(std::hint::spin_loop);
                        continue;
                    }
                    let standstill = member.stop_others().unwrap().expect("once");
                    let nobody = || assert_eq!(running.swap(1, Ordering::SeqCst), 0);
                    let check = || assert_eq!(running.load(Ordering::SeqCst), 1);
                    nobody();
                    member.quiesce();
                    check();
                    member.idle(std::thread::yield_now);
                    check();
                    member.idle_for_turns(|| {
                        std::thread::yield_now();
                        check();
                    });
                    check();
                    let (seen, barrier) = (running.clone(), barrier.clone());
                    member
                        .idle(|| barrier.run(move || assert_eq!(seen.swap(7, Ordering::SeqCst), 1)))
                        .unwrap();
                    assert_eq!(running.swap(0, Ordering::SeqCst), 7);
                    drop(standstill);
                    alone_count.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for _ in 0..300 {
        let running = running.clone();
        barrier.run(move || assert_eq!(running.load(Ordering::SeqCst), 0)).unwrap();
    }
    while alone_count.load(Ordering::SeqCst) < 300 {
        std::thread::yield_now();
    }
    stop.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|w| w.join().unwrap());
}
