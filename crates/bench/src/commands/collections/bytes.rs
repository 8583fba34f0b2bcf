//! `bytes`: memory an element of one large collection, and a key of small ones, over what the empty server has.

use serde_json::json;

use super::args::Part;
use super::report::Report;
use super::setting::Setting;
use crate::bar::Bar;
use crate::clock::NS_PER_S;
use crate::commands::memory::{settled_pss_bytes, used_bytes};
use crate::error::Result;
use crate::load::collections::{Data, Kind};
use crate::output::markdown_table;
use crate::peer::{Peer, Server};

/// With what an element may take of memory in one large collection.
const LIMITS: [(Kind, f64); 4] =
    [(Kind::Hash, 62.0), (Kind::Set, 36.0), (Kind::SortedSet, 65.0), (Kind::List, 24.0)];
/// For memory to come to rest; there is nothing that has been freed.
const SETTLE_NS: u64 = 2 * NS_PER_S;
const QUICK_SETTLE_NS: u64 = NS_PER_S / 20;

#[derive(Clone, Copy)]
struct Reading {
    used_bytes: f64,
    pss_bytes: f64,
}

/// What an element, or a key, takes.
struct Measured {
    peer: String,
    data: Data,
    before: Reading,
    after: Reading,
    each: Reading,
}

pub fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut all = Vec::new();
    for data in every(setting) {
        for peer in &setting.peers {
            match measure(setting, peer, data) {
                Ok(measured) => all.push(measured),
                Err(error) => report.fail(Part::Bytes, &peer.name, data.kind.name(), &error),
            }
        }
    }
    for measured in &all {
        report.record(Part::Bytes, measured.json());
    }
    judge(setting, &all, report);
    report.section("Bytes", &table(setting, &all));
    Ok(())
}

/// One large collection of each kind; then many small ones, with small elements and with those of the large one.
fn every(setting: &Setting) -> impl Iterator<Item = Data> {
    let (element_count, key_count) = (setting.args.bytes_elements, setting.args.keys);
    let kinds = || LIMITS.into_iter().map(|(kind, _)| kind);
    let large = kinds().map(move |kind| Data::one(kind, element_count));
    let small = kinds().map(move |kind| Data::many(kind, key_count));
    large.chain(small).chain(kinds().map(move |kind| Data::many_of_large(kind, key_count)))
}

fn measure(setting: &Setting, peer: &Peer, data: Data) -> Result<Measured> {
    let name = format!("bytes-{}-{}-{}", data.kind.count_command(), data.key_count, data.element_bytes);
    let server = setting.start(peer, &name)?;
    let before = reading(setting, &server)?;
    setting.fill(&server, data)?;
    let after = reading(setting, &server)?;
    setting.stop(server, &name)?;
    let count = if data.is_one() { data.element_count } else { data.key_count } as f64;
    let each = Reading {
        used_bytes: (after.used_bytes - before.used_bytes) / count,
        pss_bytes: (after.pss_bytes - before.pss_bytes) / count,
    };
    Ok(Measured { peer: peer.name.clone(), data, before, after, each })
}

fn reading(setting: &Setting, server: &Server) -> Result<Reading> {
    let least_ns = if setting.args.quick { QUICK_SETTLE_NS } else { SETTLE_NS };
    let pss_bytes = settled_pss_bytes(server, least_ns) as f64;
    Ok(Reading { used_bytes: used_bytes(&mut server.client()?)? as f64, pss_bytes })
}

impl Reading {
    fn json(self) -> serde_json::Value {
        json!({ "used_memory_bytes": self.used_bytes, "pss_bytes": self.pss_bytes })
    }
}

impl Measured {
    fn json(&self) -> serde_json::Value {
        json!({
            "peer": self.peer, "kind": self.data.kind.name(), "keys": self.data.key_count,
            "elements": self.data.element_count, "element_bytes": self.data.element_bytes,
            "value_bytes": self.data.value_bytes, "used_memory_bytes_each": self.each.used_bytes,
            "pss_bytes_each": self.each.pss_bytes, "before": self.before.json(), "after": self.after.json(),
        })
    }
}

fn of<'a>(all: &'a [Measured], peer: &str, data: Data) -> Option<&'a Measured> {
    all.iter().find(|one| one.peer == peer && one.data == data)
}

/// By what the servers say of themselves, as the bars were given.
fn judge(setting: &Setting, all: &[Measured], report: &mut Report) {
    let Some(judged) = setting.judged() else { return };
    let used = |peer: &str, data| of(all, peer, data).map(|one| one.each.used_bytes);
    for data in every(setting) {
        let (name, base) = (data.kind.name(), setting.base());
        let limit = LIMITS.iter().find(|(kind, _)| *kind == data.kind).map(|(_, limit_bytes)| *limit_bytes);
        let (what, limit_bytes) = match data.is_one() {
            true => (format!("bytes an element of one {name}"), limit),
            false => (
                format!(
                    "bytes a {name} of {} elements of {} B: those of {base}",
                    data.element_count, data.element_bytes
                ),
                used(base, data),
            ),
        };
        if let Some(limit_bytes) = limit_bytes {
            report.bar(Bar::at_most(what, limit_bytes, " B", used(judged, data)));
        }
    }
}

fn table(setting: &Setting, all: &[Measured]) -> String {
    let mut header = vec!["collections".to_owned(), "elements".to_owned()];
    for peer in &setting.peers {
        header.extend([format!("{}, used_memory", peer.name), "resident".to_owned()]);
    }
    let mut rows = Vec::new();
    for data in every(setting) {
        let mut row = vec![data.kind.name().to_owned(), data.line()];
        for peer in &setting.peers {
            let each = of(all, &peer.name, data).map(|one| one.each);
            let show = |bytes: Option<f64>| bytes.map_or("n/a".to_owned(), |bytes| format!("{bytes:.1} B"));
            row.extend([show(each.map(|r| r.used_bytes)), show(each.map(|r| r.pss_bytes))]);
        }
        rows.push(row);
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    format!(
        "An element of the one collection, a key of the many: what memory grew by from the empty server on. used_memory is \
         what the server says itself, and what the bars are about; resident is the proportional set size, which grows less where \
         an empty server has pages ready. Keys are of 16 B.\n\n{}",
        markdown_table(&header, &rows)
    )
}
