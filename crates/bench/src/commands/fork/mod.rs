//! `fork`: the `async_fork` kernel module in a virtual machine. Prints what the figures of the Async-fork paper
//! (Pang et al., VLDB 2023) show, and judges the bars that the module has to reach. `docs/measured/figures.md` says what
//! software emulation hides.

mod bars;
pub mod guest;
mod plots;
mod records;
mod tables;

use self::records::{Part, Record, Records};
use crate::bar;
use crate::commands::DataArgs;
use crate::error::{BenchError, Result};
use crate::output::{OutArgs, Output};
use crate::vm::{Boot, Clock, Equipment, MachineArgs, Machines};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    machine: MachineArgs,
    /// Parts to measure
    #[arg(long, value_delimiter = ',', value_enum, default_value = "costs,fork,writes,threads,redis,aof")]
    parts: Vec<Part>,
    /// How often each measurement is repeated; the tables show medians
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    rounds: usize,
    /// Sizes of the process whose fork is timed
    #[arg(long, value_name = "MB", value_delimiter = ',', default_value = "64,128,256,512,1024")]
    sizes: Vec<u64>,
    /// Sizes of Redis' values
    #[arg(long, value_name = "MB", value_delimiter = ',', default_value = "128,256,512")]
    redis_sizes: Vec<u64>,
    /// Clock of the parts with Redis
    #[arg(long, value_name = "CLOCK", value_enum, default_value = "instructions")]
    redis_clock: Clock,
    /// Load on Redis in percent of what it takes at most in the virtual machine
    #[arg(long, value_name = "PERCENT", default_value_t = 25.0)]
    load_percent: f64,
    /// A run of two minutes: small sizes, one round, nothing that the bars are about
    #[arg(long)]
    small: bool,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    out: OutArgs,
}

const EQUIPMENT: Equipment = Equipment {
    module_name: "async_fork",
    bench: "fork_bench",
    beside: &["stillframe-fork"],
    commands: &["redis-server"],
    kernel_modules: &[],
};
/// The paper's load of 50,000 writes a second.
const PACED_PERIOD_NS: u64 = 20_000;
const WRITES: usize = 2000;
/// What a machine needs beside the data.
const SPARE_MB: u64 = 700;
/// One each for the server and the load, two for the child and its copy threads. The data are there five times over at most:
/// values, what is overwritten during a save, and files, which are in memory as well.
const REDIS_CPUS: usize = 4;
const FAULTS: usize = 20_000;
/// Memory as of two nodes, so that pages can be moved from one to the other.
const TWO_NODES: &str = "numa=fake=2";
const LOAD: &str =
    "stillframe-fork load --path /lib/async_fork.ko allow_odf=1 >&2 || echo '{\"error\": \"the module was not loaded\"}'";

const UNLOAD: &str = "stillframe-fork unload >&2 || echo '{\"error\": \"the module was not unloaded\"}'";

pub fn run(args: &Args) -> Result<()> {
    let mut args = args.clone();
    if args.small {
        (args.rounds, args.sizes, args.redis_sizes) = (1, vec![16, 32], vec![32]);
    }
    if args.rounds == 0 || args.sizes.is_empty() || args.redis_sizes.is_empty() {
        return Err(BenchError::Failed("at least one round and one size are needed".to_owned()));
    }
    let mut out = Output::new(&args.out, "fork", "The async_fork kernel module", &[])?;
    let boots: Vec<_> = args.parts.iter().map(|part| args.boot(*part)).collect();
    let mut machines = Machines::prepare(&args.machine, EQUIPMENT, args.data.scratch(), &boots)?;
    out.note("kernel in the virtual machine", machines.release.clone());
    out.note("emulator", machines.emulator.clone());
    out.note("redis", redis_version());
    let mut records = Vec::new();
    for (part, boot) in args.parts.iter().zip(&boots) {
        for measure in machines.run(boot)? {
            let record = Record { run: *part, measure };
            record.check_strategy()?;
            records.push(record);
        }
    }
    report(&out, &Records::new(records))
}

fn report(out: &Output, records: &Records) -> Result<()> {
    out.write_json(records.all())?;
    for (name, svg) in plots::all(records) {
        out.write(&format!("{name}.svg"), svg.as_bytes())?;
    }
    let bars = bars::judge(records);
    out.write_markdown(&format!("## Bars\n\n{}\n{}", bar::table(&bars), tables::all(records)))
}

fn redis_version() -> String {
    let output = std::process::Command::new("redis-server").arg("--version").output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}

fn largest(sizes: &[u64]) -> u64 {
    sizes.iter().copied().max().unwrap_or(0)
}

impl Args {
    /// The machine that a part needs, and its script.
    fn boot(&self, part: Part) -> Boot {
        let data_mb = largest(&self.sizes);
        let host_cpus = std::thread::available_parallelism().map_or(1, usize::from).max(2);
        let boot = |name, (clock, cpu_count), memory_mb, plan| Boot {
            name,
            clock,
            cpu_count,
            memory_mb,
            parameters: "",
            plan,
        };
        let (counted, timed) = ((Clock::Instructions, 1), (Clock::Host, host_cpus));
        let redis = match self.redis_clock {
            Clock::Instructions => counted,
            Clock::Host => (Clock::Host, REDIS_CPUS),
        };
        let (memory_mb, redis_mb) = (data_mb + SPARE_MB, 5 * largest(&self.redis_sizes) + SPARE_MB);
        match part {
            Part::Costs => Boot { parameters: TWO_NODES, ..boot("costs", counted, SPARE_MB, self.costs()) },
            Part::Fork => boot("fork", counted, memory_mb, self.fork_times()),
            Part::Writes => boot("writes", timed, memory_mb, self.writes(data_mb)),
            Part::Threads => boot("threads", timed, memory_mb, self.threads(data_mb)),
            Part::Redis => boot("redis", redis, redis_mb, self.redis(&self.redis_sizes, "")),
            Part::Aof => boot("aof", redis, redis_mb, self.redis(&[largest(&self.redis_sizes)], "--aof")),
        }
    }

    fn costs(&self) -> String {
        let rounds = self.rounds.max(3);
        let both = |label: &str| {
            format!(
                "fork_bench small {label} {}\nfork_bench fault {label} {FAULTS} {rounds}\nfork_bench path {label} {rounds}",
                10 * rounds
            )
        };
        // The first round warms up the kernel's allocators; then without and with the module in turn.
        let warm_up = both("warm-up");
        let turn = format!("{}\n{LOAD}\n{}", both("unloaded"), both("loaded"));
        let shared =
            format!("fork_bench fault shared {FAULTS} {rounds} other\nfork_bench path shared {rounds} other");
        format!("busybox sleep 2\n{warm_up}\n{turn}\n{UNLOAD}\n{turn}\n{shared}")
    }

    fn fork_times(&self) -> String {
        let mut plan = vec![LOAD.to_owned()];
        for mb in &self.sizes {
            let strategies = ["default", "1", "4", "8", "odf"];
            plan.extend(strategies.map(|s| format!("fork_bench fork {mb} {s} {} 0 0", self.rounds)));
        }
        plan.join("\n")
    }

    fn writes(&self, mb: u64) -> String {
        let mut plan = vec![LOAD.to_owned()];
        for period_ns in [0, PACED_PERIOD_NS] {
            let strategies = ["default", "1", "4", "8", "odf"];
            let line = |s| format!("fork_bench fork {mb} {s} {} {WRITES} {period_ns}", self.rounds);
            plan.extend(strategies.map(line));
        }
        plan.join("\n")
    }

    fn threads(&self, mb: u64) -> String {
        let lines =
            ["1", "2", "4", "8"].map(|s| format!("fork_bench fork {mb} {s} {} 0 0", self.rounds.max(5)));
        format!("{LOAD}\n{}", lines.join("\n"))
    }

    fn redis(&self, sizes: &[u64], flag: &str) -> String {
        let line = |mb: &u64| {
            format!(
                "stillframe-bench fork-guest --mb {mb} --strategies default,1,8,odf --rounds {} --load-percent {} {flag}",
                self.rounds, self.load_percent
            ) + " || echo '{\"error\": \"fork-guest failed\"}'"
        };
        let lines: Vec<_> = sizes.iter().map(line).collect();
        format!("{LOAD}\n{}", lines.join("\n"))
    }
}
