//! The library as an application uses it, against a model: trees, collections, strings, transactions and views by several threads,
//! callbacks that panic and recurse, memory that is bounded, and a process that is killed and goes on.
//!
//! ```text
//! cargo test --release -p stillframe-store --test embedded_model -- --minutes 60
//! ```
//! Without flags it takes 20 seconds. Each thread does the operations that its seed makes, so a process that opens the store knows
//! what it must find: all structures of all threads as they were at one moment, not before the last checkpoint that was told.

mod child;
mod ops;
mod owner;
mod slips;
mod strings;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use stillframe_testkit::{long_run, seed_or, TempDir};

use crate::child::{Task, OWNERS};

const USAGE: &str = "flags: --minutes NUMBER (0.33); --seed NUMBER, as STILLFRAME_SEED";
/// Rounds on one directory; then another one begins.
const ROUNDS: u64 = 6;

struct Args {
    minutes: f64,
    seed: u64,
}

/// How a round ended.
struct Ended {
    is_killed: bool,
    floors: Vec<u64>,
}

/// Runs a process on a directory, and ends it: without a warning, or by asking.
fn round(dir: &Path, seed: u64, round: u64, floors: Vec<u64>, random: &mut fastrand::Rng) -> Ended {
    let task = floors.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args(["--child", &seed.to_string(), &round.to_string(), &task])
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let (sender, lines) = std::sync::mpsc::channel();
    let output = BufReader::new(child.stdout.take().expect("its output"));
    let reader = std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            // The receiver goes when the round has ended.
            let _ = sender.send(line);
        }
    });
    let is_killed = random.u32(..3) > 0;
    let mut floors = floors;
    let mut learn = |line: String| {
        let mut words = line.split(' ');
        if words.next() == Some("SAVED") {
            let numbers = words.map(|word| word.parse::<u64>().expect("a number"));
            // A thread that has not begun yet says 0.
            floors.iter_mut().zip(numbers).for_each(|(floor, number)| *floor = number.max(*floor));
        }
        line
    };
    // A kill may come while the store is opened, too.
    let comes_early = is_killed && random.u32(..4) == 0;
    let mut is_ready = comes_early;
    while !is_ready {
        let Ok(line) = lines.recv() else { break };
        is_ready = learn(line).starts_with("READY");
    }
    std::thread::sleep(Duration::from_millis(random.u64(..1_500)));
    match is_killed {
        true => child.kill().expect("a kill"),
        // It has ended already if it has found something.
        false => drop(writeln!(child.stdin.take().expect("its input"), "end")),
    }
    let status = child.wait().expect("its end");
    reader.join().expect("the reader");
    lines.try_iter().for_each(|line| drop(learn(line)));
    check_status(status, is_killed, seed, round);
    Ended { is_killed, floors }
}

/// What has found a fault has ended by itself, with a status of its own.
fn check_status(status: ExitStatus, is_killed: bool, seed: u64, round: u64) {
    use std::os::unix::process::ExitStatusExt;
    let is_well = status.success() || (is_killed && status.signal() == Some(9));
    assert!(is_well, "round {round} of seed {seed}: {status}; what it found is above");
}

fn run(args: &Args) {
    let deadline = Instant::now() + Duration::from_secs_f64(args.minutes * 60.0);
    let (mut round_count, mut kill_count, mut operation_count) = (0, 0, 0);
    for seed in args.seed.. {
        let dir = TempDir::new("embedded-model");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut floors = vec![0; OWNERS + 1];
        for number in 0..ROUNDS {
            if Instant::now() >= deadline {
                println!("{round_count} rounds, {kill_count} killed, {operation_count} operations saved");
                return;
            }
            let ended = round(dir.path(), seed, number, floors.clone(), &mut random);
            round_count += 1;
            kill_count += u64::from(ended.is_killed);
            operation_count += ended.floors.iter().sum::<u64>() - floors.iter().sum::<u64>();
            floors = ended.floors;
        }
    }
}

fn task(words: &[String]) -> Option<Task> {
    let [flag, seed, round, floors, dir] = words else { return None };
    let floors: Option<Vec<u64>> = floors.split(',').map(|word| word.parse().ok()).collect();
    let floors = floors.filter(|_| flag == "--child")?;
    Some(Task { dir: dir.into(), seed: seed.parse().ok()?, round: round.parse().ok()?, floors })
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(task) = task(&words) {
        child::run(&task);
        return ExitCode::SUCCESS;
    }
    long_run("embedded_model", USAGE, |flags| {
        run(&Args {
            minutes: flags.number("--minutes", 0.33)?,
            seed: flags.number("--seed", seed_or(20_261_126))?,
        });
        Ok(())
    })
}
