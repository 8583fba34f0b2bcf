//! Runs every subcommand at its smallest size, so that none rots: against redis-server, and against
//! stillframe-server where it has been built into the same target directory.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use stillframe_testkit::{find_program, within, Address, Launch, Port, Process, TempDir};

const BENCH: &str = env!("CARGO_BIN_EXE_stillframe-bench");

fn on_path(name: &str) -> bool {
    find_program(Path::new(name)).is_some()
}

fn stillframe_server() -> Option<PathBuf> {
    let beside = Path::new(BENCH).parent()?.join("stillframe-server");
    let version = Command::new(&beside).arg("--version").stdin(Stdio::null()).output().ok()?;
    (!version.stdout.is_empty()).then_some(beside)
}

/// Not through `eprintln!`, which a passing test swallows.
fn skipped(peer: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED for {peer}: {why}");
}

/// The peers that are installed, in the bench's own names; says which are left out.
fn peers() -> Vec<&'static str> {
    let mut peers = Vec::new();
    match on_path("redis-server") {
        true => peers.push("redis"),
        false => skipped("redis", "redis-server is not installed"),
    }
    match stillframe_server() {
        Some(_) => peers.push("stillframe"),
        None => skipped("stillframe", "stillframe-server is not built in this target directory"),
    }
    peers
}

/// The one directory of a run, with its name.
fn run_dir(out: &Path, name: &str) -> PathBuf {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.file_name().unwrap().to_str().unwrap().ends_with(&format!("-{name}")));
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// The raw results in a run's directory, which say where they come from.
fn raw_results(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("results.json")).unwrap();
    assert!(!text.contains("  ") && !text.contains("\n\n"), "blanks: {text}");
    assert!(!text.contains("/tmp/") && !text.contains(env!("CARGO_MANIFEST_DIR")), "a path: {text}");
    let mut raw: Value = serde_json::from_str(&text).unwrap();
    let from = &raw["provenance"];
    let revision = from["revision"].as_str().unwrap();
    assert!(revision == "unknown" || revision[..12].bytes().all(|b| b.is_ascii_hexdigit()), "{revision}");
    assert!(from["command"].as_str().unwrap().starts_with("stillframe-bench "), "{from}");
    assert!(from["date"].as_str().unwrap().ends_with('Z'), "{from}");
    for field in ["cpu", "cores", "memory_bytes", "kernel"] {
        assert!(!from["machine"][field].is_null(), "{field}: {from}");
    }
    let Value::Array(results) = raw["results"].take() else { panic!("{raw}") };
    results
}

fn bench(args: &[&str]) -> String {
    let out = Command::new(BENCH).args(args).stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?} failed:\n{stderr}");
    String::from_utf8(out.stdout).unwrap()
}

/// Runs a subcommand that starts its servers itself; returns its table and its raw results.
fn measure(subcommand: &str, extra: &[&str]) -> Option<(String, Vec<Value>)> {
    let peers = peers();
    if peers.is_empty() {
        return None;
    }
    let dir = TempDir::new(subcommand);
    let path = dir.to_str().unwrap();
    let list = peers.join(",");
    let mut args =
        vec![subcommand, "--small", "--peers", &list, "--out", path, "--data", path, "--name", "test"];
    args.extend(extra);
    let table = bench(&args);
    for peer in peers {
        assert!(table.contains(peer), "{peer} is not in the table:\n{table}");
    }
    for line in ["- command: stillframe-bench ", "- revision: ", "- machine: ", "- date: "] {
        assert!(table.contains(line), "{table}");
    }
    let run = run_dir(&dir, "test");
    assert_eq!(std::fs::read_to_string(run.join("report.md")).unwrap().trim(), table.trim());
    if subcommand == "pause" {
        for file in ["plot.svg", "latency.csv", "memory.csv"] {
            assert!(std::fs::metadata(run.join(file)).unwrap().len() > 500, "{file}");
        }
    }
    Some((table, raw_results(&run)))
}

fn positive(value: &Value) {
    assert!(value.as_f64().is_some_and(|v| v > 0.0), "{value} should be positive");
}

#[test]
fn pause() {
    let Some((_, raw)) = measure("pause", &[]) else { return };
    for round in &raw {
        let save = &round["saves"][0];
        positive(&save["save_s"]);
        positive(&save["before"]["count"]);
        positive(&save["first_second"]["max_us"]);
        positive(&save["memory_before_bytes"]);
        positive(&round["restart"]["first_reply_s"]);
        assert_eq!(round["load"]["errors"], 0);
    }
}

#[test]
fn pause_unthrottled_with_growing_values() {
    let args = ["--rate", "0", "--overwrite-size", "1024-2048", "--no-restart", "--unix"];
    let Some((_, raw)) = measure("pause", &args) else { return };
    positive(&raw[0]["saves"][0]["during"]["count"]);
}

#[test]
fn throughput() {
    let Some((_, raw)) = measure("throughput", &[]) else { return };
    let results = &raw;
    // GET and SET, two pipelines, the generator alone and each peer.
    assert_eq!(results.len(), 4 * (1 + peers().len()));
    results.iter().for_each(|r| positive(&r["per_second"]));
}

/// Each part, on each system that this program was built with.
#[test]
fn vmcache() {
    let dir = TempDir::new("vmcache");
    let path = dir.to_str().unwrap();
    let report = bench(&["vmcache", "--small", "--out", path, "--data", path, "--name", "test"]);
    let run = run_dir(&dir, "test");
    let raw = raw_results(&run);
    let of = |part: &str| -> Vec<&Value> { raw.iter().filter(|record| record["part"] == part).collect() };
    // Without a server there is nothing to update.
    let has_failed =
        |record: &&&Value| stillframe_server().is_some() || record["what"] != "updates, out of memory";
    assert_eq!(of("failure").iter().filter(has_failed).count(), 0, "{raw:?}");
    for record in of("lookups").into_iter().chain(of("tpcc")).chain(of("raw")) {
        positive(&record["per_second"]);
    }
    // Two numbers of threads, two sizes of calls, in memory and out of it; and two threads of this store apart.
    assert!(of("lookups").len() >= 20 && of("lookups").len() % 8 == 4, "{raw:?}");
    assert_eq!(of("lookups").iter().filter(|record| record["is_apart"] == true).count(), 4, "{raw:?}");
    assert_eq!((of("raw").len(), of("pages").len()), (3, 16));
    of("pages").into_iter().for_each(|record| positive(&record["ns"]));
    // Two numbers of threads and a reader; each into buffers and into a pool, one at a time and together.
    assert_eq!((of("discards").len(), of("reads").len()), (9, 12));
    of("discards").into_iter().for_each(|record| positive(&record["case"]["give_back_ns"]));
    of("reads").into_iter().for_each(|record| positive(&record["case"]["per_second"]));
    match stillframe_server() {
        Some(_) => check_updates(&of("updates"), &of("update times")),
        None => skipped("vmcache's updates", "stillframe-server is not built in this target directory"),
    }
    let evictions = of("eviction");
    assert!(evictions.len() >= 9 && evictions.len() % 3 == 0, "{raw:?}");
    for record in evictions {
        positive(&record["second_per_second"]);
        assert_eq!(record["first_per_second"] == 0.0, record["first"] == "idle", "{record}");
    }
    for record in of("tpcc") {
        let counts: Vec<u64> =
            record["kinds"].as_array().unwrap().iter().map(|kind| kind["count"].as_u64().unwrap()).collect();
        assert!(counts.len() == 5 && counts[0] > counts[2], "{record}");
    }
    for words in ["- lmdb, TPC-C, out of memory: LMDB ", "durability: ", "## Raw reader", "memory limit: "] {
        assert!(report.contains(words), "{words}: {report}");
    }
    let charts =
        ["lookups-in-memory-1", "lookups-out-of-memory-32", "tpcc-in-memory", "tpcc-outgrowing-memory"];
    for name in charts.into_iter().chain(["tpcc-out-of-memory", "discards", "reads"]) {
        let chart = std::fs::read_to_string(run.join(format!("{name}.svg"))).unwrap();
        assert!(chart.ends_with("</svg>\n") && (chart.contains("lmdb") || !name.contains('-')), "{chart}");
    }
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 1, "data is left: {left:?}");
}

/// Updates of most keys read, and have others written back; the disk does the same.
fn check_updates(throughputs: &[&Value], times: &[&Value]) {
    // Pages by address and in frames.
    assert_eq!((throughputs.len(), times.len()), (4, 8), "{throughputs:?}, {times:?}");
    for record in throughputs {
        let case = &record["case"];
        for rate in [&case["per_second"], &case["server"]["reads"], &case["disk"]["reads"], &case["cpu_ns"]] {
            positive(rate);
        }
        assert!(case["share_in_memory"].as_f64().unwrap() < 0.5, "{case}");
    }
    for record in times {
        positive(&record["case"]["p999_ns"]);
        let is_beside = record["case"]["timed"] == "resident_beside";
        assert_eq!(record["case"]["checkpoint_count"].as_u64().unwrap() > 0, is_beside, "{record}");
    }
}

/// The parts of a figure alone.
#[test]
fn vmcache_figures() {
    let dir = TempDir::new("vmcache-figures");
    let path = dir.to_str().unwrap();
    let args =
        ["vmcache", "--small", "--figures", "3,table2", "--out", path, "--data", path, "--name", "test"];
    bench(&args);
    let raw = raw_results(&run_dir(&dir, "test"));
    let parts: std::collections::BTreeSet<&str> =
        raw.iter().map(|record| record["part"].as_str().unwrap()).collect();
    assert_eq!(parts.into_iter().collect::<Vec<_>>(), ["discards", "pages"]);
}

/// A system that fails is said, and is no row of the table.
#[test]
fn a_system_that_cannot_be_measured_is_said() {
    let dir = TempDir::new("vmcache-fails");
    let out = Command::new(BENCH)
        .args([
            "vmcache",
            "--small",
            "--systems",
            "lmdb",
            "--parts",
            "lookups,tpcc",
            "--out",
            dir.to_str().unwrap(),
        ])
        .args(["--data", "/dev/null", "--name", "test"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(
        !out.status.success() && stderr.contains("nothing was measured: create store: Not a directory"),
        "{stderr}"
    );
    let report = std::fs::read_to_string(run_dir(&dir, "test").join("report.md")).unwrap();
    assert!(
        report.contains("## What failed") && report.contains("lmdb, TPC-C, in memory: create store: "),
        "{report}"
    );
}

/// A variant may be another program; one that is not there is said before anything is measured.
#[test]
fn throughput_of_another_build() {
    let Some(server) = stillframe_server() else { return skipped("stillframe", "it is not built") };
    let variant = format!("before={} --busy-poll 0", server.display());
    let Some((table, _)) = measure("throughput", &["--variant", &variant]) else { return };
    assert!(table.contains("stillframe-before"), "{table}");
    let args = ["throughput", "--small", "--variant", "gone=/nowhere/stillframe-server"];
    let out = Command::new(BENCH).args(args).stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && stderr.contains("/nowhere/stillframe-server"), "{stderr}");
}

#[test]
fn memory() {
    let Some((_, raw)) = measure("memory", &[]) else { return };
    for result in &raw {
        // So few keys fit into memory that a server has populated ahead: then its own count tells.
        let of = |field: &str| result[field].as_f64().unwrap();
        assert!(of("bytes_a_key").max(of("used_memory_bytes_a_key")) > 50.0, "{result}");
    }
}

#[test]
fn checkpoint() {
    let Some((_, raw)) = measure("checkpoint", &[]) else { return };
    for round in &raw {
        positive(&round["full_save_s"]);
        positive(&round["files_bytes"]);
        if round["peer"] == "stillframe" {
            positive(&round["incremental"][0]["bytes_written"]);
            positive(&round["steady_pagefile_bytes"][0]);
        }
    }
}

/// Every part, on every server.
#[test]
fn collections() {
    let Some((table, raw)) = measure("collections", &[]) else { return };
    let of = |part: &'static str| raw.iter().filter(move |record| record["part"] == part);
    assert_eq!(of("failure").count(), 0, "{raw:?}");
    let peer_count = peers().len();
    // One large collection, and small ones with elements of two sizes, of four kinds.
    assert_eq!(of("bytes").count(), 12 * peer_count);
    of("bytes").for_each(|record| positive(&record["used_memory_bytes_each"]));
    // Fourteen commands on large and small collections, two pipelines, the generator alone and each peer.
    assert_eq!(of("throughput").count(), 14 * 4 * (1 + peer_count));
    assert_eq!(of("order").count(), 3 * 2 * peer_count);
    of("throughput").chain(of("order")).for_each(|record| positive(&record["per_second"]));
    // A save has a control.
    assert_eq!((of("save").count(), of("delete").count()), (peer_count + 1, 3 * peer_count));
    for record in of("save").chain(of("delete")) {
        positive(&record["before"]["count"]);
        positive(&record["during"]["p999_us"]);
    }
    assert_eq!(of("blocked").count(), peer_count);
    for record in of("blocked") {
        positive(&record["wake_us"]["p99"]);
        positive(&record["waiting"]["rss_bytes"]);
    }
    if stillframe_server().is_none() {
        return skipped("collections' checkpoints and bars", "stillframe-server is not built");
    }
    let changed: Vec<_> = of("checkpoint").filter(|record| record["changed_fields"] != 0).collect();
    assert_eq!(changed.len(), 1, "{raw:?}");
    positive(&changed[0]["bytes_written"]);
    assert!(!table.contains("not measured") && table.contains("| bar "), "{table}");
}

/// A part alone, with a command alone; what does not exist is said before anything is measured.
#[test]
fn collections_in_parts() {
    let args = ["--parts", "throughput", "--commands", "zrank", "--pipelines", "4"];
    let Some((_, raw)) = measure("collections", &args) else { return };
    let is_asked = |record: &Value| record["command"] == "ZRANK" && record["pipeline"] == 4;
    assert!(raw.len() == 2 * (1 + peers().len()) && raw.iter().all(is_asked), "{raw:?}");
    let out = Command::new(BENCH)
        .args(["collections", "--small", "--commands", "zrank,nothing"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && stderr.contains("--commands nothing: there are HSET"), "{stderr}");
}

fn redis(dir: &TempDir) -> Option<Process> {
    if !on_path("redis-server") {
        skipped("redis", "redis-server is not installed");
        return None;
    }
    Some(Launch::at_port("redis-server", dir).unwrap().start().0)
}

#[test]
fn fill_then_load() {
    let dir = TempDir::new("load");
    let Some(redis) = redis(&dir) else { return };
    let Address::Tcp { port, .. } = redis.address() else { panic!("{:?}", redis.address()) };
    let (port, path) = (port.to_string(), dir.to_str().unwrap());
    let filled = bench(&["fill", "--small", "--port", &port, "--keys", "5000", "--value-size", "64"]);
    assert!(filled.starts_with("5000 keys of 64 B"), "{filled}");
    let base = ["load", "--small", "--port", &port, "--keys", "5000", "--value-size", "64"];
    let run = |extra: &[&str]| bench(&[&base[..], extra].concat());
    let open = run(&["--rate", "2000", "--get-percent", "50", "--save", "--out", path, "--name", "open"]);
    assert!(open.contains("intended send time") && open.contains("sent late by"), "{open}");
    assert!(!open.contains("ERRORS") && !open.contains("nil"), "{open}");
    let raw = raw_results(&run_dir(&dir, "open"));
    let rate = raw[0]["replies_per_second"].as_f64().unwrap();
    assert!((1000.0..2200.0).contains(&rate), "{rate} replies a second instead of 2000");
    let closed = run(&["--pipeline", "16", "--key-choice", "zipf", "--value-size", "10-90"]);
    assert!(closed.contains("closed loop"), "{closed}");
}

#[test]
fn a_server_that_is_not_there_is_a_clear_error() {
    let port = Port::reserve().unwrap();
    let port = port.to_string();
    let out = Command::new(BENCH).args(["load", "--small", "--port", &port]).output().unwrap();
    assert!(!out.status.success());
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(stderr.contains("connection 0 to 127.0.0.1") && stderr.contains("refused"), "{stderr}");
}

#[test]
fn a_peer_that_does_not_start_is_a_clear_error() {
    let dir = TempDir::new("nostart");
    let path = dir.to_str().unwrap();
    let args =
        ["memory", "--small", "--peers", "redis", "--redis", "/bin/false", "--out", path, "--data", path];
    let out = Command::new(BENCH).args(args).output().unwrap();
    assert!(!out.status.success());
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(stderr.contains("redis did not start: it ended with exit status: 1"), "{stderr}");
}

/// Those that run the embedded library in this process.
#[test]
fn in_process() {
    for subcommand in ["cut", "workers"] {
        let dir = TempDir::new(subcommand);
        let path = dir.to_str().unwrap();
        let table = bench(&[subcommand, "--small", "--out", path, "--data", path, "--name", "test"]);
        assert!(table.contains("- machine: "), "{table}");
        let raw = raw_results(&run_dir(&dir, "test"));
        match subcommand {
            "cut" => assert_eq!(raw[0]["wait_ns"].as_array().unwrap().len(), 10),
            _ => positive(&raw[0]["ratio"]),
        }
    }
}

/// The page as a browser has it after it has clicked what the address asks for.
fn in_browser(page: &Path, hash: &str) -> Option<String> {
    if !on_path("chromium") {
        skipped("the page of study", "chromium is not installed");
        return None;
    }
    let profile = TempDir::new("browser");
    let out = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}#{hash}", page.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8(out.stdout).unwrap())
}

fn check_page(page: &Path) {
    let text = std::fs::read_to_string(page).unwrap();
    let outside: Vec<_> = text.match_indices("http").map(|(at, _)| &text[at..at + 26]).collect();
    assert!(outside.iter().all(|link| link == &"http://www.w3.org/2000/svg"), "{outside:?}");
    let Some(all) = in_browser(page, "") else { return };
    assert!(!all.contains("class=\"off\""), "all are shown at first");
    let some = in_browser(page, "algorithms=epoch,fork&theme=dark").unwrap();
    assert!(some.contains("2 of ") && some.contains("data-theme=\"dark\""), "{some}");
    let groups = |name: &str| some.matches(&format!("<g data-series=\"{name}\"")).count();
    let hidden = |name: &str| some.matches(&format!("<g data-series=\"{name}\" class=\"off\"")).count();
    assert!(groups("epoch") > 10 && hidden("epoch") == 0, "what was asked for is shown");
    assert!(groups("hourglass") > 10 && hidden("hourglass") == groups("hourglass"), "the others are not");
}

#[test]
fn study() {
    let dir = TempDir::new("study");
    let path = dir.to_str().unwrap();
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
    let places = ["--out", path, "--data", path, "--fork-results", results.to_str().unwrap()];
    let table = bench(&[&["study", "--all", "--quick", "--name", "all"], &places[..]].concat());
    assert!(table.contains("## Bars") && table.contains("does not grow with the data"), "{table}");
    let run = run_dir(&dir, "all");
    let raw = raw_results(&run);
    let of = |part: &'static str| raw.iter().filter(move |record| record["part"] == part);
    // Each image was held against the rows at its cut.
    for record in of("ticks").filter(|record| record["need"]["is_each_timed"] == false) {
        let outcome = &record["outcome"];
        assert_eq!(
            outcome["verified_images"].as_u64(),
            Some(outcome["cut_ns"].as_array().unwrap().len() as u64)
        );
        positive(&outcome["mean_ns"]);
        positive(&outcome["memory_bytes"]);
    }
    let mut expected: Vec<String> = ["9", "11a", "11b", "12", "cuts", "values"].map(str::to_owned).to_vec();
    expected.extend(('a'..='l').map(|part| format!("10{part}")));
    let has_server = !peers().is_empty();
    expected.extend((13..=17).filter(|_| has_server).map(|figure| figure.to_string()));
    expected.extend(on_path("valgrind").then(|| "table4".to_owned()));
    for figure in expected {
        assert!(std::fs::metadata(run.join(format!("figure-{figure}.svg"))).unwrap().len() > 500, "{figure}");
        let finding = of("finding").find(|record| record["figure"] == *figure).unwrap();
        assert!(!finding["here"].as_str().unwrap().is_empty() || figure == "9", "{finding}");
    }
    let failures: Vec<_> = of("failure").collect();
    let may_fail = |what: &Value| ["servers", "cache misses"].contains(&what.as_str().unwrap());
    // Containers and some kernels have no userfaultfd.
    let is_refused = |record: &Value| record["why"].as_str().unwrap().contains("userfaultfd");
    assert!(failures.iter().all(|record| may_fail(&record["what"]) || is_refused(record)), "{failures:?}");
    check_page(&run.join("report.html"));
    // A run that goes on with that one has nothing left to measure.
    let resumed = ["study", "--quick", "--figures", "10a,10e", "--name", "resumed", "--resume"];
    let table = bench(&[&resumed[..], &[run.to_str().unwrap()], &places[..]].concat());
    assert!(table.contains("estimate: 0 minutes") && table.contains("Figure 10e"), "{table}");
}

#[test]
fn study_says_what_it_does_not_know() {
    for (args, expected) in [
        (["--figures", "18"], "there are 10, 11, 9,"),
        (["--algorithms", "spoon"], "there is no algorithm"),
        (["--rows", "63"], "whole words"),
        (["--resume", "/nowhere"], "measured.jsonl"),
    ] {
        let dir = TempDir::new("study-args");
        let mut command = Command::new(BENCH);
        command.arg("study").args(args).arg("--out").arg(&*dir).stdin(Stdio::null());
        let out = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && stderr.contains(expected), "{args:?}: {stderr}");
    }
}

#[test]
fn advise() {
    let dir = TempDir::new("advise");
    let path = dir.to_str().unwrap();
    let places = ["--out", path, "--data", path];
    let table = bench(&[&["advise", "--quick", "--zipf", "0.9", "--row", "4096"], &places[..]].concat());
    assert!(table.contains("Take `") && table.contains("p99.9 |"), "{table}");
    let raw = raw_results(&run_dir(&dir, "advise"));
    assert!(raw.len() >= 10, "{table}");
    let scores: Vec<f64> = raw.iter().map(|one| one["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted() && scores[0] >= 1.0, "{scores:?}");
}

/// Two runs of a name on one day are two directories; one that fails leaves none.
#[test]
fn a_run_does_not_write_over_another() {
    let dir = TempDir::new("twice");
    let path = dir.to_str().unwrap();
    let run = |extra: &[&str]| {
        let args = [&["workers", "--small", "--out", path, "--data", path], extra].concat();
        Command::new(BENCH).args(args).stdin(Stdio::null()).output().unwrap().status.success()
    };
    assert!(run(&["--name", "same"]));
    let first = run_dir(&dir, "same");
    let report = std::fs::read(first.join("report.md")).unwrap();
    assert!(run(&["--name", "same"]));
    assert_eq!(std::fs::read(first.join("report.md")).unwrap(), report);
    assert_eq!(raw_results(&run_dir(&dir, "same-2")).len(), 4, "one for each load");
    assert!(!run(&["--name", "../elsewhere"]));
    let count = || std::fs::read_dir(&dir).unwrap().count();
    assert_eq!(count(), 2);
    let failed =
        ["memory", "--small", "--peers", "redis", "--redis", "/bin/false", "--out", path, "--data", path];
    assert!(!Command::new(BENCH).args(failed).output().unwrap().status.success());
    assert_eq!(count(), 2);
}

/// Boots two virtual machines under software emulation. The kernel's own tests are `make -C kernel selftest`.
#[test]
#[ignore = "takes a minute or two, and is run by scripts/test.sh on its own: cargo test --test small_runs -- --ignored"]
fn fork_in_a_virtual_machine() {
    if !["qemu-system-x86_64", "busybox", "redis-server"].iter().all(|name| on_path(name)) {
        return skipped("fork", "qemu-system-x86, busybox-static or redis-server is not installed");
    }
    let dir = TempDir::new("fork");
    let path = dir.to_str().unwrap();
    let table = bench(&["fork", "--small", "--parts", "costs,fork", "--out", path, "--data", path]);
    assert!(table.contains("On-Demand-Fork") && table.contains("not measured"), "{table}");
    let run = run_dir(&dir, "fork");
    assert!(std::fs::metadata(run.join("time.svg")).unwrap().len() > 500);
    let results = raw_results(&run);
    for path in ["futex", "vmsplice", "reclaim", "migrate"] {
        let of = |label| results.iter().filter(move |r| r["path"] == path && r["label"] == label).count();
        // In turn, twice; then beside a process that shares tables.
        assert_eq!((of("unloaded"), of("loaded"), of("shared")), (6, 6, 3), "{path}");
    }
    let forks: Vec<_> = results.iter().filter(|r| r["kind"] == "fork").collect();
    // Two sizes, five strategies.
    assert_eq!(forks.len(), 10);
    assert!(forks.iter().filter(|r| r["strategy"] == "4").all(|r| r["forks_async"] == 1));
}

/// Every part; what is measured is held against what the module promises.
#[test]
#[ignore = "takes many minutes: cargo test --test small_runs -- --ignored exmap"]
fn exmap_in_a_virtual_machine() {
    if !["qemu-system-x86_64", "busybox", "mke2fs"].iter().all(|name| on_path(name)) {
        return skipped("exmap", "qemu-system-x86, busybox-static or e2fsprogs is not installed");
    }
    let dir = TempDir::new("exmap");
    let path = dir.to_str().unwrap();
    let table = bench(&["exmap", "--small", "--out", path, "--data", path]);
    assert!(!table.contains("not measured"), "{table}");
    let run = run_dir(&dir, "exmap");
    for figure in ["churn", "threads", "reads"] {
        assert!(std::fs::metadata(run.join(format!("{figure}.svg"))).unwrap().len() > 500, "{figure}");
    }
    let results = raw_results(&run);
    let churns: Vec<_> = results.iter().filter(|r| r["kind"] == "churn" && r["way"] == "exmap").collect();
    // One thread with two batches; one and two threads, twice.
    assert_eq!(churns.len(), 2 + 2 * 4);
    for churn in &churns {
        let of = |field: &str| churn[field].as_u64().unwrap();
        assert_eq!(of("shootdowns") * of("batch"), of("pages"), "{churn}");
    }
    let told = churns.iter().filter(|r| r["run"] == "interrupts" && r["threads"] == 2);
    assert!(told.clone().count() > 0 && told.map(|r| r["tlb_interrupts"].as_u64().unwrap()).sum::<u64>() > 0);
    let stolen = |way: &str| {
        let own = results.iter().filter(|r| r["run"] == "churn" && r["way"] == way && r["batch"] == 512);
        own.map(|r| r["frames_stolen"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((stolen("exmap"), stolen("exmap_stealing")), (0, 1024));
    for work in ["lookups", "batches", "tpcc"] {
        for backend in ["vmcache", "array", "exmap"] {
            let mut own = results.iter().filter(|r| r["work"] == work && r["backend"] == backend);
            let one = own.next().unwrap_or_else(|| panic!("no {work} on {backend}"));
            positive(&one["count"]);
            positive(&one["evicted_pages"]);
            assert_eq!(one["shootdowns"].as_u64().unwrap() > 0, backend == "exmap", "{one}");
        }
    }
    assert_eq!(results.iter().filter(|r| r["kind"] == "access").count(), 2 * 10);
}

/// Programs of another name that do what a test needs of them, first on the path.
fn fake_program(dir: &Path, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Whether machines can be prepared whose emulator is a script.
fn can_fake_machines() -> bool {
    if !["python3", "gcc", "make", "strip", "cpio", "setpriv"].iter().all(|name| on_path(name)) {
        skipped("fork", "python3, gcc, make, strip, cpio or setpriv is not installed");
        return false;
    }
    if !Path::new(BENCH).with_file_name("stillframe-fork").is_file() {
        skipped("fork", "stillframe-fork is not built in this target directory");
        return false;
    }
    true
}

fn kernel_source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel")
}

/// Files for `fork` where no machine is meant to run: what it puts into one, and a script in the emulator's place.
fn fake_machine(dir: &Path, emulator: &str) {
    fake_program(
        dir,
        "qemu-system-x86_64",
        &format!("[ \"$1\" = --version ] && echo fake && exit\n{emulator}"),
    );
    fake_program(dir, "busybox", "");
    std::os::unix::fs::symlink("/bin/true", dir.join("redis-server")).unwrap();
    std::fs::write(dir.join("vmlinuz-6.1.0"), "").unwrap();
}

fn path_with(dir: &Path) -> String {
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap())
}

/// `fork` with such files, from the shell, so that more can be said before the program's name.
fn fork_command(dir: &Path, before: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(before).arg(BENCH);
    command.args(["fork", "--small", "--parts", "threads", "--module", "/bin/true", "--image"]);
    command.arg(dir.join("vmlinuz-6.1.0")).arg("--kernel-source").arg(kernel_source());
    command.arg("--out").arg(dir.join("out")).arg("--data").arg(dir).env("PATH", path_with(dir));
    command.stdin(Stdio::null());
    command
}

/// Gone, or dead and not yet collected by whoever inherited it.
fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |text| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])))
}

/// With a program that sleeps in the emulator's place.
#[test]
fn an_emulator_does_not_outlive_a_killed_benchmark() {
    if !can_fake_machines() {
        return;
    }
    for signal in ["INT", "TERM", "KILL"] {
        let dir = TempDir::new("killed");
        let noted = dir.join("pid");
        fake_machine(&dir, &format!("echo $$ > {0}.new\nmv {0}.new {0}\nexec sleep 600", noted.display()));
        // Jobs that a shell starts in the background ignore SIGINT, and so do their children.
        let mut bench = fork_command(&dir, &["--default-signal=INT"]).stderr(Stdio::null()).spawn().unwrap();
        assert!(within(Duration::from_secs(60), || noted.exists()), "the emulator was not started");
        let emulator = std::fs::read_to_string(&noted).unwrap().trim().to_owned();
        assert!(!is_gone(&emulator));
        let pid = bench.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        assert!(!bench.wait().unwrap().success());
        assert!(
            within(Duration::from_secs(10), || is_gone(&emulator)),
            "SIG{signal}: the emulator {emulator} lives on"
        );
    }
}

/// What a machine did wrong is said, with the end of its console, and nothing of it stays.
#[test]
fn a_machine_that_fails_is_a_clear_error() {
    if !can_fake_machines() {
        return;
    }
    let died = "threads: the machine stopped before its plan was done; its console ended with\nKernel panic";
    let record = r#"echo '{"kind": "fork", "mb": 1}'; echo the plan is done; exec sleep 600"#;
    let cases = [
        ("exit 0", died),
        ("exit 3", "threads: QEMU ended with 3; its console"),
        ("echo sh: not found", "threads: the plan said 'sh: not found', which is no record; its console"),
        ("echo 7", "threads: the plan said '7'"),
        (
            r#"echo '{"error": "open: no"}'; exec sleep 600"#,
            "threads: open: no; its console ended with\nKernel panic",
        ),
        (r#"echo '{"kind": "news"}'; exec sleep 600"#, "unknown variant `news`"),
        (record, "missing field `strategy`"),
    ];
    for (says, expected) in cases {
        let dir = TempDir::new("fails");
        // The emulator's own words are no records.
        let console =
            "for a in \"$@\"; do case $a in file:*) echo Kernel panic > \"${a#file:}\" ;; esac; done";
        fake_machine(&dir, &format!("echo warning: old >&2\n{console}\n{says}"));
        let out = fork_command(&dir, &[]).output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && stderr.contains(expected), "{says}:\n{stderr}");
        assert!(!stderr.contains("Traceback"), "{says}:\n{stderr}");
        let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_str().unwrap().starts_with("stillframe-bench-")), "{left:?}");
    }
}

/// Each before any machine is started.
#[test]
fn what_no_machine_can_run_without_is_named() {
    if !can_fake_machines() {
        return;
    }
    let dir = TempDir::new("without");
    fake_machine(&dir, "exit 1");
    let said = |extra: &[&str], path: &str| {
        let out = fork_command(&dir, &[]).args(extra).env("PATH", path).output().unwrap();
        assert!(!out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    let path = path_with(&dir);
    let image = said(&["--image", "/nowhere/vmlinuz-6.1.0"], &path);
    assert!(image.contains("no kernel image /nowhere/vmlinuz-6.1.0"), "{image}");
    let source = said(&["--kernel-source", "/nowhere"], &path);
    assert!(source.contains("--kernel-source DIR"), "{source}");
    // A path with everything but one program.
    let bin = TempDir::new("bin");
    for name in
        ["env", "setpriv", "qemu-system-x86_64", "gcc", "make", "strip", "ldd", "busybox", "redis-server"]
    {
        let at = find_program(Path::new(name)).unwrap_or_else(|| dir.join(name));
        std::os::unix::fs::symlink(at, bin.join(name)).unwrap();
    }
    let bin_path = bin.to_str().unwrap();
    assert!(said(&[], bin_path).contains("python3 not found: apt-get install python3"));
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let python = String::from_utf8(python.stdout).unwrap();
    std::os::unix::fs::symlink(python.trim(), bin.join("python3")).unwrap();
    let cpio = said(&[], bin_path);
    assert!(cpio.contains("cpio not found: apt-get install qemu-system-x86 "), "{cpio}");
}

/// The driver by itself: a machine that says nothing is not waited for, and is ended.
#[test]
fn a_silent_machine_is_ended() {
    if !can_fake_machines() {
        return;
    }
    let dir = TempDir::new("silent");
    let noted = dir.join("pid");
    fake_machine(&dir, &format!("echo $$ > {}\nexec sleep 600", noted.display()));
    let boot =
        serde_json::json!({"clock": "host", "cpu_count": 1, "memory_mb": 64, "parameters": "", "plan": ""});
    let job = serde_json::json!({
        "kernel": dir.join("vmlinuz-6.1.0"), "headers": null, "module": "/bin/true", "directory": &*dir,
        "module_name": "async_fork", "bench": "fork_bench", "commands": [], "kernel_modules": [], "programs": [],
        "silence_seconds": 1, "boots": [boot],
    });
    let mut driver = Command::new("python3")
        .arg(kernel_source().join("bench/run"))
        .env("PATH", path_with(&dir))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    driver.stdin.take().unwrap().write_all(job.to_string().as_bytes()).unwrap();
    let said = String::from_utf8(driver.wait_with_output().unwrap().stdout).unwrap();
    let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 2, "{said}");
    assert_eq!((&events[0]["event"], &events[0]["emulator"]), (&"ready".into(), &"fake".into()));
    assert!(
        events[1]["why"].as_str().unwrap().starts_with("nothing was heard of the machine for 1 s"),
        "{said}"
    );
    let emulator = std::fs::read_to_string(&noted).unwrap();
    assert!(is_gone(emulator.trim()), "the emulator lives on");
}
