//! `checkpoint`: what a checkpoint writes after few fields of a large hash were changed. Only a server with incremental
//! checkpoints has figures of them.

use serde_json::{json, Value};

use super::args::Part;
use super::report::Report;
use super::setting::Setting;
use crate::bar::Bar;
use crate::commands::fill;
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::collections::{Data, Kind, Operation, Operations};
use crate::load::Stop;
use crate::output::{human_bytes, human_ns, markdown_table};
use crate::peer::{Peer, Server};
use crate::resp::{info_number, Client};

const MOST_TIMES: f64 = 1.3;
const PAGE_BYTES: f64 = 4096.0;

/// By the server's own counters.
struct Checkpoint {
    peer: String,
    /// 0: the full one, before any change.
    number: usize,
    change_count: u64,
    page_count: f64,
    written_bytes: f64,
    save_ns: u64,
}

pub fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut all = Vec::new();
    for peer in setting.stillframes() {
        match measure(setting, peer) {
            Ok(checkpoints) => all.extend(checkpoints),
            Err(error) => report.fail(Part::Checkpoint, &peer.name, "a checkpoint of a hash", &error),
        }
    }
    for checkpoint in &all {
        report.record(Part::Checkpoint, checkpoint.json());
    }
    if let Some(judged) = setting.judged() {
        let own = all.iter().filter(|one| one.peer == judged && one.change_count > 0);
        let most = own.map(Checkpoint::times).reduce(f64::max);
        let what =
            format!("checkpoint after {} changed fields: written over touched pages", setting.args.changes);
        report.bar(Bar::at_most(what, MOST_TIMES, " x", most));
    }
    report.section("A checkpoint", &table(setting, &all));
    Ok(())
}

fn measure(setting: &Setting, peer: &Peer) -> Result<Vec<Checkpoint>> {
    let data = Data::one(Kind::Hash, setting.args.checkpoint_fields());
    let server = setting.filled(peer, "checkpoint", data)?;
    let mut client = server.client()?;
    let mut all = vec![checkpoint(&server, &mut client, 0, 0)?];
    for number in 1..=setting.args.rounds {
        change(setting, &server, data, number)?;
        all.push(checkpoint(&server, &mut client, number, setting.args.changes)?);
    }
    setting.stop(server, "checkpoint")?;
    Ok(all)
}

fn change(setting: &Setting, server: &Server, data: Data, number: usize) -> Result<()> {
    let hset = Operation::named("HSET").ok_or_else(|| BenchError::Failed("HSET has no row".to_owned()))?;
    let mut requests = Operations::new(hset, data, setting.args.seed.wrapping_add(number as u64));
    let closed = ClosedLoop { target: server.target.clone(), conn_count: 4, pipeline: 16 };
    let stop = Stop { request_count: Some(setting.args.changes), ..Stop::default() };
    fill::send_all(&closed, &mut requests, stop).map(drop)
}

fn checkpoint(server: &Server, client: &mut Client, number: usize, change_count: u64) -> Result<Checkpoint> {
    let save_ns = server.save(client, || {})?.save_ns();
    let info = client.info("everything")?;
    let field = |name: &str| {
        let missing = || BenchError::Failed(format!("{}: INFO stillframe has no {name}", server.name));
        info_number(&info, name).ok_or_else(missing)
    };
    Ok(Checkpoint {
        peer: server.name.clone(),
        number,
        change_count,
        page_count: field("last_checkpoint_pages_changed")?,
        written_bytes: field("last_checkpoint_bytes_written")?,
        save_ns,
    })
}

impl Checkpoint {
    fn times(&self) -> f64 {
        self.written_bytes / (self.page_count * PAGE_BYTES).max(1.0)
    }

    fn json(&self) -> Value {
        json!({
            "peer": self.peer, "checkpoint": self.number, "changed_fields": self.change_count,
            "pages_changed": self.page_count, "bytes_written": self.written_bytes, "times": self.times(),
            "save_s": self.save_ns as f64 / 1e9,
        })
    }
}

fn table(setting: &Setting, all: &[Checkpoint]) -> String {
    let row = |one: &Checkpoint| {
        let changed =
            if one.number == 0 { "all: the first".to_owned() } else { one.change_count.to_string() };
        vec![
            one.peer.clone(),
            changed,
            format!("{:.0}", one.page_count),
            human_bytes(one.written_bytes),
            format!("{:.2} x", one.times()),
            human_ns(one.save_ns as f64),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    format!(
        "Random fields of one hash of {} fields get new values, then a checkpoint is taken; pages and bytes are those of INFO. \
         Redis and Valkey write everything each time.\n\n{}",
        setting.args.checkpoint_fields(),
        markdown_table(
            &["server", "fields changed", "pages touched", "written", "written / touched", "time"],
            &rows
        )
    )
}
