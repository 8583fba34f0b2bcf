//! Runs every subcommand at its smallest size, so that none rots: against redis-server, and against
//! stillframe-server where it has been built into the same target directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use stillframe_testkit::{Address, Launch, Port, Process, TempDir};

mod running;

use running::{bench, on_path, positive, raw_results, run_dir, skipped, BENCH};

fn stillframe_server() -> Option<PathBuf> {
    let beside = Path::new(BENCH).parent()?.join("stillframe-server");
    let version = Command::new(&beside).arg("--version").stdin(Stdio::null()).output().ok()?;
    (!version.stdout.is_empty()).then_some(beside)
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

#[test]
fn scripts() {
    let Some((table, raw)) = measure("scripts", &[]) else { return };
    assert_eq!(raw.len(), 7 * peers().len());
    raw.iter().for_each(|r| positive(&r["cpu_ns_per_script"]));
    assert!(table.contains("1 MB through cjson"), "{table}");
    let args = ["scripts", "--small", "--scripts", "nosuch"];
    let out = Command::new(BENCH).args(args).stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(stderr.contains("\"nosuch\" is not measured, only one, get, lock"), "{stderr}");
}

#[test]
fn streams() {
    let Some((table, raw)) = measure("streams", &[]) else { return };
    // Three commands, four kinds of memory, four waits.
    assert_eq!(raw.len(), 11 * peers().len());
    let figures = |name: &str| raw.iter().filter(|record| !record[name].is_null()).count();
    assert_eq!(
        [figures("cpu_ns"), figures("bytes"), figures("longest_ns")],
        [3, 4, 4].map(|n| n * peers().len())
    );
    assert!(table.contains("| XADD of a field with 10 B |"), "{table}");
}

/// Each part; those with a slow disk where this process may mount one.
#[test]
fn durability() {
    let Some((table, raw)) = measure("durability", &[]) else { return };
    let of = |part: &str| raw.iter().filter(|record| record["part"] == part).count();
    let peer_count = peers().len();
    assert_eq!((of("cost"), of("alone"), of("replay")), (peer_count, 1 + peer_count, peer_count));
    if table.contains("not measured: mount a file system") {
        skipped("durability on a slow disk", "this process must not mount a file system");
    } else {
        let counts = (of("shared-syncs"), of("readers"), of("stall"));
        assert_eq!(counts, (2 * peer_count, peer_count, peer_count), "{table}");
        for record in raw.iter().filter(|record| record["part"] == "stall" && record["peer"] == "stillframe")
        {
            // A sync that takes three seconds is waited for: the disk was slow.
            positive(&record["get_ns"][0]);
            let set_ns = record["set_ns"][0].as_f64().unwrap();
            assert!(set_ns > 1e8, "no SET waited while the disk stood still: {set_ns} ns");
        }
    }
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
    assert!(evictions.len() >= 12 && evictions.len() % 4 == 0, "{raw:?}");
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
fn waits() {
    let Some((table, raw)) = measure("waits", &[]) else { return };
    assert_eq!(raw.len(), 6 * peers().len(), "{table}");
    raw.iter().for_each(|wait| positive(&wait["median_us"]));
}

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

/// The server that `count` counts, if that can be done here.
fn countable() -> bool {
    let missing: Vec<_> =
        ["valgrind", "vgdb", "strace", "objdump"].into_iter().filter(|name| !on_path(name)).collect();
    if !missing.is_empty() {
        skipped("count", &format!("{missing:?}: scripts/setup.sh count installs them"));
    }
    missing.is_empty() && peers().contains(&"stillframe")
}

#[test]
fn count() {
    if !countable() {
        return;
    }
    let Some((table, mut results)) = measure("count", &["--commands", "ping,set", "--pipelines", "16"])
    else {
        return;
    };
    assert!(table.contains("What a SET executes") && table.contains("event_loop"), "{table}");
    let of_redis = results.iter().filter(|r| r["peer"] == "redis");
    of_redis.for_each(|r| assert!(r["instructions"].as_f64().unwrap() > 500.0 && r["files"] == 0.0, "{r}"));
    results.retain(|r| r["peer"] == "stillframe");
    // Two commands, with one worker and with two.
    assert_eq!(results.len(), 4, "{results:?}");
    let of = |command: &str, workers: u64, figure: &str| {
        let is_it = |r: &&Value| r["command"] == command && r["workers"] == workers;
        results.iter().find(is_it).unwrap()[figure].as_f64().unwrap()
    };
    for workers in [1, 2] {
        let [ping, set] = ["ping", "set"].map(|command| of(command, workers, "instructions"));
        assert!(ping > 100.0 && set > ping + 500.0, "{ping} {set}");
        // A call each for 16 requests and for 16 replies.
        let calls = of("ping", workers, "system_calls");
        assert!(calls > 2.0 / 16.0 && calls < 1.0, "{calls}");
        assert!(of("set", workers, "files") > of("ping", workers, "files") + 5.0);
    }
    assert!(of("set", 1, "locked") >= 1.0 && of("set", 2, "locked") > of("set", 1, "locked"));
}

/// One that is held against a file is the same again, and one that has grown is named.
#[test]
fn counts_are_held_against_a_file() {
    if !countable() {
        return;
    }
    let dir = TempDir::new("counts");
    let (path, file) = (dir.to_str().unwrap(), dir.join("counts.json"));
    let run = |way: &str| {
        let mut command = Command::new(BENCH);
        command.args(["count", "--commands", "ping", "--pipelines", "16", "--workers", "1"]);
        command.args(["--peers", "stillframe", "--data", path, "--out", path, way]).arg(&file);
        let out = command.stdin(Stdio::null()).output().unwrap();
        let text = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (out.status.success(), text)
    };
    let (is_written, text) = run("--write");
    assert!(is_written, "{text}");
    let counts = std::fs::read_to_string(&file).unwrap();
    let (is_held, text) = run("--check");
    assert!(is_held && text.contains("No count has grown"), "{text}");

    let figure = "\"ping -P 16, 1 worker: instructions\": ";
    let (before, after) = counts.split_once(figure).unwrap();
    std::fs::write(&file, format!("{before}{figure}10.5{}", &after[after.find(',').unwrap()..])).unwrap();
    let (is_held, text) = run("--check");
    assert!(!is_held && text.contains("ping -P 16, 1 worker: instructions: 10.5 -> "), "{text}");
    assert!(text.contains("--write"), "how to renew it is not said: {text}");

    std::fs::write(&file, counts.replace("\"rustc\": \"", "\"rustc\": \"1.2.3 ")).unwrap();
    let (is_held, text) = run("--check");
    assert!(is_held && text.contains("SKIP") && text.contains("1.2.3"), "{text}");
}
