//! `save`: what a save adds to writes of fields of a large hash.

use serde_json::{json, Value};

use super::args::Part;
use super::report::Report;
use super::setting::{wait, Setting};
use crate::bar::Bar;
use crate::clock::{NS_PER_S, NS_PER_US};
use crate::error::{BenchError, Result};
use crate::load::collections::{Data, Kind, Operation, Operations};
use crate::load::phase::Phase;
use crate::load::LoadReport;
use crate::output::{human_ns, markdown_table};
use crate::peer::{Peer, SaveTimes, Server};
use crate::stats::{median_of, with_range};

const MOST_ADDED_P999_US: f64 = 20.0;
const MOST_ADDED_WORST_US: f64 = 200.0;
/// The name of what is measured on a server that does not save, beside one that does.
const CONTROL: &str = "control";

struct Save {
    peer: String,
    round: usize,
    field_count: u64,
    before: Phase,
    during: Phase,
    /// The generator's own lateness is part of every latency.
    sent_late_max_ns: u64,
    save_ns: u64,
}

pub fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut saves: Vec<Save> = Vec::new();
    for round in 0..setting.args.rounds {
        for peer in &setting.peers {
            match measure(setting, peer, round) {
                Ok(save) => saves.push(save),
                Err(error) => report.fail(Part::Save, &peer.name, "a save under HSET", &error),
            }
        }
        if let Some(peer) = setting.stillframes().next() {
            match control(setting, peer, round) {
                Ok(save) => saves.push(save),
                Err(error) => report.fail(Part::Save, CONTROL, "HSET beside a save", &error),
            }
        }
    }
    for save in &saves {
        report.record(Part::Save, save.json());
    }
    if let Some(judged) = setting.judged() {
        let added = |of: fn(&Save) -> f64| {
            let own = saves.iter().filter(|save| save.peer == judged);
            median_of(own.map(of)).map(|ns| ns / NS_PER_US as f64)
        };
        let what = |which| format!("HSET of a large hash: {which} that a save adds");
        report.bar(Bar::at_most(what("p99.9"), MOST_ADDED_P999_US, " us", added(Save::added_p999_ns)));
        report.bar(Bar::at_most(what("worst"), MOST_ADDED_WORST_US, " us", added(Save::added_max_ns)));
    }
    report.section("A save", &table(setting, &saves));
    Ok(())
}

fn measure(setting: &Setting, peer: &Peer, round: usize) -> Result<Save> {
    let server = with_fields(setting, peer, &name(round))?;
    let (load, times) = setting.paced(&server, requests(setting, round)?, saved(setting, &server))?;
    setting.stop(server, &name(round))?;
    Ok(Save::of(setting, &peer.name, round, &load, &times))
}

/// What a save adds that is not the snapshot's: the same load on an equal server that does not save, while another one does.
/// Processors, their caches and memory's bandwidth are shared as before.
fn control(setting: &Setting, peer: &Peer, round: usize) -> Result<Save> {
    let (saving_name, loaded_name) = (name(round), format!("control-{round}"));
    let saving = with_fields(setting, peer, &saving_name)?;
    let loaded = with_fields(setting, peer, &loaded_name)?;
    let (load, times) = setting.paced(&loaded, requests(setting, round)?, saved(setting, &saving))?;
    setting.stop(saving, &saving_name)?;
    setting.stop(loaded, &loaded_name)?;
    Ok(Save::of(setting, CONTROL, round, &load, &times))
}

fn name(round: usize) -> String {
    format!("save-{round}")
}

fn fields(setting: &Setting) -> Data {
    Data::one(Kind::Hash, setting.args.save_fields())
}

fn with_fields(setting: &Setting, peer: &Peer, name: &str) -> Result<Server> {
    let server = setting.filled(peer, name, fields(setting))?;
    // Dirty pages of the fill, rehashing and what the allocator gives back are no part of it.
    wait(setting.before_ns().min(NS_PER_S), &|| false)?;
    Ok(server)
}

fn requests(setting: &Setting, round: usize) -> Result<Operations> {
    let hset = Operation::named("HSET").ok_or_else(|| BenchError::Failed("HSET has no row".to_owned()))?;
    Ok(Operations::new(hset, fields(setting), setting.args.seed.wrapping_add(round as u64)))
}

/// What goes on beside the load: a while of nothing, then a save.
fn saved<'s>(
    setting: &'s Setting,
    server: &'s Server,
) -> impl FnOnce(&dyn Fn() -> bool) -> Result<SaveTimes> + 's {
    move |has_ended| {
        let mut client = server.client()?;
        // For the caches of both sides to see the load.
        wait(setting.before_ns() / 4, has_ended)?;
        wait(setting.before_ns(), has_ended)?;
        let times = server.save(&mut client, || {})?;
        wait(setting.before_ns() / 4, has_ended)?;
        Ok(times)
    }
}

impl Save {
    fn of(setting: &Setting, peer: &str, round: usize, load: &LoadReport, times: &SaveTimes) -> Save {
        let (samples, before_ns) = (load.recording.samples(), times.begin_ns - setting.before_ns());
        Save {
            peer: peer.to_owned(),
            round,
            field_count: setting.args.save_fields(),
            before: Phase::of(samples, before_ns, times.begin_ns),
            during: Phase::of(samples, times.begin_ns, times.end_ns),
            sent_late_max_ns: load.lateness.as_ref().map_or(0, |lateness| lateness.histogram.max()),
            save_ns: times.save_ns(),
        }
    }

    fn added_mean_ns(&self) -> f64 {
        self.during.mean_ns - self.before.mean_ns
    }

    fn added_p999_ns(&self) -> f64 {
        self.during.p999_ns as f64 - self.before.p999_ns as f64
    }

    fn added_max_ns(&self) -> f64 {
        self.during.max_ns as f64 - self.before.max_ns as f64
    }

    fn json(&self) -> Value {
        json!({
            "peer": self.peer, "round": self.round + 1, "fields": self.field_count, "save_s": self.save_ns as f64 / 1e9,
            "before": self.before.json(), "during": self.during.json(),
            "sent_late_max_us": self.sent_late_max_ns as f64 / 1e3,
        })
    }
}

type Measure = (&'static str, fn(&Save) -> f64);

const MEASURES: [Measure; 12] = [
    ("mean before", |s| s.before.mean_ns),
    ("mean during", |s| s.during.mean_ns),
    ("- added", Save::added_mean_ns),
    ("p99 before", |s| s.before.p99_ns as f64),
    ("p99 during", |s| s.during.p99_ns as f64),
    ("p99.9 before", |s| s.before.p999_ns as f64),
    ("p99.9 during", |s| s.during.p999_ns as f64),
    ("- added", Save::added_p999_ns),
    ("worst before", |s| s.before.max_ns as f64),
    ("worst during", |s| s.during.max_ns as f64),
    ("- added", Save::added_max_ns),
    ("time of the save", |s| s.save_ns as f64),
];

fn table(setting: &Setting, saves: &[Save]) -> String {
    let signed = |ns: f64| if ns < 0.0 { format!("-{}", human_ns(-ns)) } else { human_ns(ns) };
    let mut header = vec!["median over saves (range)"];
    let peers: Vec<&str> = setting.peers.iter().map(|peer| &peer.name[..]).chain([CONTROL]).collect();
    header.extend(&peers);
    let row = |(name, of): &Measure| {
        let cell = |peer: &&str| {
            let values: Vec<f64> = saves.iter().filter(|save| save.peer == *peer).map(of).collect();
            with_range(&values, signed)
        };
        std::iter::once((*name).to_owned()).chain(peers.iter().map(cell)).collect()
    };
    let rows: Vec<Vec<String>> = MEASURES.iter().map(row).collect();
    let late = saves.iter().map(|save| save.sent_late_max_ns).max().unwrap_or(0);
    format!(
        "{} HSET a second on random fields of one hash of {} fields, from the time when each was due; the generator was at \
         most {} late. The control is the same load on a Stillframe that does not save, while another one does: what that adds \
         is the machine's.\n\n{}",
        setting.args.rate,
        setting.args.save_fields(),
        human_ns(late as f64),
        markdown_table(&header, &rows)
    )
}
