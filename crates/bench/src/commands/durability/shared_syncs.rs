//! SETs of many clients that each wait for their own to be durable: how many share a sync.

use serde_json::{json, Value};

use super::setting::{closed, Setting, CONNS};
use crate::bar::Bar;
use crate::error::Result;
use crate::output::{markdown_table, thousands};
use crate::peer::{PeerKind, Server};
use crate::resp::info_number;
use crate::section::{row, Section};
use crate::stats::median;

const RATE_BAR: f64 = 2.0;
const UNITS_BAR: f64 = 35.0;

pub fn measure(setting: &Setting) -> Result<Section> {
    let disk = setting.slow_disk()?;
    let (mut rows, mut bars, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for (name, dir) in [("this disk", setting.dir("disk")), ("a sync takes 1 ms", disk.path().to_owned())] {
        let mut servers = Vec::new();
        for peer in &setting.peers {
            servers.push(setting.start(peer, &dir.join(&peer.name), Some("always"))?);
        }
        let mut per_second = vec![Vec::new(); servers.len()];
        for round in 0..setting.rounds {
            for (server, of_server) in servers.iter().zip(&mut per_second) {
                of_server.push(sets_per_second(setting, server, round)?);
            }
        }
        let redis = setting.redis();
        for (at, (peer, server)) in setting.peers.iter().zip(&servers).enumerate() {
            let units = units_per_sync(server)?;
            let mut line = vec![name.to_owned()];
            line.extend(row(&peer.name, &per_second[at..=at], |rate| thousands(rate as u64)));
            line.push(units.map_or("-".to_owned(), |units| format!("{units:.1}")));
            rows.push(line);
            records.push(record(name, &peer.name, &per_second[at], units));
            if peer.kind != PeerKind::Stillframe {
                continue;
            }
            if let Some(redis) = redis {
                let ratio = median(&per_second[at]) / median(&per_second[redis]);
                let what = format!("SET/s with always to Redis's, {name}: {}", peer.name);
                bars.push(Bar::at_least(what, RATE_BAR, " x", Some(ratio)));
            }
            if dir == disk.path() {
                let what = format!("units a sync, {CONNS} clients, {name}: {}", peer.name);
                bars.push(Bar::at_least(what, UNITS_BAR, "", units));
            }
        }
        servers.into_iter().try_for_each(Server::stop_without_save)?;
    }
    let title = format!("SETs of {CONNS} clients, `appendfsync always`");
    let table = markdown_table(&["disk", "server", "SET/s", "units a sync"], &rows);
    Ok(Section { title, table, bars, records })
}

fn record(disk: &str, peer: &str, per_second: &[f64], units: Option<f64>) -> Value {
    json!({
        "part": "shared-syncs", "disk": disk, "peer": peer, "sets_per_second": per_second,
        "units_per_sync": units,
    })
}

fn sets_per_second(setting: &Setting, server: &Server, round: usize) -> Result<f64> {
    server.pin();
    let report = closed(server, (CONNS, 1), &mut setting.sets(round)?, setting.seconds)?;
    let rate = report.replies_per_second();
    eprintln!("  shared syncs round {}: {} {} SET/s", round + 1, server.name, thousands(rate as u64));
    Ok(rate)
}

/// Of a server that tells.
fn units_per_sync(server: &Server) -> Result<Option<f64>> {
    Ok(info_number(&server.client()?.info("everything")?, "log_units_per_sync"))
}
