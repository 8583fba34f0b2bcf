//! A stock kernel under QEMU's software emulation. A plan, which is a shell script, runs inside; each line of its
//! output is a record of JSON, which arrives here through the second serial port.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use stillframe_testkit::find_program;

use super::archive::Archive;
use super::records::Measure;
use crate::commands::Scratch;
use crate::error::{BenchError, Context, Result};

/// What the machine's clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Clock {
    /// One instruction is one nanosecond: repeatable. For one CPU: several take long and uneven turns.
    Instructions,
    /// The host's time, one thread of the host for each CPU: only ratios within one run mean something.
    Host,
}

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub clock: Clock,
    pub memory_mb: u64,
    pub cpu_count: usize,
    /// More of the kernel's command line.
    pub parameters: &'static str,
}

/// Everything a boot needs, prepared once.
pub struct Machine {
    pub release: String,
    image: PathBuf,
    /// The program that becomes QEMU: the kernel selftests start their machines by the same.
    emulator: PathBuf,
    archive: Archive,
    scratch: Scratch,
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
    /// The kernel image, named vmlinuz-RELEASE [default: the newest in /boot whose headers are installed]
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
}

const QEMU: &str = "qemu-system-x86_64";
const PACKAGES: &str = "apt-get install qemu-system-x86 linux-image-amd64 linux-headers-amd64 busybox-static redis-server gcc make python3";
/// A machine that says nothing for so long hangs; one that dies ends QEMU. Filling Redis while instructions are counted takes
/// ten minutes a gigabyte, and nothing is said meanwhile.
const SILENCE: Duration = Duration::from_secs(2400);
const CONSOLE_LINES: usize = 12;

impl Machine {
    /// # Errors
    /// A program, the kernel or its headers are missing, or the module does not build.
    pub fn prepare(args: &MachineArgs, scratch: Scratch) -> Result<Self> {
        fs::create_dir_all(scratch.path()).context(|| format!("create {}", scratch.path().display()))?;
        let source = kernel_source(args)?;
        let (image, release) = kernel_image(args)?;
        let module = match &args.module {
            Some(module) => module.clone(),
            None => build_module(&source, &release, scratch.path())?,
        };
        let bench = build_guest(&source, scratch.path())?;
        let mut archive = Archive::default();
        for directory in ["dev", "proc", "sys", "tmp", "data"] {
            archive.directory(directory);
        }
        archive.program("init", &source.join("bench/init"))?;
        archive.program("bin/busybox", &program("busybox")?)?;
        archive.program("bin/fork_bench", &bench)?;
        archive.program("bin/redis-server", &program("redis-server")?)?;
        let own = std::env::current_exe().context(|| "find this program".to_owned())?;
        archive.program("bin/stillframe-bench", &own)?;
        archive.program("bin/stillframe-fork", &beside(&own, "stillframe-fork")?)?;
        archive.file("lib/async_fork.ko", &stripped(&module, scratch.path())?);
        program(QEMU)?;
        program("python3")?;
        let emulator = source.join("selftests/emulator.py");
        Ok(Self { release, image, emulator, archive, scratch })
    }

    /// Boots, runs the plan and returns its records.
    ///
    /// # Errors
    /// The machine died, fell silent or reported an error; the last lines of its console say more.
    pub fn run(&self, name: &str, shape: Shape, plan: &str) -> Result<Vec<Measure>> {
        let path = |what: &str| self.scratch.path().join(format!("{name}.{what}"));
        let (initramfs, console, answers) = (path("cpio"), path("console"), path("answers"));
        let mut archive = self.archive.clone();
        archive.file("plan", format!("{plan}\necho '{{\"kind\": \"done\"}}'\n").as_bytes());
        fs::write(&initramfs, archive.finish()).context(|| format!("write {}", initramfs.display()))?;
        let began = Instant::now();
        eprintln!("{name}: {} CPU, {} MB, clock: {:?}", shape.cpu_count, shape.memory_mb, shape.clock);
        let mut command = self.command(shape, &initramfs, &console, &answers);
        let mut qemu = command.spawn().map(Running).context(|| "start QEMU".to_owned())?;
        qemu.wait(name, &answers)?;
        let text = fs::read_to_string(&answers).unwrap_or_default();
        let records = records(name, &text).map_err(|why| with_console(&console, &why))?;
        eprintln!("{name}: {} records in {:.0} s", records.len(), began.elapsed().as_secs_f64());
        Ok(records)
    }

    pub fn qemu_version() -> String {
        let output = Command::new(QEMU).arg("--version").output();
        let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
        text.lines().next().unwrap_or("unknown").to_owned()
    }

    fn command(&self, shape: Shape, initramfs: &Path, console: &Path, answers: &Path) -> Command {
        let clock = match shape.clock {
            Clock::Instructions => "instructions",
            Clock::Host => "host",
        };
        let mut command = Command::new("python3");
        command.arg(&self.emulator).args(["--clock", clock, "--cpus", &shape.cpu_count.to_string()]);
        command.args(["--memory-mb", &shape.memory_mb.to_string(), "--kernel"]).arg(&self.image);
        command.arg("--initrd").arg(initramfs).arg("--console").arg(console).arg("--answers").arg(answers);
        command.arg("--append").arg(format!("console=ttyS0 panic=-1 oops=panic quiet {}", shape.parameters));
        command.stdin(Stdio::null());
        command
    }
}

/// Killed when dropped; and, as `emulator.py` sees to, when this program is killed.
struct Running(Child);

impl Running {
    /// Until the machine has powered off; says how far it is.
    fn wait(&mut self, name: &str, answers: &Path) -> Result<()> {
        let (mut seen, mut changed) = (0, Instant::now());
        loop {
            let ended = self.0.try_wait().context(|| "wait for QEMU".to_owned())?;
            if let Some(status) = ended {
                return match status.success() {
                    true => Ok(()),
                    false => Err(BenchError::Failed(format!("{name}: QEMU ended with {status}"))),
                };
            }
            let length = fs::metadata(answers).map_or(0, |m| m.len());
            if length != seen {
                (seen, changed) = (length, Instant::now());
            } else if changed.elapsed() > SILENCE {
                return Err(BenchError::Failed(format!(
                    "{name}: nothing was heard of the machine for {SILENCE:?}"
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is said of an error, by `fork_bench` or the plan.
#[derive(Deserialize)]
struct Complaint {
    error: String,
}

/// The records of a run that came to its end without an error.
fn records(name: &str, text: &str) -> std::result::Result<Vec<Measure>, String> {
    let mut records = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if let Ok(Complaint { error }) = serde_json::from_str(line) {
            return Err(format!("{name}: {error}"));
        }
        records.push(serde_json::from_str(line).map_err(|e| format!("{name}: the plan said {line:?}: {e}"))?);
    }
    match records.pop() {
        Some(Measure::Done) => Ok(records),
        _ => Err(format!("{name}: the machine stopped before its plan was done")),
    }
}

fn with_console(console: &Path, why: &str) -> BenchError {
    let text = fs::read(console).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let lines: Vec<_> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(CONSOLE_LINES)..];
    BenchError::Failed(format!("{why}; its console ended with\n{}", last.join("\n")))
}

fn program(name: &str) -> Result<PathBuf> {
    find_program(Path::new(name))
        .ok_or_else(|| BenchError::NoBinary { binary: name.to_owned(), hint: PACKAGES.to_owned() })
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
    let found = candidates.into_iter().find(|dir| dir.join("bench/fork_bench.c").is_file());
    found.ok_or_else(|| {
        BenchError::Failed(
            "the kernel directory of the source tree was not found: --kernel-source DIR".to_owned(),
        )
    })
}

fn kernel_image(args: &MachineArgs) -> Result<(PathBuf, String)> {
    let release_of = |path: &Path| Some(path.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned());
    let mut images: Vec<PathBuf> = match &args.image {
        Some(image) => vec![image.clone()],
        None => fs::read_dir("/boot").into_iter().flatten().flatten().map(|e| e.path()).collect(),
    };
    images.sort_by_key(|path| fs::metadata(path).and_then(|m| m.modified()).ok());
    let usable = |path: &PathBuf| {
        let release = release_of(path)?;
        let has_headers =
            Path::new(&format!("/lib/modules/{release}/build")).exists() || args.module.is_some();
        has_headers.then(|| (path.clone(), release))
    };
    let found = images.iter().rev().find_map(usable);
    found.ok_or_else(|| BenchError::NoBinary {
        binary: "a kernel with headers".to_owned(),
        hint: PACKAGES.to_owned(),
    })
}

fn run_tool(command: &mut Command, what: &str) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().context(|| format!("start {what}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(BenchError::Failed(format!("{what} failed:\n{}", String::from_utf8_lossy(&text))))
}

/// In a copy, so that the source directory stays clean.
fn build_module(source: &Path, release: &str, scratch: &Path) -> Result<PathBuf> {
    let copy = scratch.join("kernel");
    run_tool(Command::new("cp").arg("-rT").arg(source).arg(&copy), "copying the kernel directory")?;
    let build = format!("KDIR=/lib/modules/{release}/build");
    run_tool(Command::new("make").arg("-C").arg(&copy).arg(build), "building the module")?;
    Ok(copy.join("async_fork/async_fork.ko"))
}

fn build_guest(source: &Path, scratch: &Path) -> Result<PathBuf> {
    let target = scratch.join("fork_bench");
    let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o"];
    let mut command = Command::new("gcc");
    run_tool(command.args(flags).arg(&target).arg(source.join("bench/fork_bench.c")), "building fork_bench")?;
    Ok(target)
}

fn stripped(module: &Path, scratch: &Path) -> Result<Vec<u8>> {
    let target = scratch.join("async_fork.ko");
    run_tool(
        Command::new("strip").args(["--strip-debug", "-o"]).arg(&target).arg(module),
        "stripping the module",
    )?;
    fs::read(&target).context(|| format!("read {}", target.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_need_an_end_and_no_error() {
        let fault = "{\"kind\": \"fault\", \"label\": \"loaded\", \"round\": 0, \"ns_per_fault\": 3}";
        let good = format!("{fault}\r\n\n{{\"kind\": \"done\"}}\n");
        assert_eq!(records("x", &good).unwrap().len(), 1);
        assert!(records("x", fault).unwrap_err().contains("before its plan"));
        assert!(records("x", "{\"kind\": \"news\"}\n").unwrap_err().contains("news"));
        assert!(records("x", "").unwrap_err().contains("before its plan"));
        assert!(records("x", "{\"error\": \"open: no\"}\n{\"kind\": \"done\"}")
            .unwrap_err()
            .contains("open: no"));
        assert!(records("x", "sh: not found\n").unwrap_err().contains("sh: not found"));
    }
}
