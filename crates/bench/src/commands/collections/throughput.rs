//! `throughput`: commands on random elements of one large collection and of many small ones.

use super::args::{Args, Part};
use super::rates::{Case, Rates, Sent};
use super::report::Report;
use super::setting::Setting;
use crate::bar::Bar;
use crate::error::{BenchError, Result};
use crate::load::collections::{Data, Effect, Kind, Operation, ALL};
use crate::peer::Server;
use crate::stats::distinct;

/// Of Redis's commands a second, with many requests on their way and with one.
const LEAST_PIPELINED: f64 = 1.5;
const LEAST_SINGLE: f64 = 1.0;

pub fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let operations = chosen(&setting.args)?;
    let mut rates = Rates::default();
    for is_one in [true, false] {
        for kind in distinct(operations.iter().map(|operation| operation.kind)) {
            let data = match is_one {
                true => Data::one(kind, setting.args.large),
                false => Data::many(kind, setting.args.keys),
            };
            let own = operations.iter().filter(|operation| operation.kind == kind);
            on_data(setting, data, &own.copied().collect::<Vec<_>>(), &mut rates, report)?;
        }
    }
    for record in rates.records() {
        report.record(Part::Throughput, record);
    }
    judge(setting, &rates, report);
    let text = format!(
        "{} connections. The last column is the same load on a server that answers +OK to everything: a server near it is \
         measured by the generator. SADD adds members that are new, SPOP takes as many from the same keys, as RPOP does after \
         LPUSH; LRANGE_100 begins at the head, ZRANGE_100 anywhere; all else is about elements that are there.\n\n{}",
        setting.args.clients,
        rates.table(setting)
    );
    report.section("Throughput", &text);
    Ok(())
}

/// # Errors
/// There is no such command.
pub fn chosen(args: &Args) -> Result<Vec<Operation>> {
    let Some(names) = &args.commands else { return Ok(ALL.to_vec()) };
    let is_there = |name: &str| ALL.iter().any(|operation| operation.name.eq_ignore_ascii_case(name));
    if let Some(name) = names.iter().find(|name| !is_there(name)) {
        let all = ALL.map(|operation| operation.name).join(", ");
        return Err(BenchError::Failed(format!("--commands {name}: there are {all}")));
    }
    let is_named = |operation: &Operation| names.iter().any(|name| operation.name.eq_ignore_ascii_case(name));
    // What takes away needs what adds before it.
    let is_needed = |next: &Operation| next.effect == Effect::Shrinks && is_named(next);
    let wanted = ALL
        .iter()
        .enumerate()
        .filter(|(at, operation)| is_named(operation) || ALL.get(at + 1).is_some_and(is_needed));
    Ok(wanted.map(|(_, operation)| *operation).collect())
}

/// All servers are alive at once.
fn on_data(
    setting: &Setting,
    data: Data,
    operations: &[Operation],
    rates: &mut Rates,
    report: &mut Report,
) -> Result<()> {
    let name = format!("{}-{}", data.kind.name().replace(' ', "-"), data.key_count);
    let mut servers = Vec::new();
    for peer in &setting.peers {
        match setting.filled(peer, &name, data) {
            Ok(server) => servers.push(server),
            Err(error) => report.fail(Part::Throughput, &peer.name, &data.line(), &error),
        }
    }
    for turn in turns(operations) {
        for pipeline in &setting.args.pipelines {
            let case = |operation| Case {
                operation,
                data,
                pipeline: (*pipeline).max(1),
                clients: setting.args.clients,
            };
            let cases: Vec<Case> = turn.iter().copied().map(case).collect();
            for case in &cases {
                rates.ceiling(setting, *case)?;
            }
            in_rounds(setting, &servers, &cases, rates, report);
        }
    }
    servers.into_iter().try_for_each(|server| setting.stop(server, &name))
}

/// Commands that are measured right behind one another: one that takes away goes with the one that has added before it.
fn turns(operations: &[Operation]) -> Vec<Vec<Operation>> {
    let mut turns: Vec<Vec<Operation>> = Vec::new();
    for operation in operations {
        match turns.last_mut() {
            Some(turn) if operation.effect == Effect::Shrinks => turn.push(*operation),
            _ => turns.push(vec![*operation]),
        }
    }
    turns
}

fn in_rounds(setting: &Setting, servers: &[Server], cases: &[Case], rates: &mut Rates, report: &mut Report) {
    let mut failed: Vec<&str> = Vec::new();
    for round in 0..setting.args.rounds {
        for server in servers {
            if failed.contains(&server.name.as_str()) {
                continue;
            }
            let mut added: Option<Sent> = None;
            for case in cases {
                match rates.measure(setting, server, *case, round, added) {
                    Ok(sent) => added = (case.operation.effect == Effect::Grows).then_some(sent),
                    Err(error) => {
                        report.fail(Part::Throughput, &server.name, case.operation.name, &error);
                        failed.push(&server.name);
                        break;
                    }
                }
            }
        }
    }
}

/// The lowest of all for each number of requests on their way; the table has each.
fn judge(setting: &Setting, rates: &Rates, report: &mut Report) {
    let Some(judged) = setting.judged() else { return };
    for pipeline in &setting.args.pipelines {
        let least = if *pipeline > 1 { LEAST_PIPELINED } else { LEAST_SINGLE };
        for kind in [Kind::Hash, Kind::Counters, Kind::Set, Kind::List, Kind::SortedSet] {
            for case in rates.cases() {
                if case.pipeline != *pipeline || case.operation.kind != kind {
                    continue;
                }
                let size = if case.data.is_one() { "one large" } else { "many small" };
                let ratio = rates.ratio(case, judged, setting.base());
                let is_limited =
                    ratio.is_some_and(|ratio| ratio < least) && rates.is_near_ceiling(case, judged);
                let limited = if is_limited { " (the generator's limit)" } else { "" };
                let what = format!("{}, {size}, -P {pipeline}{limited}", case.operation.name);
                report.bar(Bar::at_least(what, least, " x", ratio));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::turns;
    use crate::load::collections::ALL;

    #[test]
    fn what_shrinks_follows_what_grows() {
        let turns = turns(&ALL);
        let pairs: Vec<_> = turns.iter().filter(|turn| turn.len() > 1).collect();
        let names = |turn: &[crate::load::collections::Operation]| [turn[0].name, turn[1].name];
        assert_eq!((names(pairs[0]), names(pairs[1])), (["SADD", "SPOP"], ["LPUSH", "RPOP"]));
        assert_eq!((turns.len(), pairs.len()), (ALL.len() - 2, 2));
    }
}
