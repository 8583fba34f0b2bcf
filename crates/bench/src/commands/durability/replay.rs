//! How fast a start executes what is in the log.

use std::time::Duration;

use serde_json::json;

use super::setting::{send_all, Setting};
use crate::bar::Bar;
use crate::clock::{now_ns, NS_PER_S};
use crate::error::{BenchError, Result};
use crate::output::{human_ns, markdown_table, thousands};
use crate::peer::{PeerKind, Server};
use crate::resp::Reply;
use crate::section::{row, Section};
use crate::stats::median;

const BAR: f64 = 3.0;
/// After which everything that was answered is in the log.
const SYNCED_AFTER: Duration = Duration::from_millis(2500);

pub fn measure(setting: &Setting) -> Result<Section> {
    let mut took_ns = vec![Vec::new(); setting.peers.len()];
    for (peer, of_peer) in setting.peers.iter().zip(&mut took_ns) {
        let dir = setting.dir(&format!("replay-{}", peer.name));
        let mut server = setting.start(peer, &dir, Some("everysec"))?;
        send_all(&server, &mut setting.sets(0)?, setting.commands)?;
        std::thread::sleep(SYNCED_AFTER);
        let keys = key_count(&server)?;
        for round in 0..setting.rounds {
            // Killed.
            drop(server);
            let began_ns = now_ns();
            server = setting.start(peer, &dir, Some("everysec"))?;
            of_peer.push((now_ns() - began_ns) as f64);
            eprintln!("  replay round {}: {} {}", round + 1, peer.name, human_ns(of_peer[of_peer.len() - 1]));
            if key_count(&server)? != keys {
                return Err(BenchError::Failed(format!("{} has not replayed all of its log", peer.name)));
            }
        }
        server.stop_without_save()?;
    }
    let per_second = |ns: f64| setting.commands as f64 * NS_PER_S as f64 / ns;
    let (mut rows, mut bars, mut records) = (Vec::new(), Vec::new(), Vec::new());
    let redis = setting.redis();
    for (at, peer) in setting.peers.iter().enumerate() {
        let mut line = row(&peer.name, &took_ns[at..=at], human_ns);
        line.push(thousands(per_second(median(&took_ns[at])) as u64));
        rows.push(line);
        records.push(json!({
            "part": "replay", "peer": peer.name, "commands": setting.commands, "start_ns": took_ns[at],
        }));
        if let (PeerKind::Stillframe, Some(redis)) = (peer.kind, redis) {
            let what = format!("commands a second that a start replays, to Redis's: {}", peer.name);
            let ratio = median(&took_ns[redis]) / median(&took_ns[at]);
            bars.push(Bar::at_least(what, BAR, " x", Some(ratio)));
        }
    }
    let title = format!("A start after `kill -9` with {} SETs in the log", thousands(setting.commands));
    Ok(Section {
        title,
        table: markdown_table(&["server", "start", "commands a second"], &rows),
        bars,
        records,
    })
}

fn key_count(server: &Server) -> Result<i64> {
    match server.client()?.call(&["DBSIZE"])? {
        Reply::Int(count) => Ok(count),
        reply => Err(BenchError::Failed(format!("DBSIZE was answered with {reply:?}"))),
    }
}
