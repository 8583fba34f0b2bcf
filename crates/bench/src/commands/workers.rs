//! `workers`: what two workers on one store do against two on stores of their own. In this process, on the
//! embedded library, no network: what is lost is what they share.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde_json::json;
use stillframe_store::{Deadline, NewValue, Store, Worker};

use crate::commands::DataArgs;
use crate::embedded::{self, key_bytes, OpResult, DB, KEY_BYTES};
use crate::error::{BenchError, Result};
use crate::output::{markdown_table, thousands, OutArgs, Output};
use crate::stats::{median, with_range};

/// Keys looked up together, as the server does with a pipelined batch.
const BATCH_KEYS: usize = 64;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Keys in each store
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1_000_000)]
    keys: u64,
    /// Bytes of a value
    #[arg(short = 'd', long, value_name = "BYTES", default_value_t = 100)]
    value_bytes: usize,
    /// Rounds of each kind, alternating
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    rounds: usize,
    /// Seconds a round
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    out: OutArgs,
    /// A run of seconds: 20,000 keys, 1 round
    #[arg(long)]
    small: bool,
}

/// How many commands of ten are GETs; the rest are SETs.
const MIXES: [(&str, u32); 4] = [("GET", 10), ("SET", 0), ("9 GET to 1 SET", 9), ("half and half", 5)];

pub fn run(args: &Args) -> Result<()> {
    let mut args = args.clone();
    if args.small {
        (args.keys, args.rounds, args.seconds) = (20_000, 1, 0.2);
    }
    let mut out = Output::new(&args.out, "workers", "Two workers on one store against two stores", &[])?;
    out.note("load", format!("GET and SET of {} B, uniform, {} keys", args.value_bytes, args.keys));
    let scratch = args.data.scratch();
    let open = |name: &str, worker_count: usize| -> Result<Store> {
        embedded::filled(&scratch.path().join(name), worker_count, args.keys, &vec![b'v'; args.value_bytes])
    };
    let (shared, left, right) = (open("shared", 2)?, open("left", 1)?, open("right", 1)?);
    let (mut records, mut rows) = (Vec::new(), Vec::new());
    for (name, gets_of_ten) in MIXES {
        let (mut together, mut apart, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            together.push(rate(&[&shared, &shared], &args, gets_of_ten)?);
            apart.push(rate(&[&left, &right], &args, gets_of_ten)?);
            alone.push(rate(&[&left], &args, gets_of_ten)?);
        }
        let ratio = median(&together) / median(&apart);
        let shown = |rates: &[f64]| with_range(rates, |rate| thousands(rate as u64));
        let shares = format!("{ratio:.3}");
        rows.push(vec![name.to_owned(), shown(&together), shown(&apart), shares, shown(&alone)]);
        records.push(
            json!({ "load": name, "together": together, "apart": apart, "alone": alone, "ratio": ratio }),
        );
    }
    out.write_json(&records)?;
    let head = ["load", "two workers, one store", "two workers, two stores", "of two stores", "one worker"];
    out.write_markdown(&markdown_table(&head, &rows))
}

/// Commands a second of one worker on each of `stores`, all at once.
fn rate(stores: &[&Store], args: &Args, gets_of_ten: u32) -> Result<f64> {
    let start = Barrier::new(stores.len());
    let duration = Duration::from_secs_f64(args.seconds);
    let rates: Vec<OpResult<f64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(number, store)| {
                let start = &start;
                scope.spawn(move || work(store, args, gets_of_ten, number as u64, start, duration))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(f64::NAN))).collect()
    });
    let mut total = 0.0;
    for rate in rates {
        total += rate.map_err(|error| BenchError::failed("run", error))?;
    }
    Ok(total)
}

fn work(
    store: &Store,
    args: &Args,
    gets_of_ten: u32,
    seed: u64,
    start: &Barrier,
    duration: Duration,
) -> OpResult<f64> {
    let mut worker = store.nonblocking_worker()?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let value = vec![b'w'; args.value_bytes];
    worker.idle(|| start.wait());
    let since = Instant::now();
    let mut count = 0u64;
    while since.elapsed() < duration {
        batch(&mut worker, &mut rng, args.keys, gets_of_ten, &value)?;
        count += BATCH_KEYS as u64;
    }
    Ok(count as f64 / since.elapsed().as_secs_f64())
}

fn batch(
    worker: &mut Worker,
    rng: &mut fastrand::Rng,
    key_count: u64,
    gets_of_ten: u32,
    value: &[u8],
) -> OpResult<()> {
    let bytes: [[u8; KEY_BYTES]; BATCH_KEYS] = std::array::from_fn(|_| key_bytes(rng.u64(..key_count)));
    let is_set: [bool; BATCH_KEYS] = std::array::from_fn(|_| rng.u32(..10) >= gets_of_ten);
    let mut keys: [_; BATCH_KEYS] =
        std::array::from_fn(|index| worker.key(&bytes[index]).to_be_written(is_set[index]));
    worker.prefetch().all(DB, &mut keys);
    for (key, is_set) in keys.iter().zip(is_set) {
        if is_set {
            worker.set(DB, key, NewValue::Bytes { bytes: value, raw: false }, Deadline::Clear)?;
        } else {
            worker.get(DB, key, |found| std::hint::black_box(found.len()))?;
        }
        worker.quiesce();
    }
    Ok(())
}
