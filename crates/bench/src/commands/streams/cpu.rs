//! CPU time a command.

use serde_json::json;

use super::requests::{Add, Consume, Ranges};
use super::setting::{send, Setting, CONNS, PIPELINE};
use crate::error::Result;
use crate::load::LoadReport;
use crate::output::{human_ns, markdown_table};
use crate::peer::Server;
use crate::section::{row, Section};
use crate::stats::median;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Add,
    Range,
    Consume,
}

impl Case {
    const ALL: [Case; 3] = [Case::Add, Case::Range, Case::Consume];

    /// What is done, and the bar.
    fn what(self) -> (&'static str, f64) {
        match self {
            Case::Add => ("XADD of a field with 10 B", 0.8),
            Case::Range => ("XRANGE of 100 at a random ID", 1.0),
            Case::Consume => ("XREADGROUP COUNT 10, or XACK of them", 1.0),
        }
    }

    fn send(self, setting: &Setting, server: &Server, seconds: f64, round: usize) -> Result<LoadReport> {
        let entry_count = setting.entry_count;
        match self {
            Case::Add => send(server, (CONNS, PIPELINE), &mut Add::endless(), seconds),
            Case::Range => {
                let mut ranges = Ranges { entry_count, sent: (round as u64) << 32 };
                send(server, (CONNS, PIPELINE), &mut ranges, seconds)
            }
            Case::Consume => send(server, (1, PIPELINE), &mut Consume { entry_count, sent: 0 }, seconds),
        }
    }

    fn measure(self, setting: &Setting, server: &Server, round: usize) -> Result<f64> {
        server.pin();
        match self {
            Case::Add => drop(server.client()?.call(&["FLUSHALL"])?),
            Case::Range => setting.fill(server, false)?,
            Case::Consume => {
                setting.fill(server, false)?;
                server.client()?.call(&["XGROUP", "CREATE", "stream", "group", "0"])?;
            }
        }
        self.send(setting, server, setting.seconds / 10.0, round)?;
        let before_ns = server.cpu_time_ns();
        let report = self.send(setting, server, setting.seconds, round)?;
        Ok((server.cpu_time_ns() - before_ns) as f64 / report.replies.max(1) as f64)
    }
}

pub fn measure(setting: &Setting) -> Result<Section> {
    let servers = setting.start_all("cpu")?;
    let (mut rows, mut bars, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for case in Case::ALL {
        let (what, bar) = case.what();
        let mut cpu_ns = vec![Vec::new(); servers.len()];
        for round in 0..setting.rounds {
            for (server, of_server) in servers.iter().zip(&mut cpu_ns) {
                of_server.push(case.measure(setting, server, round)?);
            }
            let shown: Vec<_> = cpu_ns.iter().filter_map(|of| of.last()).map(|ns| human_ns(*ns)).collect();
            eprintln!("  {what} round {}: {}", round + 1, shown.join(", "));
        }
        let medians: Vec<f64> = cpu_ns.iter().map(|of| median(of)).collect();
        bars.extend(setting.bars(&format!("CPU of {what}"), bar, &medians));
        for (peer, of) in setting.peers.iter().zip(&cpu_ns) {
            records.push(json!({ "part": "cpu", "what": what, "peer": peer.name, "cpu_ns": of }));
        }
        rows.push(row(what, &cpu_ns, human_ns));
    }
    servers.into_iter().try_for_each(Server::stop_without_save)?;
    let mut header = vec![""];
    header.extend(setting.peers.iter().map(|peer| peer.name.as_str()));
    let title =
        format!("User and system time of the server a command, {CONNS} connections, pipelines of {PIPELINE}");
    Ok(Section { title, table: markdown_table(&header, &rows), bars, records })
}
