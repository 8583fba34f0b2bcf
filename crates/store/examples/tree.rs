//! Named sorted trees: load, read, walk, a transaction, a checkpoint, and open again.
//!
//! `cargo run --release -p stillframe-store --example tree -- <directory>`

use std::error::Error;
use std::path::PathBuf;

use stillframe_store::{Options, Store, TreeError};

/// Balances are numbers of eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Why a transfer did not happen.
#[derive(thiserror::Error, Debug)]
enum Refused {
    #[error("the balance is too small")]
    Poor,
    #[error(transparent)]
    Tree(#[from] TreeError),
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from);
    let dir = dir.unwrap_or_else(|| std::env::temp_dir().join("stillframe-tree"));
    let store = Store::open(&dir, Options::default())?;

    // One handle a thread and tree. It waits for pages that are not in memory, and lets cuts pass.
    let accounts = store.tree("accounts")?;
    println!("{}: {} accounts from the last checkpoint", dir.display(), accounts.len()?);
    if accounts.is_empty()? {
        let names = (0..10_000u32).map(|number| format!("account:{number:05}"));
        accounts.bulk_load(names.map(|name| (name, 100u64.to_be_bytes())))?;
    }

    // Either both balances change, for every reader and every checkpoint, or none.
    let transfer = |from: &str, to: &str, amount: u64| {
        accounts.transaction(|tx| {
            let [balance_from, balance_to] =
                [tx.get(from)?, tx.get(to)?].map(|b| number(&b.unwrap_or_default()));
            let left = balance_from.checked_sub(amount).ok_or(Refused::Poor)?;
            tx.put(from, left.to_be_bytes())?;
            tx.put(to, (balance_to + amount).to_be_bytes())?;
            Ok::<(), Refused>(())
        })
    };
    println!("a transfer of 30: {:?}", transfer("account:00007", "account:00008", 30));
    println!("one of too much: {:?}", transfer("account:00007", "account:00008", 1_000_000));

    // Groups of lookups overlap their waits; nothing is copied.
    let keys: Vec<String> = (0..100).map(|number| format!("account:{number:05}")).collect();
    let mut sum = 0;
    accounts.get_many_with(&keys, |_, balance| sum += balance.map_or(0, number))?;
    println!("the first hundred have {sum}");

    // Walks go both ways, and go on beside changes.
    for record in accounts.range(&b"account:00005"[..]..&b"account:00009"[..]).rev() {
        let (name, balance) = record?;
        println!("{} has {}", String::from_utf8_lossy(&name), number(&balance));
    }

    let report = store.checkpoint()?;
    println!("checkpoint: {} bytes in {:?}", report.bytes_written, report.duration);
    // What comes after a checkpoint is saved when the last clone, with all handles, has gone.
    accounts.put("account:00000", 0u64.to_be_bytes())?;
    drop(accounts);
    store.close()?;
    Ok(())
}
