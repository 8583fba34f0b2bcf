//! A disk that syncs nothing for three seconds, under a log that is synced once a second.

use std::time::Duration;

use serde_json::json;

use super::setting::Setting;
use crate::bar::Bar;
use crate::error::Result;
use crate::load::LoadReport;
use crate::output::{human_ns, markdown_table};
use crate::peer::{PeerKind, Server};
use crate::section::{row, Section};
use crate::slow_disk::SlowDisk;
use crate::stats::median;

/// SETs, and GETs, a second.
const RATE: f64 = 2000.0;
const BEFORE: Duration = Duration::from_millis(1500);
const STALL: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_millis(1500);
/// What a GET may take that has nothing to do with the disk, in ms: the machine's own noise.
const GET_BAR_MS: f64 = 20.0;
/// What was written in the second before the stall is not durable either, and two seconds are what may be lost.
const SET_BAR_MS: f64 = 2000.0;

pub fn measure(setting: &Setting) -> Result<Section> {
    let disk = setting.slow_disk()?;
    let mut worst_ns = vec![[Vec::new(), Vec::new()]; setting.peers.len()];
    for round in 0..setting.rounds {
        for (peer, of_peer) in setting.peers.iter().zip(&mut worst_ns) {
            let dir = disk.path().join(format!("{}-{round}", peer.name));
            let server = setting.start(peer, &dir, Some("everysec"))?;
            setting.fill(&server)?;
            let (set_ns, get_ns) = worst_ns_of(setting, &server, &disk, round)?;
            let shown = (human_ns(get_ns), human_ns(set_ns));
            eprintln!("  stall round {}: {} GET {} SET {}", round + 1, peer.name, shown.0, shown.1);
            of_peer[0].push(get_ns);
            of_peer[1].push(set_ns);
            server.stop_without_save()?;
        }
    }
    let (mut rows, mut bars, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for (peer, of) in setting.peers.iter().zip(&worst_ns) {
        rows.push(row(&peer.name, of, human_ns));
        records.push(json!({ "part": "stall", "peer": peer.name, "get_ns": of[0], "set_ns": of[1] }));
        if peer.kind == PeerKind::Stillframe {
            for (of, command, bar_ms) in [(&of[0], "GET", GET_BAR_MS), (&of[1], "SET", SET_BAR_MS)] {
                let what = format!("longest {command} while the disk stands still for 3 s: {}", peer.name);
                bars.push(Bar::at_most(what, bar_ms, " ms", Some(median(of) / 1e6)));
            }
        }
    }
    let title =
        format!("The disk syncs nothing for 3 s, `everysec`, {RATE} SET/s and as many GET/s: the longest");
    Ok(Section { title, table: markdown_table(&["server", "GET", "SET"], &rows), bars, records })
}

/// The longest SET and the longest GET, each from when it was due.
fn worst_ns_of(setting: &Setting, server: &Server, disk: &SlowDisk, round: usize) -> Result<(f64, f64)> {
    server.pin();
    let seconds = (BEFORE + STALL + AFTER).as_secs_f64();
    let (written, read) = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(BEFORE);
            disk.stall(STALL);
        });
        setting.sets_beside_gets(server, RATE, round, seconds)
    })?;
    let longest = |report: LoadReport| report.recording.histogram.max() as f64;
    Ok((longest(written), longest(read)))
}
