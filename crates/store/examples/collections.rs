//! Collections: hashes, lists, sets and sorted sets through their handles, beside a checkpoint, and open again.
//!
//! `cargo run --release -p stillframe-store --example collections -- <directory>`

use std::error::Error;
use std::ops::ControlFlow;
use std::path::PathBuf;

use stillframe_store::{Options, ScoredRange, Store};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from);
    let dir = dir.unwrap_or_else(|| std::env::temp_dir().join("stillframe-collections"));
    let store = Store::open(&dir, Options::default())?;

    // Handles cost nothing while they rest: neither checkpoints nor evictions wait for them.
    let user = store.hash("user:7");
    user.set_all(&[(b"name", b"Ada"), (b"language", b"en")])?;
    println!("{} fields, the name is {:?}", user.len()?, user.get_with("name", |name| name.to_vec())?);

    // Both ends of a list, and any place in it, in O(log n).
    let jobs = store.list("jobs");
    for number in 0..100_000 {
        jobs.push_back(format!("job {number}"))?;
    }
    let job = jobs.pop_front()?.unwrap_or_default();
    println!("{} jobs wait, {:?} is done", jobs.len()?, String::from_utf8_lossy(&job));

    // A set says whether something is there, and gives any of its members.
    let seen = store.set("seen");
    for visitor in 0..10_000 {
        seen.add(format!("visitor {}", visitor % 4_000))?;
    }
    let winner = seen.random()?.unwrap_or_default();
    println!("{} visitors were there, as {:?}", seen.len()?, String::from_utf8_lossy(&winner));

    // A sorted set of any size gives ranks and ranges at once.
    let board = store.sorted_set("board");
    for player in 0..50_000u32 {
        board
            .insert(format!("player {player}"), f64::from(player.wrapping_mul(2_654_435_761) % 1_000_000))?;
    }
    println!("player 17 is on place {:?}", board.rank("player 17")?.map(|place| place.rank));
    let best = ScoredRange::Ranks { first: 0, last: 2 };
    board.for_each(
        &best,
        true,
        || (),
        |player, score| {
            println!("{} has {score}", String::from_utf8_lossy(player));
            ControlFlow::Continue(())
        },
    )?;

    // A checkpoint writes the pages that have changed, whatever the size of the collections that they belong to.
    println!("checkpoint: {} bytes", store.checkpoint()?.bytes_written);
    user.set("language", "fr")?;
    println!("and another, after one field: {} bytes", store.checkpoint()?.bytes_written);
    drop((user, jobs, seen, board));
    store.close()?;

    let store = Store::open(&dir, Options::default())?;
    println!("opened again: {} jobs", store.list("jobs").len()?);
    Ok(())
}
