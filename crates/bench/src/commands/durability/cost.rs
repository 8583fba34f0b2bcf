//! CPU time a SET, with a log that is synced once a second against none.

use serde_json::json;

use super::setting::{closed, Setting, CONNS, PIPELINE};
use crate::bar::Bar;
use crate::error::Result;
use crate::output::{human_ns, markdown_table};
use crate::peer::{PeerKind, Server};
use crate::section::{row, Section};
use crate::stats::median;

const BAR: f64 = 1.2;

pub fn measure(setting: &Setting) -> Result<Section> {
    let mut servers = Vec::new();
    for peer in &setting.peers {
        for (name, appendfsync) in [("off", None), ("on", Some("everysec"))] {
            let dir = setting.dir(&format!("cost-{}-{name}", peer.name));
            servers.push(setting.start(peer, &dir, appendfsync)?);
        }
    }
    let mut cpu_ns = vec![Vec::new(); servers.len()];
    for round in 0..setting.rounds {
        for (server, of_server) in servers.iter().zip(&mut cpu_ns) {
            of_server.push(cpu_ns_per_set(setting, server, round)?);
        }
    }
    servers.into_iter().try_for_each(Server::stop_without_save)?;
    let (mut rows, mut records, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for (peer, pair) in setting.peers.iter().zip(cpu_ns.chunks(2)) {
        let ratio = median(&pair[1]) / median(&pair[0]);
        let mut line = row(&peer.name, pair, human_ns);
        line.push(format!("{ratio:.2}"));
        rows.push(line);
        ratios.push((peer, ratio));
        records.push(json!({ "part": "cost", "peer": peer.name, "off_ns": pair[0], "everysec_ns": pair[1] }));
    }
    let of_redis = ratios.iter().find(|(peer, _)| peer.kind == PeerKind::Redis).map(|(_, ratio)| *ratio);
    let mut bars = Vec::new();
    for (peer, ratio) in ratios.iter().filter(|(peer, _)| peer.kind == PeerKind::Stillframe) {
        let limit = of_redis.map_or(BAR, |of_redis| of_redis.min(BAR));
        let what = format!("CPU a SET, everysec against no log, and Redis's ratio at most: {}", peer.name);
        bars.push(Bar::at_most(what, limit, " x", Some(*ratio)));
    }
    let title = format!("CPU time a SET, {CONNS} clients with {PIPELINE} at a time");
    let table = markdown_table(&["server", "no log", "everysec", "ratio"], &rows);
    Ok(Section { title, table, bars, records })
}

fn cpu_ns_per_set(setting: &Setting, server: &Server, round: usize) -> Result<f64> {
    server.pin();
    let mut sets = setting.sets(round)?;
    closed(server, (CONNS, PIPELINE), &mut sets, setting.seconds / 10.0)?;
    let before_ns = server.cpu_time_ns();
    let report = closed(server, (CONNS, PIPELINE), &mut sets, setting.seconds)?;
    let cpu_ns = (server.cpu_time_ns() - before_ns) as f64 / report.replies.max(1) as f64;
    eprintln!("  cost round {}: {} {}", round + 1, server.name, human_ns(cpu_ns));
    Ok(cpu_ns)
}
