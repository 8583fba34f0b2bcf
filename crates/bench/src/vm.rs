//! The machines that measure: `kernel/bench/run` builds what they need and boots them with the driver of the kernel
//! selftests. It is told a job, and its events are read here.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Lines};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stillframe_testkit::{find_program, mortal};

use crate::error::{BenchError, Context, Result};
use crate::scratch::Scratch;

/// What the machine's clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// One instruction is one nanosecond: repeatable. For one CPU: several take long and uneven turns.
    Instructions,
    /// The host's time, one thread of the host for each CPU: only ratios within one run mean something.
    Host,
}

/// A boot: the machine, and the shell script that runs in it. Each line of its output is a record of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Boot {
    #[serde(skip)]
    pub name: &'static str,
    pub clock: Clock,
    pub cpu_count: usize,
    pub memory_mb: u64,
    /// More of the kernel's command line.
    pub parameters: &'static str,
    pub plan: String,
}

/// What has to be found or built before the first boot.
#[derive(Clone, Debug, clap::Args)]
pub struct MachineArgs {
    /// The kernel directory of the source tree [default: ./kernel, or the one above this program]
    #[arg(long, value_name = "DIR")]
    kernel_source: Option<PathBuf>,
    /// The module [default: built from the kernel directory]
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// The kernel: an image, or a version or suite of Debian's, as 6.12 or trixie [default: the newest stock 6.1 in
    /// /boot whose headers are installed]
    #[arg(long, alias = "image", value_name = "KERNEL")]
    kernel: Option<PathBuf>,
    /// The build directory of that kernel [default: by its release, in /lib/modules]
    #[arg(long, value_name = "DIR")]
    headers: Option<PathBuf>,
}

/// What a benchmark has in its machines, beside this program.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Equipment {
    /// What is measured, in `/lib`.
    pub module_name: &'static str,
    /// A program of `kernel/bench`.
    pub bench: &'static str,
    /// Programs that were built with this one.
    #[serde(skip)]
    pub beside: &'static [&'static str],
    /// Programs that are installed.
    pub commands: &'static [&'static str],
    /// Modules of the kernel's own.
    pub kernel_modules: &'static [&'static str],
}

/// What `kernel/bench/run` is told.
#[derive(Serialize)]
struct Job<'a> {
    kernel: Option<&'a Path>,
    headers: Option<&'a Path>,
    module: Option<&'a Path>,
    #[serde(flatten)]
    equipment: Equipment,
    directory: &'a Path,
    programs: Vec<PathBuf>,
    silence_seconds: u64,
    boots: &'a [Boot],
}

/// What it answers.
///
/// ```text
/// ─▶ Ready ─▶ Record … ─▶ Done ─┬─▶ end, if that was the last boot
///             ▲                 │
///             └─────────────────┘      at any time: Missing or Failed, then the end
/// ```
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase", deny_unknown_fields)]
enum Event<M> {
    Ready { release: String, emulator: String },
    Record { record: M },
    Done,
    Missing { program: String, hint: String },
    Failed { why: String },
}

/// A machine that says nothing for so long hangs; one that dies ends QEMU. Filling Redis while instructions are counted takes
/// ten minutes a gigabyte, and nothing is said meanwhile.
const SILENCE: Duration = Duration::from_secs(2400);
/// Below the kernel directory.
const DRIVER: &str = "bench/run";

/// Boots in their order, whose records are `M`. Its process does not outlive this one, and the machine does not outlive that
/// process.
pub struct Machines<M> {
    /// Of the kernel that is booted.
    pub release: String,
    /// QEMU's version.
    pub emulator: String,
    /// Before the directory in which it works: fields are dropped in their order.
    events: Events<M>,
    _scratch: Scratch,
}

impl<M: DeserializeOwned + Debug> Machines<M> {
    /// Starts the driver, and waits until all is built.
    ///
    /// # Errors
    /// A program, the kernel or its headers are missing, or the module does not build.
    pub fn prepare(
        args: &MachineArgs,
        equipment: Equipment,
        scratch: Scratch,
        boots: &[Boot],
    ) -> Result<Self> {
        std::fs::create_dir_all(scratch.path()).context(|| format!("create {}", scratch.path().display()))?;
        let own = std::env::current_exe().context(|| "find this program".to_owned())?;
        let mut programs =
            equipment.beside.iter().map(|name| beside(&own, name)).collect::<Result<Vec<_>>>()?;
        programs.push(own);
        let job = Job {
            kernel: args.kernel.as_deref(),
            headers: args.headers.as_deref(),
            module: args.module.as_deref(),
            directory: scratch.path(),
            equipment,
            programs,
            silence_seconds: SILENCE.as_secs(),
            boots,
        };
        let mut events = Events::start(&kernel_source(args)?.join(DRIVER), &job)?;
        match events.next()? {
            Event::Ready { release, emulator } => Ok(Self { release, emulator, events, _scratch: scratch }),
            event => Err(unexpected("before the first boot", &event)),
        }
    }

    /// The records of a boot, whose turn it is.
    ///
    /// # Errors
    /// The machine died, fell silent or reported an error; the last lines of its console say more.
    pub fn run(&mut self, boot: &Boot) -> Result<Vec<M>> {
        let began = Instant::now();
        let Boot { name, clock, cpu_count, memory_mb, .. } = boot;
        eprintln!("{name}: {cpu_count} CPU, {memory_mb} MB, clock: {clock:?}");
        let mut records = Vec::new();
        loop {
            match self.events.next().map_err(|why| BenchError::failed(name, why))? {
                Event::Record { record } => records.push(record),
                Event::Done => break,
                event => return Err(unexpected(name, &event)),
            }
        }
        eprintln!("{name}: {} records in {:.0} s", records.len(), began.elapsed().as_secs_f64());
        Ok(records)
    }
}

/// The driver's process and what it says; ended when dropped, and with it the machine.
struct Events<M> {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    records: PhantomData<M>,
}

impl<M: DeserializeOwned> Events<M> {
    fn start(driver: &Path, job: &Job<'_>) -> Result<Self> {
        let python = find_program(Path::new("python3")).ok_or_else(|| BenchError::NoBinary {
            binary: "python3".to_owned(),
            hint: "apt-get install python3".to_owned(),
        })?;
        let mut command = mortal(&python);
        command.arg(driver).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context(|| format!("start {}", driver.display()))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are pipes");
        };
        let events = Self { child, lines: BufReader::new(stdout).lines(), records: PhantomData };
        // To its end, which is where the driver stops reading.
        serde_json::to_writer(stdin, job).map_err(|e| BenchError::failed("tell the driver its job", e))?;
        Ok(events)
    }

    /// # Errors
    /// The driver said that something is missing or has failed, or it ended.
    fn next(&mut self) -> Result<Event<M>> {
        let Some(line) = self.lines.next() else {
            let status = self.child.wait().context(|| "wait for the driver".to_owned())?;
            return Err(BenchError::Failed(format!("the machine's driver ended early, with {status}")));
        };
        event(&line.context(|| "read from the driver".to_owned())?)
    }
}

impl<M> Drop for Events<M> {
    fn drop(&mut self) {
        // Once it has been waited for, its number may be somebody else's.
        if let Ok(None) = self.child.try_wait() {
            // Asked, not killed: so it ends the machine also where setpriv is not installed.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

fn event<M: DeserializeOwned>(line: &str) -> Result<Event<M>> {
    match serde_json::from_str(line) {
        Ok(Event::Missing { program, hint }) => Err(BenchError::NoBinary { binary: program, hint }),
        Ok(Event::Failed { why }) => Err(BenchError::Failed(why)),
        Ok(event) => Ok(event),
        Err(why) => Err(BenchError::Failed(format!("the driver said {line:?}: {why}"))),
    }
}

fn unexpected<M: Debug>(when: &str, event: &Event<M>) -> BenchError {
    BenchError::Failed(format!("{when}: the driver said {event:?} out of turn"))
}

fn beside(own: &Path, name: &str) -> Result<PathBuf> {
    let path = own.with_file_name(name);
    match path.is_file() {
        true => Ok(path),
        false => {
            Err(BenchError::NoBinary { binary: path.display().to_string(), hint: "cargo build".to_owned() })
        }
    }
}

fn kernel_source(args: &MachineArgs) -> Result<PathBuf> {
    let own = std::env::current_exe().unwrap_or_default();
    let above = own.ancestors().skip(1).map(|dir| dir.join("kernel"));
    let mut candidates: Vec<_> = args.kernel_source.iter().cloned().collect();
    if candidates.is_empty() {
        candidates.push(PathBuf::from("kernel"));
        candidates.extend(above);
    }
    let found = candidates.into_iter().find(|dir| dir.join(DRIVER).is_file());
    found.ok_or_else(|| {
        BenchError::Failed(
            "the kernel directory of the source tree was not found: --kernel-source DIR".to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_typed() {
        #[derive(Debug, Deserialize)]
        #[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
        enum Measure {
            Fault { round: u32 },
        }
        let fault = r#"{"event": "record", "record": {"kind": "fault", "round": 3}}"#;
        assert!(matches!(event(fault).unwrap(), Event::Record { record: Measure::Fault { round: 3 } }));
        assert!(matches!(event::<Measure>(r#"{"event": "done"}"#).unwrap(), Event::Done));
        let why = |line: &str| event::<Measure>(line).unwrap_err().to_string();
        assert!(why(&fault.replace("fault", "news")).contains("news"));
        assert!(why(&fault.replace("round", "turn")).contains("turn"));
        assert!(why("Traceback").contains("Traceback"));
        assert_eq!(why(r#"{"event": "failed", "why": "no kernel"}"#), "no kernel");
        let missing =
            r#"{"event": "missing", "program": "busybox", "hint": "apt-get install busybox-static"}"#;
        assert_eq!(why(missing), "busybox not found: apt-get install busybox-static");
    }
}
