//! When the machine itself stood still. A thread on each core only waits for the next millisecond, above all others: what it is
//! late by is the doing of nothing that is measured. Latencies that such a time falls into are left out, and counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::{now_ns, NS_PER_MS};
use crate::pin;

/// From one look at the clock to the next.
const STEP_NS: u64 = NS_PER_MS;
/// So late at least is a stop: half a tick of the study. Shorter ones, of which a virtual machine has some each second, stay in
/// the figures; so a latency below this needs no look at the stops.
pub const STOP_NS: u64 = 5 * NS_PER_MS;
/// Above what generates load.
const PRIORITY: u8 = 80;

/// A core did nothing from one time to another, of [`now_ns`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stop {
    pub from_ns: u64,
    pub to_ns: u64,
}

/// Threads that look for stops.
pub struct Watch {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Stop>>>,
}

/// In an emulator whose clock is its instructions the machine never stands still, and the kernel's own work would look like it.
///
/// Tests of what is recorded are none of what a loaded machine does.
static IS_OFF: AtomicBool = AtomicBool::new(cfg!(test));

/// No watch of this process looks for anything.
pub fn watch_nothing() {
    IS_OFF.store(true, Ordering::Relaxed);
}

impl Watch {
    /// Watches these cores, or if there are none all that the program may use, until it is told to end.
    pub fn begin(cpus: &[usize]) -> Watch {
        match (IS_OFF.load(Ordering::Relaxed), cpus) {
            (true, _) => Watch::none(),
            (false, []) => Watch::of(pin::own_cpus()),
            (false, cpus) => Watch::of(cpus),
        }
    }

    /// Sees nothing.
    pub fn none() -> Watch {
        Watch::of(&[])
    }

    fn of(cpus: &[usize]) -> Watch {
        let is_over = Arc::new(AtomicBool::new(false));
        let watched = |cpu: &usize| {
            let (cpu, is_over) = (*cpu, is_over.clone());
            let thread = std::thread::Builder::new().name(format!("watch {cpu}"));
            thread.spawn(move || stops_of(cpu, &is_over)).ok()
        };
        let threads = cpus.iter().filter_map(watched).collect();
        Watch { is_over, threads }
    }

    pub fn end(mut self) -> Stops {
        self.is_over.store(true, Ordering::Relaxed);
        let all = std::mem::take(&mut self.threads).into_iter().filter_map(|thread| thread.join().ok());
        Stops::of(all.flatten().collect())
    }
}

impl Drop for Watch {
    /// After an error nothing is asked for.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn stops_of(cpu: usize, is_over: &AtomicBool) -> Vec<Stop> {
    let mut stops = Vec::new();
    if pin::pin_current_thread(&[cpu]).is_err()
        || pin::raise_current_thread(PRIORITY) == pin::Priority::Normal
    {
        // It would wait for what is measured.
        return stops;
    }
    let mut due_ns = now_ns() + STEP_NS;
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns())));
        let woken_ns = now_ns();
        if woken_ns >= due_ns + STOP_NS {
            stops.push(Stop { from_ns: due_ns, to_ns: woken_ns });
        }
        due_ns = woken_ns.max(due_ns) + STEP_NS;
    }
    stops
}

/// Times in which at least one core stood still, apart and in order.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Stops(Vec<Stop>);

impl Stops {
    pub fn of(mut all: Vec<Stop>) -> Stops {
        all.sort_unstable();
        let mut apart: Vec<Stop> = Vec::new();
        for stop in all {
            match apart.last_mut() {
                Some(last) if stop.from_ns <= last.to_ns => last.to_ns = last.to_ns.max(stop.to_ns),
                _ => apart.push(stop),
            }
        }
        Stops(apart)
    }

    /// Whether the machine stood still at some time from one to the other.
    pub fn fall_into(&self, from_ns: u64, to_ns: u64) -> bool {
        let after = self.0.partition_point(|stop| stop.to_ns <= from_ns);
        self.0.get(after).is_some_and(|stop| stop.from_ns < to_ns)
    }

    /// How much of the time from one to the other the machine stood still.
    pub fn within_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let after = self.0.partition_point(|stop| stop.to_ns <= from_ns);
        let meeting = self.0[after..].iter().take_while(|stop| stop.from_ns < to_ns);
        meeting.map(|stop| stop.to_ns.min(to_ns) - stop.from_ns.max(from_ns)).sum()
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Of all stops together.
    pub fn total_ns(&self) -> u64 {
        self.0.iter().map(|stop| stop.to_ns - stop.from_ns).sum()
    }
}

struct Seen {
    count: AtomicU64,
    ns: AtomicU64,
    left_out: AtomicU64,
}

/// What all figures of this program, and of those that measured for it, have been spared.
static SEEN: Seen = Seen { count: AtomicU64::new(0), ns: AtomicU64::new(0), left_out: AtomicU64::new(0) };

/// The report is to say of these stops, and that so many latencies are left out.
pub fn note(stop_count: usize, stopped_ns: u64, left_out: u64) {
    SEEN.count.fetch_add(stop_count as u64, Ordering::Relaxed);
    SEEN.ns.fetch_add(stopped_ns, Ordering::Relaxed);
    SEEN.left_out.fetch_add(left_out, Ordering::Relaxed);
}

/// What a report says of it, if there is anything to say.
pub fn seen() -> Option<String> {
    let [count, ns, left_out] =
        [&SEEN.count, &SEEN.ns, &SEEN.left_out].map(|seen| seen.load(Ordering::Relaxed));
    (count > 0).then(|| {
        let ms = ns as f64 / NS_PER_MS as f64;
        format!("the machine itself stood still {count} times, {ms:.0} ms in all; {left_out} latencies are left out for that")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(from_ns: u64, to_ns: u64) -> Stop {
        Stop { from_ns, to_ns }
    }

    #[test]
    fn stops_of_several_cores_are_one_where_they_meet() {
        let stops = Stops::of(vec![stop(50, 60), stop(10, 20), stop(15, 30), stop(30, 31)]);
        assert_eq!(stops.0, [stop(10, 31), stop(50, 60)]);
        assert_eq!(stops.total_ns(), 31);
        let expected = [
            ((0, 10), false),
            ((0, 11), true),
            ((31, 50), false),
            ((40, 55), true),
            ((59, 99), true),
            ((60, 99), false),
        ];
        for ((from_ns, to_ns), is_in) in expected {
            assert_eq!(stops.fall_into(from_ns, to_ns), is_in, "{from_ns}..{to_ns}");
        }
        assert!(!Stops::default().fall_into(0, u64::MAX));
        assert_eq!(
            [(0, 99), (15, 55), (31, 50)].map(|(from_ns, to_ns)| stops.within_ns(from_ns, to_ns)),
            [31, 21, 0]
        );
    }

    /// A core that computes is not one that stands still.
    #[test]
    fn work_is_no_stop() {
        let watch = Watch::of(pin::own_cpus());
        let (begin_ns, mut sum) = (now_ns(), 0_u64);
        while now_ns() < begin_ns + 300 * NS_PER_MS {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let stops = watch.end();
        // Of a machine that others have loaded, a part may be.
        assert!(stops.total_ns() < now_ns() - begin_ns, "{stops:?}");
    }
}
