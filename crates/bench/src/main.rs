//! `stillframe-bench`: measures Redis-protocol servers, first of all what a save does to those who are being
//! served. It starts the servers it compares, side by side on the same data, and writes tables, raw files and
//! plots. It is not a library, and it links none of the server: whatever speaks RESP2 can be measured. Two
//! measurements, `cut` and `workers`, run the embedded library in this process; `vmcache` measures stores that are linked.
#![forbid(unsafe_code)]

mod bar;
mod chart;
mod clock;
mod commands;
mod count;
mod embedded;
mod error;
mod guest;
mod kv;
mod load;
mod machine;
mod output;
mod peer;
mod pin;
mod plot;
mod procfs;
mod progress;
mod provenance;
mod resp;
mod scratch;
mod section;
mod slow_disk;
mod stats;
mod stops;
mod study;
mod ticks;
mod tpcc;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "stillframe-bench", version, about, max_term_width = 110, args_override_self = true)]
/// Measures Redis-protocol servers, first of all what a save does to latency and memory.
///
/// load and fill work on a server that runs; the others start the servers they compare, in turn and on the
/// same data, and write a report, raw results and plots to results/DATE-NAME.
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send GET and SET to a running server at a fixed rate or as fast as it goes
    Load(commands::load::Args),
    /// Fill a running server with keys
    Fill(commands::fill::Args),
    /// Save under load: latency, memory, time of the save and of a restart, of several servers
    Pause(commands::pause::Args),
    /// Commands a second and CPU time a command, of several servers in alternating rounds
    Throughput(commands::throughput::Args),
    /// CPU time a script, of several servers in alternating rounds, and whether our bars are met
    Scripts(commands::scripts::Args),
    /// Streams: CPU time a command, memory an entry, what others wait for, and whether our bars are met
    Streams(commands::streams::Args),
    /// What a log of all changes costs and gives: CPU, latency and replay beside other servers, also on a slow disk
    Durability(commands::durability::Args),
    /// Memory a key, freshly loaded and after overwrites and deletes
    Memory(commands::memory::Args),
    /// Time of a full save, what an incremental checkpoint writes, size of the page file
    Checkpoint(commands::checkpoint::Args),
    /// Lists, hashes, sets and sorted sets: memory, throughput, saves, deletions, order, checkpoints, clients that wait
    Collections(commands::collections::Args),
    /// What commands wait for beside a huge value, a lowered bound of memory, a reply that nobody reads
    Waits(commands::waits::Args),
    /// Instructions, locked ones, calls of allocator and system a command, by valgrind and strace; held against a file
    Count(commands::count::Args),
    /// Wait of a cut for the workers as the data grows, in process
    Cut(commands::cut::Args),
    /// Two workers on one store against two on stores of their own, in process
    Workers(commands::workers::Args),
    /// The async_fork kernel module in a virtual machine: the paper's figures, and whether its bars are met
    Fork(commands::fork::Args),
    /// The part of fork that runs in the virtual machine
    #[command(hide = true)]
    ForkGuest(commands::fork::guest::Args),
    /// The exmap kernel module in a virtual machine: the vmcache paper's figures of it, and whether its bars are met
    Exmap(commands::exmap::Args),
    /// The part of exmap that runs in the virtual machine
    #[command(hide = true)]
    ExmapGuest(commands::exmap::guest::Args),
    /// Stores that can be linked, one against the other: random lookups and TPC-C, in memory and out of it
    Vmcache(commands::vmcache::Args),
    /// The process in which vmcache measures one system
    #[command(hide = true)]
    VmcacheGuest(commands::vmcache::guest::Args),
    /// The comparative study of snapshot algorithms: its figures, one command each, and whether our bars are met
    Study(commands::study::Args),
    /// The process in which study measures one algorithm
    #[command(hide = true)]
    StudyGuest(commands::study::guest::Args),
    /// Which snapshot algorithm suits given sizes and rates, measured here
    Advise(commands::advise::Args),
    /// Answer +OK to everything: shows the most that the generator can drive here
    NullServer(commands::null_server::Args),
}

fn main() -> ExitCode {
    // Before any thread is pinned.
    pin::own_cpus();
    let result = match Cli::parse().command {
        Command::Load(args) => commands::load::run(&args),
        Command::Fill(args) => commands::fill::run(&args),
        Command::Pause(args) => commands::pause::run(&args),
        Command::Throughput(args) => commands::throughput::run(&args),
        Command::Scripts(args) => commands::scripts::run(&args),
        Command::Streams(args) => commands::streams::run(&args),
        Command::Durability(args) => commands::durability::run(&args),
        Command::Memory(args) => commands::memory::run(&args),
        Command::Checkpoint(args) => commands::checkpoint::run(&args),
        Command::Collections(args) => commands::collections::run(&args),
        Command::Waits(args) => commands::waits::run(&args),
        Command::Count(args) => commands::count::run(&args),
        Command::Cut(args) => commands::cut::run(&args),
        Command::Workers(args) => commands::workers::run(&args),
        Command::Fork(args) => commands::fork::run(&args),
        Command::ForkGuest(args) => commands::fork::guest::run(&args),
        Command::Exmap(args) => commands::exmap::run(&args),
        Command::ExmapGuest(args) => commands::exmap::guest::run(&args),
        Command::Vmcache(args) => commands::vmcache::run(&args),
        Command::VmcacheGuest(args) => commands::vmcache::guest::run(&args),
        Command::Study(args) => commands::study::run(&args),
        Command::StudyGuest(args) => commands::study::guest::run(&args),
        Command::Advise(args) => commands::advise::run(&args),
        Command::NullServer(args) => commands::null_server::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("stillframe-bench: {e}");
            ExitCode::FAILURE
        }
    }
}
