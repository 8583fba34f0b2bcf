//! `order`: places in the middle of a list, and ranks in a sorted set.

use super::args::Part;
use super::rates::{Case, Rates};
use super::report::Report;
use super::setting::Setting;
use crate::bar::Bar;
use crate::error::{BenchError, Result};
use crate::load::collections::{Data, Kind, Operation, LINDEX_MIDDLE, LINSERT_MIDDLE};

const LEAST_LIST: f64 = 100.0;
const LEAST_RANK: f64 = 3.0;

/// Operations on one collection.
struct Collection {
    data: Data,
    /// Each with what it has to reach of Redis's commands a second.
    operations: Vec<(Operation, f64)>,
    clients: usize,
}

pub fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let zrank = Operation::named("ZRANK").ok_or_else(|| BenchError::Failed("ZRANK has no row".to_owned()))?;
    let collections = [
        Collection {
            data: Data::one(Kind::List, setting.args.large),
            operations: vec![(LINDEX_MIDDLE, LEAST_LIST), (LINSERT_MIDDLE, LEAST_LIST)],
            // A server that walks through half a list makes all others wait.
            clients: 1,
        },
        Collection {
            data: Data::one(Kind::SortedSet, setting.args.members),
            operations: vec![(zrank, LEAST_RANK)],
            clients: setting.args.clients,
        },
    ];
    let mut rates = Rates::default();
    for collection in &collections {
        on_collection(setting, collection, &mut rates, report)?;
    }
    for record in rates.records() {
        report.record(Part::Order, record);
    }
    judge(setting, &collections, &rates, report);
    let text = format!(
        "LINDEX and LINSERT by one client, which names the element in the middle; ZRANK of random members by {}. LINSERT has to \
         find its pivot by value.\n\n{}",
        setting.args.clients,
        rates.table(setting)
    );
    report.section("Order", &text);
    Ok(())
}

fn on_collection(
    setting: &Setting,
    collection: &Collection,
    rates: &mut Rates,
    report: &mut Report,
) -> Result<()> {
    let name = format!("order-{}", collection.data.kind.count_command());
    let mut servers = Vec::new();
    for peer in &setting.peers {
        match setting.filled(peer, &name, collection.data) {
            Ok(server) => servers.push(server),
            Err(error) => report.fail(Part::Order, &peer.name, &collection.data.line(), &error),
        }
    }
    for (operation, _) in &collection.operations {
        for pipeline in &setting.args.pipelines {
            let case = Case {
                operation: *operation,
                data: collection.data,
                pipeline: (*pipeline).max(1),
                clients: collection.clients,
            };
            for round in 0..setting.args.rounds {
                for server in &servers {
                    if let Err(error) = rates.measure(setting, server, case, round, None) {
                        report.fail(Part::Order, &server.name, operation.name, &error);
                    }
                }
            }
        }
    }
    servers.into_iter().try_for_each(|server| setting.stop(server, &name))
}

/// With most requests on their way, where the server's work counts, not the way there.
fn judge(setting: &Setting, collections: &[Collection], rates: &Rates, report: &mut Report) {
    let Some(judged) = setting.judged() else { return };
    for (operation, least) in collections.iter().flat_map(|collection| &collection.operations) {
        let own = rates.cases().into_iter().filter(|case| case.operation == *operation);
        let Some(case) = own.max_by_key(|case| case.pipeline) else { continue };
        let what =
            format!("{} of {} elements, -P {}", operation.name, case.data.element_count, case.pipeline);
        report.bar(Bar::at_least(what, *least, " x", rates.ratio(case, judged, setting.base())));
    }
}
