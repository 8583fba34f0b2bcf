//! One client that waits for each SET to be durable, against what the disk itself takes for a sync.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::json;

use super::setting::{closed, percentile_ns, Setting};
use crate::bar::Bar;
use crate::clock::{now_ns, seconds_to_ns};
use crate::error::{Context, Result};
use crate::output::{human_ns, markdown_table};
use crate::peer::{PeerKind, Server};
use crate::section::{row, Section};
use crate::stats::{median, percentile};

const BAR: f64 = 1.15;
const PAGE_BYTES: usize = 4096;
/// Of the file that is written over and over.
const FILE_PAGES: usize = 1024;

pub fn measure(setting: &Setting) -> Result<Section> {
    let mut servers = Vec::new();
    for peer in &setting.peers {
        let dir = setting.dir(&format!("alone-{}", peer.name));
        servers.push(setting.start(peer, &dir, Some("always"))?);
    }
    let mut p50_ns = vec![Vec::new(); 1 + servers.len()];
    for round in 0..setting.rounds {
        p50_ns[0].push(sync_ns(&setting.dir("sync"), setting.seconds)?);
        for (server, of_server) in servers.iter().zip(&mut p50_ns[1..]) {
            server.pin();
            let report = closed(server, (1, 1), &mut setting.sets(round)?, setting.seconds)?;
            of_server.push(percentile_ns(&report, 50.0));
        }
        let shown: Vec<_> = p50_ns.iter().filter_map(|of| of.last()).map(|ns| human_ns(*ns)).collect();
        eprintln!("  alone round {}: {}", round + 1, shown.join(", "));
    }
    servers.into_iter().try_for_each(Server::stop_without_save)?;
    let names = std::iter::once("the disk's own sync of 4 KB").chain(setting.peers.iter().map(|p| &*p.name));
    let rows: Vec<_> =
        names.zip(&p50_ns).map(|(name, of)| row(name, std::slice::from_ref(of), human_ns)).collect();
    let mut bars = Vec::new();
    for (peer, of) in setting.peers.iter().zip(&p50_ns[1..]) {
        if peer.kind == PeerKind::Stillframe {
            let what = format!("one client with always to the disk's own sync, p50: {}", peer.name);
            bars.push(Bar::at_most(what, BAR, " x", Some(median(of) / median(&p50_ns[0]))));
        }
    }
    let records = rows
        .iter()
        .zip(&p50_ns)
        .map(|(row, of)| json!({ "part": "alone", "what": row[0], "p50_ns": of }))
        .collect();
    let title = "One client, `appendfsync always`, p50 of a SET".to_owned();
    Ok(Section { title, table: markdown_table(&["", "p50"], &rows), bars, records })
}

/// The median time of a write of a page and its sync, in a file that has its blocks already.
fn sync_ns(path: &Path, seconds: f64) -> Result<f64> {
    let what = || format!("write {}", path.display());
    let file = File::create(path).context(what)?;
    let page = [1u8; PAGE_BYTES];
    for number in 0..FILE_PAGES {
        file.write_all_at(&page, (number * PAGE_BYTES) as u64).context(what)?;
    }
    file.sync_all().context(what)?;
    let (until_ns, mut took_ns) = (now_ns() + seconds_to_ns(seconds), Vec::new());
    while now_ns() < until_ns {
        let began_ns = now_ns();
        file.write_all_at(&page, (took_ns.len() % FILE_PAGES * PAGE_BYTES) as u64).context(what)?;
        file.sync_data().context(what)?;
        took_ns.push(now_ns() - began_ns);
    }
    Ok(percentile(&mut took_ns, 50.0) as f64)
}
