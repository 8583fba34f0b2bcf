//! `load`: the generator on a server that runs already.

use hdrhistogram::Histogram;

use crate::clock::{now_ns, seconds_to_ns, NS_PER_S, NS_PER_US};
use crate::commands::TargetArgs;
use crate::error::Result;
use crate::load::closed_loop::ClosedLoop;
use crate::load::open_loop::OpenLoop;
use crate::load::recording::{BUCKET_NS, PERCENTILES};
use crate::load::workload::SizeRange;
use crate::load::{KeyChoice, LoadReport, Recording, Stop, Workload, WorkloadSpec};
use crate::output::{human_ns, say, OutArgs, Output};
use crate::pin;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// Requests a second, sent on schedule whatever the server does (open loop); 0: as fast as it answers
    #[arg(short, long, value_name = "PER_SECOND", default_value_t = 0.0)]
    rate: f64,
    /// Connections
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 50)]
    clients: usize,
    /// Requests in flight on a connection, without --rate
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 1)]
    pipeline: usize,
    /// Seconds that are recorded
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// Seconds before, not recorded
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    warm_up: f64,
    /// Number of keys (16 bytes each)
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1_000_000)]
    keys: u64,
    /// Value size in bytes, or MIN-MAX
    #[arg(short = 'd', long, value_name = "BYTES", default_value = "100")]
    value_size: SizeRange,
    /// Share of GET among the requests; the rest are SET
    #[arg(short = 'g', long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    get_percent: u8,
    /// How keys are chosen
    #[arg(short = 'k', long, value_enum, default_value_t = KeyChoice::Uniform)]
    key_choice: KeyChoice,
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.99)]
    zipf_exponent: f64,
    /// Values of one repeated byte instead of random ones
    #[arg(long)]
    compressible: bool,
    /// Cores for the generator's thread
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cpus: Option<Vec<usize>>,
    /// Run the generator as a real-time thread (or nice -20)
    #[arg(long)]
    real_time: bool,
    /// With --rate: this many requests are due at the same instant
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    burst: u64,
    /// With --rate: spin for this long before each send instead of sleeping; costs a core
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 50)]
    spin: u64,
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// A run of a second
    #[arg(long)]
    small: bool,
    /// Write result files too
    #[arg(long)]
    save: bool,
    #[command(flatten)]
    out: OutArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let seconds = if args.small { args.seconds.min(0.8) } else { args.seconds };
    let warm_up = if args.small { 0.1 } else { args.warm_up };
    if let Some(cpus) = &args.cpus {
        pin::pin_current_thread(cpus)?;
    }
    let spec = WorkloadSpec {
        value_size: args.value_size,
        get_percent: args.get_percent,
        zipf_exponent: args.zipf_exponent,
        compressible: args.compressible,
        ..WorkloadSpec::sets(args.keys, 0, args.key_choice, args.seed)
    };
    let mut workload = Workload::new(spec)?;
    if args.real_time {
        eprintln!("generator: {}", pin::raise_current_thread(50));
    }
    let recording = Recording::new(now_ns() + seconds_to_ns(warm_up));
    let stop = Stop::after_seconds(warm_up + seconds);
    let report = if args.rate > 0.0 {
        let open = OpenLoop {
            target: args.target.target(),
            conn_count: args.clients.max(1),
            requests_per_second: args.rate,
            burst: args.burst,
            spin_ns: args.spin * NS_PER_US,
            drain_ns: 30 * NS_PER_S,
        };
        open.run(&mut workload, recording, stop)?
    } else {
        let closed = ClosedLoop {
            target: args.target.target(),
            conn_count: args.clients.max(1),
            pipeline: args.pipeline.max(1),
        };
        closed.run(&mut workload, recording, stop)?
    };
    let text = describe(args, &report);
    if args.save {
        let out = Output::new(&args.out, "load", "Load", &[])?;
        out.write_json(&[report.json()])?;
        out.write_csv("latency.csv", "ms,count,max_us", &bucket_rows(&report))?;
        return out.write_markdown(&text);
    }
    say(&text);
    Ok(())
}

fn describe(args: &Args, report: &LoadReport) -> String {
    let mut text = format!(
        "{} replies in {:.2} s: {:.0} a second{}\n",
        report.recording.histogram.len(),
        report.duration_ns as f64 / NS_PER_S as f64,
        report.replies_per_second(),
        if args.rate > 0.0 { format!(" (wanted {})", args.rate) } else { String::new() },
    );
    let from =
        if args.rate > 0.0 { "from the intended send time" } else { "from the actual send (closed loop)" };
    text.push_str(&histogram_line(&format!("latency {from}"), &report.recording.histogram));
    if let Some(lateness) = &report.lateness {
        text.push_str(&histogram_line("sent late by", &lateness.histogram));
    }
    let seconds: Vec<_> =
        report.recording.per_second_max_ns().iter().map(|ns| human_ns(*ns as f64)).collect();
    text.push_str(&format!("worst of each second: {}\n", seconds.join(", ")));
    text.push_str(&format!(
        "stall (longest time without a reply): {}\n",
        human_ns(report.stall.longest_ns as f64)
    ));
    if report.tally.errors > 0 {
        let first = report.tally.first_error.as_deref().unwrap_or("?");
        text.push_str(&format!("ERRORS: {} replies, the first: {first}\n", report.tally.errors));
    }
    if report.tally.nils > 0 {
        text.push_str(&format!("{} replies were nil (no such key)\n", report.tally.nils));
    }
    if report.unanswered > 0 {
        text.push_str(&format!("UNANSWERED: {} requests\n", report.unanswered));
    }
    text
}

fn histogram_line(title: &str, h: &Histogram<u64>) -> String {
    let mut parts: Vec<_> = PERCENTILES
        .iter()
        .map(|(name, p)| format!("{name} {}", human_ns(h.value_at_percentile(*p) as f64)))
        .collect();
    parts.push(format!("max {}", human_ns(h.max() as f64)));
    format!("{title}: {}\n", parts.join(", "))
}

fn bucket_rows(report: &LoadReport) -> String {
    let bucket_ms = BUCKET_NS / 1_000_000;
    let rows = report.recording.buckets.iter().enumerate();
    rows.map(|(i, b)| format!("{},{},{:.1}\n", i as u64 * bucket_ms, b.count, b.max_ns as f64 / 1e3))
        .collect()
}
