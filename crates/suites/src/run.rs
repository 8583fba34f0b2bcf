//! Parts are run, a few at a time, and told of in one line each; the output of one that fails is shown whole.

use std::process::{ExitCode, Output, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::part::Part;

/// What a command ends with that cannot run here, as the tests of real clients do.
const SKIPPED: i32 = 77;
/// What `timeout` ends with if it had to end a command.
const HUNG: i32 = 124;

/// How a part ended.
enum Verdict {
    Passed,
    /// Why, in its own words.
    Skipped(String),
    Failed(String),
}

#[derive(Default)]
struct Totals {
    passed: u64,
    failed: u64,
    skipped: u64,
    failed_parts: Vec<String>,
}

/// What is left to run, and how many run.
struct Queue {
    parts: Vec<Part>,
    running_count: usize,
    is_one_alone: bool,
}

/// Runs all, longest first, those that want the machine to themselves last.
#[must_use]
pub fn run_all(mut parts: Vec<Part>, job_count: usize) -> ExitCode {
    let began = Instant::now();
    // The next is taken from the end.
    parts.sort_by(|a, b| {
        b.is_alone.cmp(&a.is_alone).then(a.length_s.cmp(&b.length_s)).then(b.name.cmp(&a.name))
    });
    println!("{} parts, {job_count} at a time", parts.len());
    let queue = Mutex::new(Queue { parts, running_count: 0, is_one_alone: false });
    let (ended, totals) = (Condvar::new(), Mutex::new(Totals::default()));
    std::thread::scope(|scope| {
        for _ in 0..job_count {
            scope.spawn(|| {
                while let Some(part) = next(&queue, &ended) {
                    let since = Instant::now();
                    let out = part.command().stdin(Stdio::null()).output();
                    let verdict = out.map_or_else(
                        |error| (Verdict::Failed(format!("it cannot be started: {error}")), Counts::of("")),
                        |out| judged(&out),
                    );
                    tell(&part, verdict, since.elapsed(), &totals);
                    done(&part, &queue, &ended);
                }
            });
        }
    });
    let totals = lock(&totals);
    closing(&totals, began.elapsed())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The next part, once it may run.
fn next(queue: &Mutex<Queue>, ended: &Condvar) -> Option<Part> {
    let mut queue = lock(queue);
    loop {
        let is_alone = queue.parts.last()?.is_alone;
        let must_wait = queue.is_one_alone || (is_alone && queue.running_count > 0);
        if !must_wait {
            queue.running_count += 1;
            queue.is_one_alone = is_alone;
            return queue.parts.pop();
        }
        queue = ended.wait(queue).unwrap_or_else(std::sync::PoisonError::into_inner);
    }
}

fn done(part: &Part, queue: &Mutex<Queue>, ended: &Condvar) {
    let mut queue = lock(queue);
    queue.running_count -= 1;
    queue.is_one_alone &= !part.is_alone;
    ended.notify_all();
}

/// What the test programs of a part count.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Counts {
    /// From the closing lines of Rust's test programs; a part without one is one test.
    fn of(text: &str) -> Counts {
        let mut counts = Counts::default();
        for line in text.lines().filter(|line| line.starts_with("test result:")) {
            let number = |what: &str| {
                let before = line.split(what).next()?;
                before.rsplit([' ', '.', ';']).find(|word| !word.is_empty())?.parse::<u64>().ok()
            };
            counts.passed += number(" passed").unwrap_or(0);
            counts.failed += number(" failed").unwrap_or(0);
            counts.ignored += number(" ignored").unwrap_or(0);
        }
        counts
    }
}

fn judged(out: &Output) -> (Verdict, Counts) {
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let counts = Counts::of(&text);
    let verdict = match out.status.code() {
        Some(0) => Verdict::Passed,
        Some(SKIPPED) => {
            let why = text.lines().rev().find(|line| !line.trim().is_empty());
            Verdict::Skipped(why.unwrap_or("it does not say why").to_owned())
        }
        Some(HUNG) => Verdict::Failed(format!("{text}it did not end: a test that has no line above hangs")),
        _ => Verdict::Failed(format!("{text}{}", out.status)),
    };
    (verdict, counts)
}

/// One line, and lines of the part that begin with SKIP: what could not be tried within it.
fn tell(part: &Part, (verdict, counts): (Verdict, Counts), took: Duration, totals: &Mutex<Totals>) {
    let mut totals = lock(totals);
    totals.skipped += counts.ignored;
    let (name, took_s) = (&part.name, took.as_secs_f64());
    match verdict {
        Verdict::Passed => {
            totals.passed += counts.passed.max(1);
            let ignored =
                if counts.ignored == 0 { String::new() } else { format!(", {} ignored", counts.ignored) };
            println!("ok    {name:<44} {took_s:>7.1} s  {} passed{ignored}", counts.passed.max(1));
        }
        Verdict::Skipped(why) => {
            totals.skipped += 1;
            println!("SKIP  {name:<44} {took_s:>7.1} s  {why}");
        }
        Verdict::Failed(text) => {
            totals.passed += counts.passed;
            totals.failed += counts.failed.max(1);
            totals.failed_parts.push(name.clone());
            println!("FAIL  {name:<44} {took_s:>7.1} s\n{text}\nFAIL  {name}: its output is above");
        }
    }
}

fn closing(totals: &Totals, took: Duration) -> ExitCode {
    println!("\n{} s in all", took.as_secs());
    if !totals.failed_parts.is_empty() {
        println!("failed: {}", totals.failed_parts.join(", "));
    }
    println!("{} passed, {} failed, {} skipped", totals.passed, totals.failed, totals.skipped);
    if totals.failed_parts.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let text = "test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out\n\
            noise\ntest result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured; 1 filtered out\n";
        assert_eq!(Counts::of(text), Counts { passed: 15, failed: 4, ignored: 2 });
        assert_eq!(Counts::of("no such line"), Counts::default());
    }

    #[test]
    fn a_part_that_fails_fails_the_run_and_one_that_is_skipped_does_not() {
        let of = |lines: &[&str]| -> bool {
            let parts =
                lines.iter().enumerate().map(|(n, line)| Part::shell(&n.to_string(), 1, line)).collect();
            format!("{:?}", run_all(parts, 2)) == format!("{:?}", ExitCode::SUCCESS)
        };
        assert!(of(&["true", "echo no network; exit 77"]));
        assert!(!of(&["true", "false"]));
        assert!(!of(&["kill -9 $$"]));
    }

    #[test]
    fn what_wants_the_machine_to_itself_has_it() {
        let part = |length_s: u32, is_alone: bool| {
            let part = Part::shell("part", length_s, "true");
            if is_alone {
                part.alone()
            } else {
                part
            }
        };
        let parts = (0..40).map(|n| part(n % 7, n % 3 == 0)).collect();
        let queue = Mutex::new(Queue { parts, running_count: 0, is_one_alone: false });
        let (ended, alone, running) = (Condvar::new(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some(part) = next(&queue, &ended) {
                        alone.fetch_add(usize::from(part.is_alone), Ordering::SeqCst);
                        let count = running.fetch_add(1, Ordering::SeqCst) + 1;
                        std::thread::yield_now();
                        assert!(count == 1 || alone.load(Ordering::SeqCst) == 0);
                        running.fetch_sub(1, Ordering::SeqCst);
                        alone.fetch_sub(usize::from(part.is_alone), Ordering::SeqCst);
                        done(&part, &queue, &ended);
                    }
                });
            }
        });
    }
}
