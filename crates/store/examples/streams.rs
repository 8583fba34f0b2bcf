//! A work queue: a stream of jobs and a group of workers, one of which is lost with what it has taken, across a restart.
//!
//! `cargo run --release -p stillframe-store --example streams -- <directory>`

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use stillframe_store::{AddRule, GroupStart, NewId, Options, Store, StreamEntry, StreamId, Trim};

/// Longer than any job takes: a worker that has not acknowledged it by then is lost.
const LOST_AFTER: Duration = Duration::from_millis(50);

fn text(entry: &StreamEntry) -> String {
    String::from_utf8_lossy(entry.get("job").unwrap_or_default()).into_owned()
}

/// A worker that acknowledges what it has done; how many jobs that was.
fn work(store: &Store, name: &str) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let workers = store.stream("jobs").group("workers");
    let mut done = 0;
    loop {
        let jobs = workers.read(name, 100)?;
        if jobs.is_empty() {
            return Ok(done);
        }
        let ids: Vec<StreamId> = jobs.iter().map(|job| job.id).collect();
        done += workers.ack(&ids)?;
    }
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from);
    let dir = dir.unwrap_or_else(|| std::env::temp_dir().join("stillframe-streams"));
    let store = Store::open(&dir, Options { worker_count: 3, ..Options::default() })?;

    // What an earlier run has left goes. The group then gets what is appended from now on.
    let jobs = store.stream("jobs");
    jobs.destroy_group("workers")?;
    jobs.trim(&Trim::max_len(0))?;
    jobs.create_group("workers", &GroupStart::LAST)?;
    let last_million = AddRule::trimmed(Trim::max_len(1_000_000).approximately());
    for number in 0..20_000 {
        jobs.append_with(NewId::Any, &[("job", format!("job {number}"))], &last_million)?;
    }
    println!("{} jobs wait", jobs.group("workers").info()?.lag.unwrap_or_default());

    // Cora takes five jobs, and is never heard of again.
    let workers = jobs.group("workers");
    let taken = workers.read("cora", 5)?;
    println!("cora takes {:?}", taken.iter().map(text).collect::<Vec<_>>());

    // Threads share the rest: each job goes to one of them.
    let done = std::thread::scope(|scope| {
        let threads = ["ada", "bob"].map(|name| scope.spawn(|| work(&store, name)));
        threads.map(|thread| thread.join().unwrap_or_else(|_| Err("a worker has panicked".into())))
    });
    println!("ada and bob have done {} jobs", done.into_iter().sum::<Result<u64, _>>()?);
    let pending = workers.pending()?;
    println!("{} jobs are pending, from {} to {}", pending.count, pending.first, pending.last);

    // What is pending, and with which worker, is in checkpoints.
    println!("checkpoint: {} bytes", store.checkpoint()?.bytes_written);
    drop((jobs, workers));
    store.close()?;
    let store = Store::open(&dir, Options::default())?;
    let (jobs, workers) = (store.stream("jobs"), store.stream("jobs").group("workers"));

    // Another worker takes over what has been pending for too long.
    std::thread::sleep(LOST_AFTER);
    let mut from = StreamId::MIN;
    loop {
        let (claimed, rest) = workers.auto_claim("ada", from, 2, LOST_AFTER)?;
        println!("ada takes over {:?}", claimed.iter().map(text).collect::<Vec<_>>());
        workers.ack(&claimed.iter().map(|job| job.id).collect::<Vec<_>>())?;
        from = rest.next;
        if from == StreamId::MIN {
            break;
        }
    }
    workers.remove_consumer("cora")?;
    for consumer in workers.consumers()? {
        println!("{} has {} jobs", String::from_utf8_lossy(&consumer.name), consumer.pending_count);
    }

    // Jobs that are done stay readable until they are trimmed.
    let newest = jobs.rev(.., 1)?;
    println!("the newest of {} is {:?}", jobs.len()?, newest.first().map(text).unwrap_or_default());
    Ok(())
}
