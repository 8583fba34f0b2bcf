//! `exmap`: the exmap kernel module in a virtual machine. Prints what the figures of the vmcache paper (Leis et al., SIGMOD
//! 2023) show of it, in instructions, and judges the bars that the module has to reach. `docs/measured/figures.md` says what software
//! emulation hides.

mod bars;
pub mod guest;
mod plots;
mod records;
mod tables;

use clap::ValueEnum;
use stillframe_store::PoolBackend;

use self::records::{Measure, Part, Record, Records, Way, Work};
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
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "costs,churn,threads,interrupts,reads,pages,stores"
    )]
    parts: Vec<Part>,
    /// How often each measurement is repeated; the tables show medians
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    rounds: usize,
    /// Pages of a call, powers of two up to 512
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256,512")]
    batches: Vec<u32>,
    /// Pages that a thread takes and gives back in a round
    #[arg(long, value_name = "COUNT", default_value_t = 4096)]
    pages: usize,
    /// Numbers of threads
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4")]
    threads: Vec<usize>,
    /// Keys of lookups
    #[arg(long, value_name = "COUNT", default_value_t = 400_000)]
    keys: u64,
    /// Memory of a store whose data is larger
    #[arg(long, value_name = "MB", default_value_t = 16)]
    memory_mb: u64,
    /// Data of TPC-C in percent of a warehouse of 85 MB
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    warehouse_percent: u32,
    /// Of the machine's clock that each round of a store takes
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    seconds: f64,
    /// A run of a minute: few sizes, one round, little data
    #[arg(long)]
    small: bool,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    out: OutArgs,
}

const EQUIPMENT: Equipment = Equipment {
    module_name: "exmap",
    bench: "exmap_bench",
    beside: &[],
    commands: &["mke2fs"],
    kernel_modules: &["null_blk", "brd", "crc32c_generic", "ext4"],
};
const MEMORY_MB: u64 = 512;
/// The machine's memory holds the disk, the stores' memory and programs.
const STORES_MEMORY_MB: u64 = 2048;
const DISK_KB: u64 = 1 << 20;
const PAGES_BYTES: [u64; 2] = [32 << 10, 64 << 20];
const FAULTS: usize = 20_000;
/// Batches of the part with several threads: each page alone, and as many as there are entries.
const THREADS_BATCHES: [u32; 2] = [1, 512];
const LOAD: &str = "insmod /lib/exmap.ko || echo '{\"error\": \"the module was not loaded\"}'";
const UNLOAD: &str = "rmmod exmap || echo '{\"error\": \"the module was not unloaded\"}'";
/// Completes each request at once, in the context of who asked.
const NULL_DEVICE: &str = "nr_devices=1 irqmode=0 queue_mode=0";
const NULL_DEVICE_PATH: &str = "/dev/nullb0";

pub fn run(args: &Args) -> Result<()> {
    let args = args.complete()?;
    let mut out = Output::new(&args.out, "exmap", "The exmap kernel module", &[])?;
    let boots: Vec<_> = args.parts.iter().map(|part| args.boot(*part)).collect();
    let mut machines = Machines::prepare(&args.machine, EQUIPMENT, args.data.scratch(), &boots)?;
    out.note("kernel in the virtual machine", machines.release.clone());
    out.note("emulator", machines.emulator.clone());
    out.note("clock", "one instruction is one nanosecond, but for interrupts, which are counted only");
    let mut records = Vec::new();
    for (part, boot) in args.parts.iter().zip(&boots) {
        let measures: Vec<Measure> = machines.run(boot)?;
        records.extend(measures.into_iter().map(|measure| Record { run: *part, measure }));
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

/// A line of a plan that says so if it fails, where the program does not.
fn or_error(line: &str, what: &str) -> String {
    format!("{line} || echo '{{\"error\": \"{what} failed\"}}'")
}

/// The kernel's own modules with what they need, in the order of the list.
fn load_modules() -> String {
    let line = format!(
        "for module in $(busybox cat /lib/module-list); do case $module in brd.ko) more='rd_nr=1 rd_size={DISK_KB}' ;; \
         null_blk.ko) more='{NULL_DEVICE}' ;; *) more= ;; esac; insmod /lib/$module $more"
    );
    format!("{}; done", or_error(&line, "loading a module"))
}

impl Args {
    fn complete(&self) -> Result<Args> {
        let mut args = self.clone();
        if args.small {
            (args.rounds, args.batches, args.pages, args.threads) = (1, vec![1, 512], 1024, vec![1, 2]);
            (args.keys, args.memory_mb, args.warehouse_percent, args.seconds) = (60_000, 4, 10, 0.02);
        }
        let is_batch = |batch: &u32| batch.is_power_of_two() && *batch <= bars::JUDGED_BATCH;
        if args.rounds == 0 || args.batches.is_empty() || !args.batches.iter().all(is_batch) {
            return Err(BenchError::Failed(
                "at least one round, and batches that are powers of two up to 512".to_owned(),
            ));
        }
        if args.threads.is_empty() || args.threads.contains(&0) {
            return Err(BenchError::Failed("numbers of threads, none of which is 0".to_owned()));
        }
        Ok(args)
    }

    /// The machine that a part needs, and its script. Only the host's clock goes with several processors.
    fn boot(&self, part: Part) -> Boot {
        let (counted, timed) = ((Clock::Instructions, 1), (Clock::Host, self.most_threads()));
        let ((clock, cpu_count), memory_mb, plan) = match part {
            Part::Costs => (counted, MEMORY_MB, self.costs()),
            Part::Churn => (counted, MEMORY_MB, self.churn()),
            Part::Threads => {
                (counted, MEMORY_MB, self.several_threads(&Way::THREADS, 4 * self.pages, self.rounds))
            }
            // Each interrupt of another processor takes the emulator long, and a count needs no repetition.
            Part::Interrupts => (timed, MEMORY_MB, self.several_threads(&Way::INTERRUPTS, self.pages, 1)),
            Part::Reads => (counted, MEMORY_MB, self.reads()),
            Part::Pages => (counted, STORES_MEMORY_MB, self.page_accesses()),
            Part::Stores => (counted, STORES_MEMORY_MB, self.stores()),
        };
        Boot { name: part.word(), clock, cpu_count, memory_mb, parameters: "", plan }
    }

    fn most_threads(&self) -> usize {
        self.threads.iter().copied().max().unwrap_or(1)
    }

    fn costs(&self) -> String {
        let rounds = self.rounds.max(3);
        let faults = |label: &str| format!("exmap_bench fault {label} {FAULTS} {rounds}");
        // The first rounds warm up the kernel's allocators; then without and with the module in turn.
        let turn = format!("{}\n{LOAD}\n{}", faults("unloaded"), faults("loaded"));
        let used = format!("{} other", faults("used"));
        format!("busybox sleep 2\n{}\n{turn}\n{UNLOAD}\n{turn}\n{used}", faults("warm-up"))
    }

    fn churn(&self) -> String {
        let line = |way: Way, batch: u32| {
            format!("exmap_bench churn {} {batch} {} {} 1", way.word(), self.pages, self.rounds)
        };
        let lines =
            Way::CHURNS.iter().flat_map(|&way| self.batches.iter().map(move |&batch| line(way, batch)));
        let mut plan = vec![LOAD.to_owned()];
        plan.extend(lines);
        plan.join("\n")
    }

    fn several_threads(&self, ways: &[Way], pages: usize, rounds: usize) -> String {
        let mut plan = vec![LOAD.to_owned()];
        for (way, batch) in ways.iter().flat_map(|&way| THREADS_BATCHES.map(|batch| (way, batch))) {
            let line = |threads: &usize| {
                format!("exmap_bench churn {} {batch} {pages} {rounds} {threads}", way.word())
            };
            plan.extend(self.threads.iter().map(line));
        }
        plan.join("\n")
    }

    fn reads(&self) -> String {
        let mut plan = vec![LOAD.to_owned(), load_modules()];
        for (way, batch) in
            Way::READS.iter().flat_map(|&way| self.batches.iter().map(move |&batch| (way, batch)))
        {
            plan.push(format!(
                "exmap_bench read {} {batch} {} {} {NULL_DEVICE_PATH}",
                way.word(),
                self.pages,
                self.rounds
            ));
        }
        plan.join("\n")
    }

    fn page_accesses(&self) -> String {
        let sizes = PAGES_BYTES.map(|bytes| bytes.to_string()).join(",");
        let line = format!(
            "stillframe-bench exmap-guest pages --sizes {sizes} --rounds {} --seconds {}",
            self.rounds,
            self.seconds / 10.0
        );
        format!("{LOAD}\n{}", or_error(&line, "exmap-guest"))
    }

    /// On a disk in memory, whose reads and writes are copies.
    fn stores(&self) -> String {
        let format = "/bin/mke2fs -q -t ext4 -b 4096 -O extent,^metadata_csum,^has_journal /dev/ram0 >&2 && mkdir -p /disk && \
                      mount -t ext4 /dev/ram0 /disk";
        let mut plan = vec![LOAD.to_owned(), load_modules(), or_error(format, "making a disk")];
        for (work, backend) in
            Work::ALL.into_iter().flat_map(|work| PoolBackend::ALL.map(|backend| (work, backend)))
        {
            let line = format!(
                "stillframe-bench exmap-guest stores --work {} --backend {} --dir /disk/{} --memory-bytes {} --keys {} \
                 --warehouse-percent {} --rounds {} --seconds {}",
                work.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned()),
                backend.name(),
                backend.name(),
                self.memory_mb << 20,
                self.keys,
                self.warehouse_percent,
                self.rounds,
                self.seconds
            );
            plan.push(or_error(&line, "exmap-guest"));
        }
        plan.join("\n")
    }
}
