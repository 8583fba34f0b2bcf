//! `--check` and `--salvage`: a page file without a server.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use stillframe_engine::config::Settings;
use stillframe_engine::persistence::write_salvaged;
use stillframe_store::offline::Offline;

/// How often the progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// The data is whole.
const WHOLE: u8 = 0;
/// The file cannot be opened, or the dump not written.
const FAILED: u8 = 1;
/// Some of the data cannot be read.
const DAMAGED: u8 = 2;

/// Reads every page of a page file; says what is damaged.
pub fn check(path: &Path) -> ExitCode {
    let offline = match Offline::open(path, false) {
        Ok(offline) => offline,
        Err(error) => return fail(&error.to_string()),
    };
    println!("Checkpoint {} of '{}'", offline.checkpoint(), path.display());
    if let Some(note) = offline.note() {
        println!("{note}. This costs no data; the next start of a server mends it");
    }
    let mut told = Instant::now();
    let found = offline.check(|done, total| {
        if told.elapsed() > PROGRESS_INTERVAL {
            told = Instant::now();
            eprintln!("{done} of {total} pages");
        }
    });
    found.damage.iter().for_each(|damage| println!("{damage}"));
    println!("{} pages, of which {} are damaged", found.page_count, found.damage.len());
    let is_log_whole = check_log(&offline);
    ExitCode::from(if found.damage.is_empty() && is_log_whole { WHOLE } else { DAMAGED })
}

/// Reads the log that goes with the checkpoint, and says what is in it. False: it cannot be replayed.
fn check_log(offline: &Offline) -> bool {
    match offline.check_log() {
        None => println!("No log goes with the checkpoint: the file has format version 2"),
        Some(Ok(log)) => {
            println!(
                "A log goes with the checkpoint, so the file has format version 3: {} units, {} bytes, from offset {} in segment \
                 {} on",
                log.unit_count, log.byte_count, log.from.offset, log.from.segment
            );
            if log.torn_byte_count > 0 {
                println!(
                    "{} bytes at its end are of a unit that is not whole: a start cuts them off",
                    log.torn_byte_count
                );
            }
        }
        Some(Err(error)) => {
            println!("{error}");
            return false;
        }
    }
    true
}

/// Writes what can be read of a page file into a dump; says what cannot.
pub fn salvage(path: &Path, to: &Path, settings: &Settings) -> ExitCode {
    let offline = match Offline::open(path, true) {
        Ok(offline) => offline,
        Err(error) => return fail(&error.to_string()),
    };
    let mut lost_count = 0;
    if let Some(Ok(log)) =
        offline.check_log().filter(|log| !log.as_ref().is_ok_and(|log| log.unit_count == 0))
    {
        println!(
            "The log has {} units that came after the checkpoint and are not in the dump: start a server to replay them",
            log.unit_count
        );
    }
    if let Some(loss) = offline.loss() {
        lost_count += 1;
        println!("{loss}");
    }
    let result = write_salvaged(&offline, to, settings, &mut |lost| {
        lost_count += 1;
        println!("Lost: {lost}");
    });
    let key_count = match result {
        Ok(key_count) => key_count,
        Err(error) => return fail(&error.to_string()),
    };
    let stats =
        (0..offline.database_count()).map(|db| offline.db_stats(stillframe_store::DbId(db)).key_count);
    println!("{key_count} keys of {} written to '{}'", stats.sum::<u64>(), to.display());
    let _ = std::io::stdout().flush();
    ExitCode::from(if lost_count == 0 { WHOLE } else { DAMAGED })
}

fn fail(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::from(FAILED)
}
