//! The soak: all types at once, ten times as much data as memory, beside saves, backups, changes of settings and clients that wait,
//! listen and hang up. Each load knows what it must find, and an error that the docs do not promise ends it.
//!
//! ```text
//! cargo test --release -p stillframe-server --test soak -- --minutes 60 --workers 1,2
//! ```
//! Without flags it takes three minutes, half of them with one worker and half with two.

mod admin;
mod bank;
mod collections;
mod conn;
mod deadlines;
mod feed;
mod large;
mod queue;
mod strings;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stillframe_testkit::{long_run, pool_backend_flags, seed_or, Flags, Launch, Process, TempDir};

use crate::conn::Conn;

const PROGRAM: &str = env!("CARGO_BIN_EXE_stillframe-server");

const USAGE: &str =
    "flags: --minutes NUMBER, of all runs together (3); --workers LIST, a run for each (1,2); \
                     --memory-mb NUMBER, a tenth of the data (16); --seed NUMBER, as STILLFRAME_SEED";

/// What is run.
struct Args {
    minutes: f64,
    workers: Vec<u32>,
    memory_mb: u64,
    seed: u64,
}

/// A run.
struct Soak {
    process: Process,
    dir: TempDir,
    memory_bytes: u64,
    seed: u64,
    deadline: Instant,
    /// A load has found something wrong: the others end, too.
    is_over: AtomicBool,
    reply_count: AtomicU64,
}

impl Soak {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed) && Instant::now() < self.deadline
    }

    fn connect(&self, load: &'static str) -> Conn<'_> {
        Conn::new(self, load)
    }

    /// A source of random numbers for a load.
    fn rng(&self, number: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(1000).wrapping_add(number))
    }
}

/// What a thread of a run does.
type Load<'r> = Box<dyn FnOnce() + Send + 'r>;

/// Ends the run if its load unwinds.
struct EndsRun<'s>(&'s AtomicBool);

impl Drop for EndsRun<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn launch(dir: &TempDir, run_dir: &TempDir, workers: u32, memory_bytes: u64) -> Launch {
    let mut launch = Launch::at_socket(PROGRAM, dir.path());
    launch.run_dir = run_dir.path().into();
    launch.is_mortal = true;
    let (workers, memory) = (workers.to_string(), memory_bytes.to_string());
    launch.with(&pool_backend_flags()).with(&[
        "--workers",
        &workers,
        "--maxmemory",
        &memory,
        "--notify-keyspace-events",
        "KEA",
        "--latency-monitor-threshold",
        "1",
        "--slowlog-log-slower-than",
        "100",
        "--scrub-interval",
        "60",
        "--enable-debug-command",
        "yes",
        "--enable-protected-configs",
        "yes",
    ])
}

/// One run; panics with what is wrong.
fn soak(args: &Args, workers: u32) {
    let (dir, run_dir) = (TempDir::new("soak"), TempDir::new("soak-run"));
    let memory_bytes = args.memory_mb << 20;
    let launch = launch(&dir, &run_dir, workers, memory_bytes);
    let time = Duration::from_secs_f64(args.minutes * 60.0 / args.workers.len() as f64);
    let (process, _) = launch.start();
    let run = Soak {
        process,
        dir,
        memory_bytes,
        seed: args.seed + u64::from(workers),
        deadline: Instant::now() + time,
        is_over: AtomicBool::new(false),
        reply_count: AtomicU64::new(0),
    };
    let mut strings = strings::Strings::new(&run);
    let mut collections = collections::Collections::new(&run);
    let bank = bank::Bank::open(&run);
    let queue = queue::Queue::default();
    let report = std::thread::scope(|scope| {
        let run = &run;
        let mut loads: Vec<(&str, Load<'_>)> = vec![
            ("strings", Box::new(|| strings.run(run))),
            ("collections", Box::new(|| collections.run(run))),
            ("audit", Box::new(|| bank.audit(run))),
            ("push", Box::new(|| queue.push(run))),
            ("drain", Box::new(|| queue.drain(run))),
            ("scores", Box::new(|| queue.pop_scores(run))),
            ("deadlines", Box::new(|| deadlines::run(run))),
            ("large", Box::new(|| large::run(run))),
            ("publish", Box::new(|| feed::publish(run))),
            ("listen", Box::new(|| feed::listen(run))),
        ];
        for number in 0..2 {
            let (bank, queue) = (&bank, &queue);
            loads.push(("transfer", Box::new(move || bank.transfer(run, number))));
            loads.push(("move", Box::new(move || queue.pass_on(run, number))));
        }
        for (name, load) in loads {
            let builder = std::thread::Builder::new().name(name.to_owned());
            let started = builder.spawn_scoped(scope, move || {
                let _ends_run = EndsRun(&run.is_over);
                load();
            });
            started.expect("a thread");
        }
        let _ends_run = EndsRun(&run.is_over);
        admin::run(run, &bank)
    });
    println!("{workers} workers: {} replies; {report}", run.reply_count.load(Ordering::Relaxed));
    end(run, &launch, &strings, &collections, &bank, &queue);
}

/// Ends the server, and finds everything again after a start.
fn end(
    run: Soak,
    launch: &Launch,
    strings: &strings::Strings,
    collections: &collections::Collections,
    bank: &bank::Bank,
    queue: &queue::Queue,
) {
    let check_all = |run: &Soak| {
        strings.check_all(run);
        collections.check_all(run);
        bank.check(&mut run.connect("bank"));
        queue.check(run);
    };
    check_all(&run);
    assert_eq!(run.connect("end").run_line("SAVE"), stillframe_testkit::Reply::ok());
    let Soak { mut process, dir, memory_bytes, seed, reply_count, .. } = run;
    let mut client = process.client();
    client.send("SHUTDOWN NOSAVE");
    let status = process.wait();
    let log = process.log();
    assert!(status.success() && !log.contains("panicked"), "{status}\n{log}");
    drop(process);
    let file = dir.path().join("stillframe.pages");
    let output = std::process::Command::new(PROGRAM).arg("--check").arg(&file).output().expect("--check");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let (process, _) = launch.start();
    let (deadline, is_over) = (Instant::now(), AtomicBool::new(false));
    check_all(&Soak { process, dir, memory_bytes, seed, deadline, is_over, reply_count });
}

fn args(flags: &Flags) -> Result<Args, String> {
    let workers: Result<Vec<u32>, _> = flags.text("--workers", "1,2").split(',').map(str::parse).collect();
    Ok(Args {
        minutes: flags.number("--minutes", 3.0)?,
        workers: workers.map_err(|error| format!("--workers: {error}"))?,
        memory_mb: flags.number("--memory-mb", 16)?,
        seed: flags.number("--seed", seed_or(20_261_120))?,
    })
}

fn main() -> ExitCode {
    long_run("soak", USAGE, |flags| {
        let args = args(flags)?;
        args.workers.iter().for_each(|workers| soak(&args, *workers));
        Ok(())
    })
}
