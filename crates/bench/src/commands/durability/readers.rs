//! What readers pay for writers that wait for the disk.

use serde_json::json;

use super::setting::{percentile_ns, Setting};
use crate::bar::Bar;
use crate::error::Result;
use crate::output::{human_ns, markdown_table};
use crate::peer::{PeerKind, Server};
use crate::section::{row, Section};
use crate::stats::median;

const BAR: f64 = 1.2;
/// SETs, and GETs, a second: the same work whatever the policy is.
const RATE: f64 = 2000.0;
const POLICIES: [&str; 2] = ["everysec", "always"];

pub fn measure(setting: &Setting) -> Result<Section> {
    let disk = setting.slow_disk()?;
    let mut servers = Vec::new();
    for peer in &setting.peers {
        let server = setting.start(peer, &disk.path().join(&peer.name), Some("everysec"))?;
        setting.fill(&server)?;
        servers.push(server);
    }
    let mut p99_ns = vec![[Vec::new(), Vec::new()]; servers.len()];
    for round in 0..setting.rounds {
        for (server, of_server) in servers.iter().zip(&mut p99_ns) {
            for (policy, of_policy) in POLICIES.iter().zip(of_server) {
                server.client()?.call(&["CONFIG", "SET", "appendfsync", policy])?;
                let p99_ns = get_p99_ns(setting, server, round)?;
                eprintln!("  readers round {}: {} {policy} {}", round + 1, server.name, human_ns(p99_ns));
                of_policy.push(p99_ns);
            }
        }
    }
    servers.into_iter().try_for_each(Server::stop_without_save)?;
    let (mut rows, mut bars, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for (peer, of) in setting.peers.iter().zip(&p99_ns) {
        let ratio = median(&of[1]) / median(&of[0]);
        let mut line = row(&peer.name, of, human_ns);
        line.push(format!("{ratio:.2}"));
        rows.push(line);
        records
            .push(json!({ "part": "readers", "peer": peer.name, "everysec_ns": of[0], "always_ns": of[1] }));
        if peer.kind == PeerKind::Stillframe {
            let what = format!("GET p99 beside 8 writers, always to everysec: {}", peer.name);
            bars.push(Bar::at_most(what, BAR, " x", Some(ratio)));
        }
    }
    let title = format!("GET beside 8 writers, {RATE} SET/s and as many GET/s, p99; a sync takes 1 ms");
    Ok(Section {
        title,
        table: markdown_table(&["server", "everysec", "always", "ratio"], &rows),
        bars,
        records,
    })
}

/// From when a GET was due.
fn get_p99_ns(setting: &Setting, server: &Server, round: usize) -> Result<f64> {
    server.pin();
    let (_, read) = setting.sets_beside_gets(server, RATE, round, setting.seconds)?;
    Ok(percentile_ns(&read, 99.0))
}
