//! Bytes an entry, a pending entry, a stream of three entries.

use serde_json::json;

use super::requests::{Add, Deliver, Shape};
use super::setting::{send, Setting, PIPELINE};
use crate::clock::NS_PER_S;
use crate::commands::memory::settled_pss_bytes;
use crate::error::Result;
use crate::load::Requests;
use crate::output::markdown_table;
use crate::peer::Server;
use crate::section::Section;

/// What is measured, and the bar.
const WHAT: [(&str, f64); 4] = [
    ("an entry of a field with 10 B", 0.7),
    ("an entry of 5 fields with 8 B, names of 8 B", 0.7),
    ("a pending entry, beside the entry", 0.35),
    ("a stream of three entries", 0.8),
];
const FILL_SECONDS: f64 = 3600.0;

pub fn measure(setting: &Setting) -> Result<Section> {
    // Each has a server of its own: what the one before has left is no room for what comes.
    let mut columns = vec![Vec::new(); setting.peers.len()];
    for at in 0..WHAT.len() {
        let servers = setting.start_all(&format!("memory-{at}"))?;
        for (server, column) in servers.iter().zip(&mut columns) {
            column.push(bytes_of(setting, server, at)?);
        }
        servers.into_iter().try_for_each(Server::stop_without_save)?;
    }
    let (mut rows, mut bars, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (what, bar)) in WHAT.into_iter().enumerate() {
        let of_peers: Vec<f64> = columns.iter().map(|column| column[at]).collect();
        let mut row = vec![what.to_owned()];
        row.extend(of_peers.iter().map(|bytes| format!("{bytes:.1} B")));
        rows.push(row);
        bars.extend(setting.bars(&format!("memory of {what}"), bar, &of_peers));
        for (peer, bytes) in setting.peers.iter().zip(&of_peers) {
            records.push(json!({ "part": "memory", "what": what, "peer": peer.name, "bytes": bytes }));
        }
    }
    let mut header = vec![""];
    header.extend(setting.peers.iter().map(|peer| peer.name.as_str()));
    let title = "Memory: what the proportional set size grows by, over how many there are".to_owned();
    Ok(Section { title, table: markdown_table(&header, &rows), bars, records })
}

/// The line of [`WHAT`], in bytes of one.
fn bytes_of(setting: &Setting, server: &Server, at: usize) -> Result<f64> {
    let count = setting.entry_count;
    match at {
        0 => growth(server, count, |count| Add::of_shape(Shape::One, count)),
        1 => growth(server, count, |count| Add::of_shape(Shape::Five, count)),
        2 => {
            send(server, (1, PIPELINE), &mut Add::of_shape(Shape::One, 0..2 * count), FILL_SECONDS)?;
            server.client()?.call(&["XGROUP", "CREATE", "stream", "group", "0"])?;
            growth(server, count, Deliver::of)
        }
        _ => growth(server, count / 10, Add::threes),
    }
}

/// Bytes that the second half of `2 * count` takes, over `count`: what a server has taken ahead, or needs once, does not count.
fn growth<R: Requests>(
    server: &Server,
    count: u64,
    requests: impl Fn(std::ops::Range<u64>) -> R,
) -> Result<f64> {
    send(server, (1, PIPELINE), &mut requests(0..count), FILL_SECONDS)?;
    let before = settled_pss_bytes(server, NS_PER_S / 2);
    send(server, (1, PIPELINE), &mut requests(count..2 * count), FILL_SECONDS)?;
    Ok((settled_pss_bytes(server, NS_PER_S / 2) as f64 - before as f64) / count as f64)
}
