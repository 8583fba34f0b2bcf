//! Updates by a server whose data is ten times as large as the pages that it may have in memory: how many a second, against
//! what its disk does with the same reads and writes; and how long one takes, from when it was due.

mod measured;
mod mix;
mod server;

use std::path::Path;

use stillframe_pagepool::PoolBackend;

use self::measured::PageRates;
pub use self::measured::{Keys, Latency, Round, Throughput, Timed, Updates};
use self::mix::{MixFile, Ratio};
use self::server::{Case, Tenth};
use crate::clock::seconds_to_ns;
use crate::error::Result;

/// All rounds.
pub struct Measured {
    /// What the server is and how its disk is read beside it, for the report.
    pub notes: Vec<(String, String)>,
    pub rounds: Vec<Round>,
}

/// # Errors
/// The server does not start, or refuses an update; no space, or an I/O error.
pub fn measure(updates: &Updates, dir: &Path) -> Result<Measured> {
    let (server_dir, disk_dir) = (dir.join("server"), dir.join("disk"));
    let page_count = server::fill(updates, &server_dir)?;
    let disk = MixFile::create(&disk_dir, page_count)?;
    let notes = vec![
        ("updates, server".to_owned(), updates.peer.version()),
        ("updates, disk".to_owned(), disk.description()),
    ];
    let mut rounds = Vec::new();
    for number in 0..updates.rounds {
        for backend in PoolBackend::WITHOUT_MODULE {
            rounds.push(round(updates, backend, &server_dir, &disk, number as u64)?);
        }
    }
    Ok(Measured { notes, rounds })
}

fn round(
    updates: &Updates,
    backend: PoolBackend,
    server_dir: &Path,
    disk: &MixFile,
    number: u64,
) -> Result<Round> {
    eprintln!("updates, round {}, pages by {}", number + 1, backend.name());
    let mut round = Round { number: number + 1, backend: backend.name(), ..Round::default() };
    let server = Tenth::start(updates, backend, server_dir)?;
    for keys in Keys::ALL {
        round.throughputs.push(server.throughput(updates, keys, number)?);
    }
    // Half of what it takes: it is not to fall behind.
    let rate = round.throughputs.first().map_or(1000.0, |uniform| uniform.per_second / 2.0).max(100.0);
    let mut asked = PageRates::default();
    for case in [Case::Resident, Case::ResidentBeside, Case::OnDisk] {
        let (latency, of_case) = server.latency(updates, case, rate, number)?;
        round.latencies.push(latency);
        // The last is what the disk is held against.
        asked = of_case;
    }
    server.stop()?;
    let measured_ns = seconds_to_ns(updates.measured_s);
    for throughput in &mut round.throughputs {
        let Some(ratio) = Ratio::of(throughput.server) else { continue };
        throughput.disk = Some(disk.best_rates(ratio, updates.conn_count, measured_ns)?);
    }
    if let Some(ratio) = Ratio::of(asked) {
        round.latencies.push(disk.latency(ratio, updates.conn_count, asked.reads, measured_ns)?);
    }
    Ok(round)
}
