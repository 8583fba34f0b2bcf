//! `stillframe-fork`: loads the `async_fork` kernel module, says who uses it and shows what it does.
#![forbid(unsafe_code)]

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use stillframe_fork::abi::THREADS_MAX;
use stillframe_fork::cgroup::Strategy;
use stillframe_fork::control::{self, Subject};
use stillframe_fork::doctor::{self, Grade};
use stillframe_fork::error::{exit_code, ForkError, Result};
use stillframe_fork::finding::Finding;
use stillframe_fork::load::{self, Loaded, RunningKernel};
use stillframe_fork::processes::Processes;
use stillframe_fork::restore::{self, Restored};
use stillframe_fork::root::Root;
use stillframe_fork::{kernel, status};

/// The child alone. The paper copies with eight threads (section 6.1), on a machine with cores to spare: where there are
/// none, threads take the processor from the server whose latency they are to mend (docs/measured/figures.md).
const COPY_THREADS: u32 = 1;

#[derive(Parser)]
#[command(name = "stillframe-fork", version, about, max_term_width = 110)]
/// Snapshots of Redis and its kin without the long fork: controls the async_fork kernel module.
///
/// Exit codes: 0 done; 1 failed; 2 wrong command line; 3 the module is not loaded; 4 not permitted; 5 doctor found
/// that the process would use the default fork.
struct Cli {
    /// Directory in the place of /
    #[arg(long, value_name = "DIR", default_value = "/", hide = true, global = true)]
    sysroot: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load the module: the installed one (modprobe), else the one that `make -C kernel` built
    Load {
        /// The module's file
        #[arg(long, value_name = "FILE")]
        path: Option<PathBuf>,
        /// Module parameters
        #[arg(value_name = "NAME=VALUE")]
        parameters: Vec<String>,
    },
    /// Unload the module; fails while it is in use. What is enabled is enabled again by the next load, until a reboot
    Unload {
        /// The next load enables nothing again
        #[arg(long)]
        forget: bool,
    },
    /// Let a process, a service or a cgroup fork with the module from now on
    Enable {
        #[command(flatten)]
        subject: SubjectArgs,
        /// async: the child copies the page tables; odf: they are shared until written (`load allow_odf=1`)
        #[arg(long, value_enum, default_value_t = StrategyArg::Async)]
        strategy: StrategyArg,
        /// Threads that copy page tables in the child; more than 1 only with cores to spare [default: 1]
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(THREADS_MAX)))]
        threads: Option<u32>,
        /// With --unit: after each restart of the service and of the machine as well
        #[arg(long, conflicts_with_all = ["pid", "cgroup"])]
        persistent: bool,
    },
    /// Back to the kernel's own fork; of a unit also for good
    Disable {
        #[command(flatten)]
        subject: SubjectArgs,
        /// With --pid: forget the process's own setting, so that its cgroup decides
        #[arg(long, conflicts_with_all = ["unit", "cgroup"])]
        inherit: bool,
    },
    /// Forks, tables copied and by whom, interruptions of the parent, refusals
    Status {
        /// Show it again every so many seconds
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
        watch: Option<f64>,
        #[arg(long)]
        json: bool,
        /// With --watch: end after so many times
        #[arg(long, value_name = "COUNT", requires = "watch")]
        times: Option<u64>,
    },
    /// Check whether a process would use the module, and how much of its memory
    Doctor {
        #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
        pid: i32,
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct SubjectArgs {
    /// A process; holds until it ends or executes another program
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// A systemd service, through its cgroup
    #[arg(long, value_name = "NAME")]
    unit: Option<String>,
    /// A memory cgroup, by its directory or its name
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
}

impl SubjectArgs {
    fn subject(&self) -> Option<Subject> {
        let unit = || self.unit.clone().map(Subject::Unit);
        let group = || self.cgroup.clone().map(Subject::Cgroup);
        self.pid.map(Subject::Process).or_else(unit).or_else(group)
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum StrategyArg {
    Async,
    Odf,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let root = Root::new(cli.sysroot);
    match run(&root, cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            report(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(root: &Root, command: Command) -> Result<u8> {
    match command {
        Command::Load { path, parameters } => {
            match load::load(root, &RunningKernel, path.as_deref(), &parameters)? {
                Loaded::Already if parameters.is_empty() => say("async_fork is loaded already"),
                Loaded::Already => {
                    say("async_fork is loaded already: its parameters stay as they are, unload it first")
                }
                Loaded::From(source) => {
                    say(&format!("async_fork is loaded ({source})"));
                    for name in load::unknown_parameters(root, &parameters) {
                        say(&format!("the module has no parameter {name}: the kernel ignored it"));
                    }
                }
            }
            if let Some(taint) = kernel::taint(root) {
                say(&taint);
            }
            say_restored(&restore::restore(root));
        }
        Command::Unload { forget } => unload(root, forget)?,
        Command::Enable { subject, strategy, threads, persistent } => {
            let strategy = chosen(strategy, threads)?;
            say(&match &subject.unit {
                Some(unit) if persistent => control::set_for_good(root, unit, strategy)?,
                _ => set(root, &subject, Some(strategy))?,
            });
        }
        Command::Disable { subject, inherit } => {
            let strategy = (!inherit).then_some(Strategy::Default);
            say(&set(root, &subject, strategy)?);
        }
        Command::Status { watch, json, times } => show_status(root, watch, json, times)?,
        Command::Doctor { pid, json } => return examine(root, pid, json),
    }
    Ok(0)
}

fn unload(root: &Root, forget: bool) -> Result<()> {
    let kept = match forget {
        true => 0,
        false => restore::keep(root)?,
    };
    if let Err(error) = load::unload(root, &RunningKernel) {
        // It is still enabled.
        restore::forget(root);
        return Err(error);
    }
    if forget {
        restore::forget(root);
    }
    say("async_fork is unloaded");
    if kept > 0 {
        say(&format!(
            "what was enabled ({kept} cgroups and processes) forks as by default; `stillframe-fork load` enables it again, \
             until a reboot"
        ));
    }
    Ok(())
}

fn say_restored(restored: &Restored) {
    for name in &restored.enabled {
        say(&format!("enabled again: {name}"));
    }
    if restored.gone_count > 0 {
        say(&format!("{} cgroups and processes that were enabled are gone", restored.gone_count));
    }
    for what in &restored.failed {
        say(&format!("NOT enabled again: {what}"));
    }
}

fn chosen(strategy: StrategyArg, threads: Option<u32>) -> Result<Strategy> {
    match (strategy, threads) {
        (StrategyArg::Odf, None) => Ok(Strategy::Odf),
        (StrategyArg::Odf, Some(_)) => Err(ForkError::Usage(
            "--threads is for --strategy async: with odf nobody copies ahead".to_owned(),
        )),
        (StrategyArg::Async, threads) => {
            Ok(Strategy::Async { copy_threads: threads.unwrap_or(COPY_THREADS) })
        }
    }
}

fn set(root: &Root, args: &SubjectArgs, strategy: Option<Strategy>) -> Result<String> {
    let subject =
        args.subject().ok_or_else(|| ForkError::Usage("say --pid, --unit or --cgroup".to_owned()))?;
    control::set(root, &subject, strategy)
}

fn show_status(root: &Root, watch: Option<f64>, json: bool, times: Option<u64>) -> Result<()> {
    let pause = match watch {
        None => None,
        Some(seconds) => match Duration::try_from_secs_f64(seconds) {
            Ok(pause) if !pause.is_zero() => Some(pause),
            _ => return Err(ForkError::Usage(format!("--watch {seconds}: a time above 0 is needed"))),
        },
    };
    let mut left = times.unwrap_or(u64::MAX);
    loop {
        let statistics = root.statistics()?;
        let processes = Processes::read(root);
        let text = match json {
            true => status::json(&statistics, processes.as_ref()).to_string(),
            false => status::table(&statistics, processes.as_ref()),
        };
        if pause.is_some() && !json && std::io::stdout().is_terminal() {
            // Home, clear to the end.
            print!("\x1b[H\x1b[J");
        }
        let written = writeln!(std::io::stdout(), "{}", text.trim_end());
        left -= 1;
        match pause {
            // A reader that has gone away (`| head`) ends it.
            Some(pause) if left > 0 && written.is_ok() => std::thread::sleep(pause),
            _ => return Ok(()),
        }
    }
}

fn examine(root: &Root, pid: i32, json: bool) -> Result<u8> {
    let checks = doctor::examine(root, pid)?;
    match json {
        true => say(&doctor::json(&checks).to_string()),
        false => say(doctor::text(&checks).trim_end()),
    }
    Ok(if doctor::worst(&checks) == Grade::Problem { exit_code::NOT_USED } else { 0 })
}

fn report(error: &ForkError) {
    eprintln!("stillframe-fork: {error}");
    let (findings, log): (&[Finding], &[String]) = match error {
        ForkError::LoadRefused { findings, log, .. } => (findings, log),
        ForkError::NoModule { findings, .. } => (findings, &[]),
        _ => return,
    };
    if !log.is_empty() {
        eprintln!("the kernel's log says:");
    }
    for line in log {
        eprintln!("  {line}");
    }
    for finding in findings {
        eprintln!("  - {}\n    -> {}", finding.what, finding.advice);
    }
}

/// A reader that has gone away is no reason to fail.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
