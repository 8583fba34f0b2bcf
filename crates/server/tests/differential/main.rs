//! Random command sequences, run against Debian's `redis-server` 7.0 (the oracle) and against Stillframe:
//! their replies must be equal, and so must their data at the end. See `compare.rs` for the exemptions.
//!
//! * `STILLFRAME_SEED=n` starts with the sequence of that seed (printed with every failure),
//! * `STILLFRAME_SEQUENCES=n` sets how many sequences run,
//! * `STILLFRAME_FAILURES=n` goes on until so many sequences have failed,
//! * `STILLFRAME_ORACLE=path` and `STILLFRAME_SUBJECT=path` name other servers.
//!
//! A failing sequence is made small before it is shown.
#![forbid(unsafe_code)]

mod beside;
mod compare;
mod gen;
mod gen_elements;
mod gen_geo;
mod gen_hash;
mod gen_hyperloglog;
mod gen_keys;
mod gen_large;
mod gen_list;
mod gen_scripts;
mod gen_set;
mod gen_sorted_set;
mod gen_streams;
mod gen_strings;
mod info;
mod runner;
mod sequence;
mod server;
mod settings;
mod shrink;
mod special;

use runner::{Divergence, Fault, Pair};
use sequence::{Action, Arg, Sequence};
use server::{Kind, STILLFRAME};
use stillframe_testkit::Reply;

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {v}")))
}

/// Runs sequences until some fail; returns those, made small, with where they fail.
fn search(pair: &mut Pair, make: fn(u64) -> Sequence, seed: u64, count: u64) -> Vec<(Sequence, Divergence)> {
    let limit = from_env("STILLFRAME_FAILURES").unwrap_or(1) as usize;
    let mut failures = Vec::new();
    for seed in (0..count).map(|i| seed.wrapping_add(i)) {
        let sequence = make(seed);
        let Some(first) = pair.run(&sequence) else { continue };
        let small = shrink::shrink(&sequence, |candidate| pair.run(candidate).is_some());
        failures.push(match pair.run(&small) {
            Some(divergence) => (small, divergence),
            // It does not fail every time: show it as it was found.
            None => (sequence, first),
        });
        if failures.len() >= limit {
            break;
        }
    }
    failures
}

fn report(sequence: &Sequence, divergence: &Divergence) -> String {
    let at = divergence.step.map_or("after the last step".to_owned(), |i| format!("at step {i}"));
    format!("STILLFRAME_SEED={} fails {at}:\n{}\n{sequence}", sequence.seed, divergence.what)
}

/// Runs `count` sequences of a kind, or as many as the environment says, on a pair of servers, which it returns.
fn compare(subject: Kind, make: fn(u64) -> Sequence, count: u64) -> Pair {
    let seed = stillframe_testkit::seed();
    let count = from_env("STILLFRAME_SEQUENCES").unwrap_or(count);
    println!("STILLFRAME_SEQUENCES={count}");
    let mut pair = Pair::start(subject, None);
    let failures = search(&mut pair, make, seed, count);
    println!("{} commands compared", pair.command_count);
    let reports: Vec<_> =
        failures.iter().map(|(sequence, divergence)| report(sequence, divergence)).collect();
    assert!(reports.is_empty(), "{}", reports.join("\n"));
    pair
}

#[test]
fn replies_equal_the_oracles() {
    compare(STILLFRAME, gen::sequence, 1500);
}

#[test]
fn replies_do_not_depend_on_the_number_of_workers() {
    compare(Kind::Stillframe { worker_count: 2 }, gen::sequence_for_workers, 500);
}

#[test]
fn hashes_answer_as_the_oracles() {
    compare(STILLFRAME, gen_hash::sequence, 400);
}

#[test]
fn hashes_do_so_with_two_workers() {
    compare(Kind::Stillframe { worker_count: 2 }, gen_hash::sequence, 200);
}

#[test]
fn lists_answer_as_the_oracles() {
    compare(STILLFRAME, gen_list::sequence, 400);
}

#[test]
fn lists_do_so_with_two_workers() {
    compare(Kind::Stillframe { worker_count: 2 }, gen_list::sequence, 200);
}

#[test]
fn scripts_answer_as_the_oracles() {
    compare(STILLFRAME, gen_scripts::sequence, 400);
}

#[test]
fn scripts_do_so_with_two_workers() {
    compare(Kind::Stillframe { worker_count: 2 }, gen_scripts::sequence, 200);
}

#[test]
fn sets_answer_as_the_oracles() {
    compare(STILLFRAME, gen_set::sequence, 400);
}

#[test]
fn sets_do_so_with_two_workers() {
    compare(Kind::Stillframe { worker_count: 2 }, gen_set::sequence, 200);
}

#[test]
fn sorted_sets_answer_as_the_oracles() {
    compare(STILLFRAME, gen_sorted_set::sequence, 400);
}

#[test]
fn sorted_sets_do_so_with_two_workers() {
    compare(Kind::Stillframe { worker_count: 2 }, gen_sorted_set::sequence, 200);
}

#[test]
fn streams_answer_as_the_oracles() {
    compare(STILLFRAME, gen_streams::sequence, 400);
}

#[test]
fn streams_do_so_with_two_workers() {
    compare(Kind::Stillframe { worker_count: 2 }, gen_streams::sequence, 200);
}

#[test]
fn places_are_found_as_the_oracle_finds_them() {
    compare(STILLFRAME, gen_geo::sequence, 400);
}

#[test]
fn places_are_found_so_with_two_workers() {
    compare(Kind::Stillframe { worker_count: 2 }, gen_geo::sequence, 200);
}

/// Most of the data is in the page file alone, and saves are under way.
fn compare_in_little_memory(worker_count: u32) {
    let mut pair = compare(Kind::Small { worker_count }, gen_large::sequence, 3);
    let evicted = pair.evicted_page_count();
    assert!(evicted > 4096, "{evicted} pages have been evicted");
}

#[test]
fn replies_do_not_depend_on_what_is_in_memory() {
    compare_in_little_memory(1);
}

#[test]
fn nor_do_they_with_two_workers() {
    compare_in_little_memory(2);
}

/// The doctor of the memory would tell of the crowd's.
fn any_without_the_doctor(seed: u64) -> Sequence {
    let is_doctor = |arg: &Arg| matches!(arg, Arg::Bytes(word) if word.eq_ignore_ascii_case(b"DOCTOR"));
    let mut sequence = gen::sequence_for_workers(seed);
    sequence
        .steps
        .retain(|step| !matches!(&step.action, Action::Command(args) if args.iter().any(is_doctor)));
    sequence
}

/// A sequence of one of the types, or of strings and of all that is done with keys, by turns.
fn any_type(seed: u64) -> Sequence {
    let makers = [
        gen_hash::sequence,
        gen_list::sequence,
        gen_set::sequence,
        gen_sorted_set::sequence,
        gen_geo::sequence,
        gen_scripts::sequence,
        gen_streams::sequence,
        any_without_the_doctor,
    ];
    makers[(seed % makers.len() as u64) as usize](seed)
}

/// Most pages of what there is are in the page file alone when they are used, and saves are under way.
fn compare_in_a_crowd(worker_count: u32) {
    let mut pair = compare(Kind::Crowded { worker_count }, any_type, 60);
    let loaded = pair.loaded_page_count();
    println!("{loaded} pages loaded");
    assert!(loaded > 300, "{loaded} pages have been loaded");
}

#[test]
fn replies_do_not_depend_on_what_was_evicted() {
    compare_in_a_crowd(1);
}

#[test]
fn nor_on_that_with_two_workers() {
    compare_in_a_crowd(2);
}

#[test]
fn the_oracle_agrees_with_itself() {
    compare(Kind::Oracle, gen::sequence, 300);
}

#[test]
fn floats_are_added_as_the_oracle_adds_them() {
    compare(STILLFRAME, special::floats, 60);
}

#[test]
fn patterns_match_as_the_oracle_matches_them() {
    compare(STILLFRAME, special::patterns, 60);
}

#[test]
fn differences_are_stored_as_the_oracle_stores_them() {
    compare(STILLFRAME, special::differences, 40);
}

#[test]
fn spoiled_sketches_take_what_the_oracles_take() {
    compare(STILLFRAME, special::spoiled_sketches, 60);
}

#[test]
fn limits_are_those_of_the_oracle() {
    each_step(special::limits());
}

#[test]
fn commands_are_described_as_the_oracle_describes_them() {
    for resp3 in [false, true] {
        each_step(Sequence { resp3, ..special::descriptions() });
    }
}

#[test]
fn settings_and_refusals_are_those_of_the_oracle() {
    each_step(special::administration());
}

#[test]
fn all_commands_are_listed_as_the_oracle_lists_them() {
    let (oracle, subject) = (server::Server::start(Kind::Oracle), server::Server::start(STILLFRAME));
    let names = |server: &server::Server, line: &str| -> std::collections::BTreeSet<String> {
        let reply = server.connect().expect("a connection").try_run(line).expect("a reply");
        let text = |name: &Reply| String::from_utf8_lossy(name.bytes().unwrap_or_default()).into_owned();
        reply.items().iter().map(text).collect()
    };
    // Of this server, or of Redis 7.2.
    let own = ["backup", "client|no-touch", "client|setinfo", "waitaof"];
    // Of Redis 7.4 and 8.0.
    let of_fields = ["hexpire", "hexpireat", "hexpiretime", "hgetdel", "hgetex", "hpersist", "hpexpire"];
    let more_of_fields = ["hpexpireat", "hpexpiretime", "hpttl", "hsetex", "httl"];
    let own = [&own[..], &of_fields, &more_of_fields].concat();
    let known = names(&subject, "COMMAND LIST");
    let theirs = names(&oracle, "COMMAND LIST");
    let describe = |server: &server::Server, line: &str| {
        server.connect().expect("a connection").try_run(line).expect("a reply")
    };
    // Not of containers, which have other subcommands there.
    let is_container = |name: &str| theirs.iter().any(|other| other.starts_with(&format!("{name}|")));
    for name in known.intersection(&theirs).filter(|name| !is_container(name)) {
        for line in [format!("COMMAND INFO {name}"), format!("COMMAND DOCS {name}")] {
            // The formats of the first are of this server; the others take `NOVALUES`, as that of Redis 7.4 does, and
            // `WITHSCORE`, as those of Redis 7.2 do.
            let others =
                ["COMMAND DOCS bgsave", "COMMAND DOCS hscan", "COMMAND INFO zrank", "COMMAND INFO zrevrank"];
            if !others.contains(&&line[..]) {
                assert_eq!(describe(&subject, &line), describe(&oracle, &line), "{line}");
            }
        }
    }
    let more: Vec<_> = known.difference(&theirs).filter(|name| !own.contains(&name.as_str())).collect();
    assert!(more.is_empty(), "{more:?}");
    for category in names(&oracle, "ACL CAT") {
        let line = format!("ACL CAT {category}");
        let mut expected = names(&oracle, &line);
        expected.retain(|name| known.contains(name));
        let mut given = names(&subject, &line);
        given.retain(|name| !own.contains(&name.as_str()));
        assert_eq!(given, expected, "{category}");
    }
}

fn each_step(sequence: Sequence) {
    let mut pair = Pair::start(STILLFRAME, None);
    if let Some(divergence) = pair.run(&sequence) {
        panic!("{}", report(&sequence, &divergence));
    }
}

/// A defect that shows only in a value that two commands have built.
const LONG_APPEND: Fault = |args, reply| {
    if let (true, Reply::Int(length)) = (args[0].eq_ignore_ascii_case(b"APPEND"), reply) {
        if *length > 9 {
            *length *= 10;
        }
    }
};

/// Replies of the right value and the wrong RESP3 type.
const NULL_AS_BULK: Fault = |args, reply| {
    if let (true, Reply::Null3) = (args[0].eq_ignore_ascii_case(b"GET"), &reply) {
        *reply = Reply::NullBulk;
    }
};

#[test]
fn injected_defects_are_found_and_made_small() {
    for fault in [LONG_APPEND, NULL_AS_BULK] {
        let mut pair = Pair::start(Kind::Oracle, Some(fault));
        let failures = search(&mut pair, gen::sequence, 1, 1000);
        let (small, divergence) = failures.first().expect("the defect is found");
        let shown = report(small, divergence);
        assert!(small.steps.len() <= 2, "{shown}");
        assert_eq!(divergence.step, Some(small.steps.len() - 1), "{shown}");
    }
}
