//! Which parts a tier has.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;

use crate::built::Suite;
use crate::part::Part;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tier {
    Quick,
    Ordinary,
    Rest,
}

/// Suites that check the tree itself: documents, layers, sizes, results.
const TREE: &str = "testkit/";

/// The model checker's suites, all of them, begin so.
const MODELS: &str = "loom_";

/// Suites of the bench and of virtual machines: they measure, start peers, or emulate.
const MEASURED: [&str; 2] = ["bench/small_runs", "bench/virtual_machines"];

/// Suites that hold for each way from a page to its bytes. They run with `vmcache` in the ordinary tier.
const ON_EACH_BACKEND: [&str; 11] = [
    "pagepool/pool_restart",
    "pagepool/scrub",
    "pagepool/snapshot_contract",
    "server/crash",
    "server/golden",
    "server/server",
    "store/collections",
    "store/crafted",
    "store/faulty_device",
    "store/store",
    "store/trees",
];

/// Suites that know a simulated map of the kernel module exmap.
const ON_SIMULATED_EXMAP: [&str; 1] = ["pagepool/snapshot_contract"];

/// About how many seconds suites take that take long, on two cores with another beside them.
const LONG: [(&str, u32); 23] = [
    ("server/server", 300),
    ("bench/small_runs", 300),
    ("bench/virtual_machines", 300),
    ("server/soak", 200),
    ("server/crash", 180),
    ("server/cuts", 130),
    ("server/differential", 110),
    ("pagepool/pagefile", 55),
    ("store/faulty_device", 40),
    ("store/trees", 35),
    ("store/embedded_model", 25),
    ("journal/sim", 30),
    ("store/units", 30),
    ("server/golden", 30),
    ("store/store", 30),
    ("pagepool/snapshot_contract", 25),
    ("bench/program", 25),
    ("store/crafted", 20),
    ("store/memory_returned", 15),
    ("pagepool/device", 15),
    ("pagepool/pool_restart", 10),
    ("pagepool/scrub", 10),
    ("testkit/licences", 10),
];

/// What a suite takes that is not in the list.
const ORDINARY_S: u32 = 3;

#[must_use]
pub fn parts(tier: Tier, suites: &[Suite]) -> Vec<Part> {
    let only = |is_wanted: &dyn Fn(&Suite) -> bool| -> Vec<Part> {
        suites.iter().filter(|suite| is_wanted(suite)).map(of_suite).collect()
    };
    match tier {
        Tier::Quick => only(&|suite| suite.is_units || suite.name.starts_with(TREE)),
        Tier::Ordinary => only(&|suite| !is_of_rest(suite)),
        Tier::Rest => {
            let mut parts = only(&is_of_rest);
            parts.extend(on_other_backends(suites));
            parts.extend(more_seeds(suites));
            parts.extend(commands());
            parts
        }
    }
}

fn is_of_rest(suite: &Suite) -> bool {
    suite.name.split('/').nth(1).is_some_and(|name| name.starts_with(MODELS))
        || MEASURED.contains(&suite.name.as_str())
}

fn of_suite(suite: &Suite) -> Part {
    Part {
        name: suite.name.clone(),
        program: suite.program.clone(),
        args: Vec::new(),
        env: Vec::new(),
        dir: Some(suite.dir.clone()),
        length_s: LONG
            .iter()
            .find(|(name, _)| *name == suite.name)
            .map_or(ORDINARY_S, |(_, length_s)| *length_s),
        is_alone: MEASURED.contains(&suite.name.as_str()),
    }
}

fn named<'s>(suites: &'s [Suite], names: &'s [&str]) -> impl Iterator<Item = &'s Suite> {
    suites.iter().filter(|suite| names.contains(&suite.name.as_str()))
}

fn on_other_backends(suites: &[Suite]) -> Vec<Part> {
    let on = |suite: &Suite, backend: &str| {
        let part = of_suite(suite);
        Part { name: format!("{}@{backend}", part.name), ..part.with_env("STILLFRAME_POOL_BACKEND", backend) }
    };
    let array = named(suites, &ON_EACH_BACKEND).map(|suite| on(suite, "array"));
    let exmap = named(suites, &ON_SIMULATED_EXMAP)
        .map(|suite| on(suite, "exmap").with_env("STILLFRAME_SIMULATED_EXMAP", "1"));
    array.chain(exmap).collect()
}

/// Random suites with more seeds than the ordinary tier has time for, with another one each time, which a failure shows, or with
/// servers that keep a log.
fn more_seeds(suites: &[Suite]) -> Vec<Part> {
    let another = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs()).to_string();
    let with = |name: &str, what: &str, variable: &str, value: &str, length_s: u32| -> Option<Part> {
        let part = of_suite(suites.iter().find(|suite| suite.name == name)?);
        Some(Part { name: format!("{name}, {what}"), length_s, ..part.with_env(variable, value) })
    };
    [
        with("transactional/contract", "1000 seeds", "STILLFRAME_SEEDS", "1000", 60),
        with("server/differential", "another seed", "STILLFRAME_SEED", &another, 110),
        with("server/differential", "a log synced always", "STILLFRAME_APPENDFSYNC", "always", 400),
        with("server/differential", "a log synced each second", "STILLFRAME_APPENDFSYNC", "everysec", 300),
        with("server/crash", "another seed", "STILLFRAME_SEED", &another, 180),
        // About nine tests of a log, so that these are a thousand kills.
        with("server/crash", "1000 kills with a log", "STILLFRAME_KILLS", "115", 900)
            .map(|part| part.only("log_")),
        with("journal/sim", "100000 sequences", "STILLFRAME_SEQUENCES", "100000", 900),
        with("store/collections", "50000 sequences", "STILLFRAME_SEQUENCES", "50000", 900),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What is no test program of the workspace.
fn commands() -> Vec<Part> {
    let mut parts = vec![
        Part::shell(
            "mutations/algorithms",
            240,
            "cargo test -p stillframe-algorithms --features mutations --locked",
        ),
        Part::shell(
            "mutations/transactional",
            120,
            "cargo test -p stillframe-transactional --features mutations --locked",
        ),
        Part::shell("kernel/package", 20, "kernel/selftests/package"),
        Part::shell("kernel/selftests", 400, "kernel/selftests/run").alone(),
        Part::shell(
            "kernel/mitigations",
            200,
            "kernel/selftests/run --machine mitigations --kernel 6.12 machine snapshot mapping access",
        )
        .alone(),
        Part::shell(
            "kernel/four levels",
            200,
            "kernel/selftests/run --machine four-levels machine snapshot mapping sharing",
        )
        .alone(),
        Part::shell("bench/peers", 400, "scripts/setup.sh build race && scripts/race.sh --test"),
        Part::shell("bench/count", 400, "scripts/test.sh count").alone(),
        Part::shell("licences and advisories", 30, "scripts/test.sh deny"),
    ];
    let clients = [
        ("redis-cli", 10),
        ("redis-benchmark", 10),
        ("python", 30),
        ("node", 30),
        ("ioredis", 30),
        ("go", 60),
        ("jedis", 60),
        ("lettuce", 60),
        ("celery", 60),
        ("rq", 60),
        ("rq-suite", 240),
        ("redis-py", 60),
        ("go-redis", 150),
        ("asynq", 200),
        ("sidekiq", 30),
        ("bull", 30),
        ("bullmq", 60),
        ("limiters", 30),
        ("redisson", 60),
    ];
    parts.extend(clients.map(|(client, length_s)| {
        let line = format!("scripts/test.sh client {client}");
        Part::shell(&format!("clients/{client}"), length_s, &line)
    }));
    parts.push(Part::shell("fuzz", 600, "scripts/test.sh fuzz"));
    parts
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn suites() -> Vec<Suite> {
        let names = ["store/units", "pagepool/loom_latch", "bench/small_runs", "testkit/docs"];
        let suite = |name: &str| Suite {
            name: name.to_owned(),
            program: PathBuf::from(name),
            dir: PathBuf::from("."),
            is_units: name.ends_with("/units"),
        };
        names.iter().chain(&ON_EACH_BACKEND).map(|name| suite(name)).collect()
    }

    fn names(tier: Tier) -> Vec<String> {
        parts(tier, &suites()).into_iter().map(|part| part.name).collect()
    }

    #[test]
    fn each_suite_is_in_one_of_the_two_large_tiers() {
        let (ordinary, rest) = (names(Tier::Ordinary), names(Tier::Rest));
        for suite in suites() {
            assert!(ordinary.contains(&suite.name) != rest.contains(&suite.name), "{}", suite.name);
        }
        assert!(
            rest.contains(&"pagepool/loom_latch".to_owned()) && !rest.contains(&"store/trees".to_owned())
        );
    }

    #[test]
    fn the_quick_tier_has_units_and_what_checks_the_tree() {
        assert_eq!(names(Tier::Quick), ["store/units", "testkit/docs"]);
    }

    #[test]
    fn suites_of_pages_run_on_each_backend() {
        let rest = parts(Tier::Rest, &suites());
        let part = rest.iter().find(|part| part.name == "store/trees@array").unwrap();
        assert_eq!(part.env, [("STILLFRAME_POOL_BACKEND".to_owned(), "array".to_owned())]);
        assert_eq!(
            rest.iter().filter(|part| part.name.contains('@')).count(),
            ON_EACH_BACKEND.len() + ON_SIMULATED_EXMAP.len()
        );
    }
}
