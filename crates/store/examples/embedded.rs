//! The store as a library: open, put, get, delete, scan, a view, a checkpoint, close, and open again.
//!
//! `cargo run --release -p stillframe-store --example embedded -- <directory>`

use std::error::Error;
use std::path::PathBuf;

use stillframe_store::{DbId, Deadline, NewValue, Options, SaveError, Store};

const DB: DbId = DbId(0);

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from);
    let dir = dir.unwrap_or_else(|| std::env::temp_dir().join("stillframe-embedded"));
    let store = Store::open(&dir, Options::default())?;
    println!("{}: {} keys from the last checkpoint", dir.display(), store.db_stats(DB).key_count);

    // One worker a thread. It takes part in the barrier of a cut, so it goes before the checkpoint below.
    let mut worker = store.worker();
    for number in 0..1000 {
        let (bytes, value) = (format!("key:{number}"), format!("value {number}"));
        let key = worker.key(bytes.as_bytes());
        worker.set(DB, &key, NewValue::Bytes { bytes: value.as_bytes(), raw: false }, Deadline::Clear)?;
    }
    let seven = worker.key(b"key:7");
    let value = worker.get(DB, &seven, |value| value.to_vec())?;
    println!("key:7 is {:?}", value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));

    let mut cursor = 0;
    let mut key_count = 0;
    loop {
        cursor = worker.database(DB).scan(cursor, 100, |_key, _info| key_count += 1)?;
        if cursor == 0 {
            break;
        }
    }
    println!("a scan finds {key_count} keys");

    // A view stays as it is while the store goes on. Taking it waits for running workers: this one is idle.
    let view = worker.idle(|| store.view())?;
    worker.remove(DB, &seven)?;
    let mut in_view = 0;
    view.for_each(|_entry| {
        in_view += 1;
        Ok::<(), SaveError>(())
    })?;
    println!("after a delete the store has {} keys, the view {in_view}", store.db_stats(DB).key_count);
    drop(view);
    drop(worker);

    // What a checkpoint has saved survives a crash; nothing takes one by itself while the store is open.
    let report = store.checkpoint()?;
    println!("checkpoint: {} bytes in {:?}", report.bytes_written, report.duration);
    let mut worker = store.worker();
    worker.set(DB, &seven, NewValue::Int(7), Deadline::Clear)?;
    drop(worker);
    // Closing saves what came after it. To drop the store does so, too, but has no caller to give an error to.
    store.close()?;

    // A worker waits for the pages that it misses: right after this nothing but the catalog is in memory.
    let store = Store::open(&dir, Options::default())?;
    let mut worker = store.worker();
    let value = worker.get(DB, &seven, |value| value.as_int())?;
    println!("opened again: {} keys, key:7 is {value:?}", store.db_stats(DB).key_count);
    Ok(())
}
