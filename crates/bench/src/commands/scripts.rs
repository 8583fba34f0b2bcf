//! `scripts`: server CPU time a script, peers in alternating rounds on the same data. What costs little by itself is sent sixteen at
//! a time over 50 connections; what takes long, one after the other over one.

use serde_json::{json, Value};

use crate::bar::{self, Bar};
use crate::commands::{place, DataArgs};
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::collections::{append_digits, append_length, append_word};
use crate::load::values::mix;
use crate::load::Requests;
use crate::output::{human_ns, markdown_table, OutArgs, Output};
use crate::peer::{Peer, PeerArgs, PeerKind, Server, StartOptions};
use crate::pin::CpuArgs;
use crate::resp::{Client, Reply};
use crate::stats::{median, with_range};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    peers: PeerArgs,
    /// What is measured, e.g. get,lock [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    scripts: Option<Vec<String>>,
    /// Keys that scripts look at
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 100_000)]
    keys: u64,
    /// Alternating rounds
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    data: DataArgs,
    /// A run of seconds: 2,000 keys, one round
    #[arg(long)]
    small: bool,
    #[command(flatten)]
    cpus: CpuArgs,
    #[command(flatten)]
    out: OutArgs,
}

/// A script, as `EVALSHA script 1 key value` sends it.
#[derive(Clone, Copy, Debug)]
struct Script {
    name: &'static str,
    what: &'static str,
    source: &'static str,
    key: Key,
    /// CPU time in times of redis-server's, at most.
    bar: f64,
}

#[derive(Clone, Copy, Debug)]
enum Key {
    /// One of many, each with a short value; many requests are under way together.
    Any,
    /// This one, whose value is made by [`fill`]; one request after the other.
    One(&'static str),
}

const fn script(name: &'static str, what: &'static str, key: Key, bar: f64, source: &'static str) -> Script {
    Script { name, what, source, key, bar }
}

const JSON: Key = Key::One("json");

const ALL: [Script; 7] = [
    script("one", "return 1", Key::Any, 0.9, "return 1"),
    script("get", "one GET", Key::Any, 0.9, "return redis.call('GET', KEYS[1])"),
    script(
        "lock",
        "a lock taken, and released by its token",
        Key::Any,
        0.9,
        "redis.call('SET', 'lock:' .. KEYS[1], ARGV[1], 'NX', 'PX', 10000)
        if redis.call('GET', 'lock:' .. KEYS[1]) ~= ARGV[1] then return 0 end
        return redis.call('DEL', 'lock:' .. KEYS[1])",
    ),
    script(
        "gets",
        "a hundred GETs",
        Key::Any,
        1.3,
        "local found = 0
        for _ = 1, 100 do if redis.call('GET', KEYS[1]) then found = found + 1 end end
        return found",
    ),
    script(
        "loop",
        "10^8 additions",
        JSON,
        1.05,
        "local sum = 0
        for number = 1, 100000000 do sum = sum + number end
        return sum",
    ),
    script(
        "cjson",
        "1 MB through cjson",
        JSON,
        1.25,
        "return #cjson.encode(cjson.decode(redis.call('GET', KEYS[1])))",
    ),
    script(
        "cmsgpack",
        "the same through cmsgpack",
        Key::One("msgpack"),
        1.25,
        "return #cmsgpack.pack(cmsgpack.unpack(redis.call('GET', KEYS[1])))",
    ),
];

/// Makes the value of `msgpack` of that of `json`.
const PACK: &str =
    "return redis.call('SET', KEYS[2], cmsgpack.pack(cjson.decode(redis.call('GET', KEYS[1]))))";
const JSON_BYTES: usize = 1 << 20;
const JSON_BYTES_SMALL: usize = 16 << 10;

const CONNS: usize = 50;
const PIPELINE: usize = 16;
const FILL_PIPELINE: usize = 64;
const VALUE: &[u8] = b"a value of some bytes";
/// Digits of a key's number.
const DIGITS: usize = 12;

struct Comparison {
    args: Args,
    scripts: Vec<Script>,
    results: Vec<Measurement>,
}

#[derive(Clone, Debug)]
struct Measurement {
    script: &'static str,
    peer: String,
    /// User and system time of the server over the number of scripts.
    cpu_ns: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let mut args = args.clone();
    if args.small {
        (args.keys, args.rounds, args.seconds) = (2000, 1, 0.1);
    }
    let (scripts, peers) = (chosen(&args)?, args.peers.resolve()?);
    let mut out = Output::new(&args.out, "scripts", "Scripts", &peers)?;
    let cpus = place(&args.cpus, &mut out)?;
    out.note("load", format!("closed loop over TCP loopback, {} keys, {} rounds", args.keys, args.rounds));
    let scratch = args.data.scratch();
    let mut servers = Vec::new();
    for peer in &peers {
        let dir = scratch.path().join(&peer.name);
        let server =
            peer.start(&StartOptions { dir, unix_socket: false, keeps_log: false, cpus: cpus.clone() })?;
        fill(&args, &server)?;
        servers.push(server);
    }
    let mut run = Comparison { args, scripts, results: Vec::new() };
    for at in 0..run.scripts.len() {
        for round in 0..run.args.rounds {
            servers.iter().try_for_each(|server| run.measure(run.scripts[at], server, round))?;
        }
    }
    servers.into_iter().try_for_each(Server::stop_without_save)?;
    out.write_json(&run.results.iter().map(Measurement::json).collect::<Vec<_>>())?;
    out.write_markdown(&run.report(&peers))
}

fn chosen(args: &Args) -> Result<Vec<Script>> {
    let Some(names) = &args.scripts else { return Ok(ALL.to_vec()) };
    let find = |name: &String| {
        ALL.into_iter().find(|script| script.name == name).ok_or_else(|| {
            let names = ALL.map(|script| script.name).join(", ");
            BenchError::Failed(format!("{name:?} is not measured, only {names}"))
        })
    };
    names.iter().map(find).collect()
}

/// Keys, a document, and what `cmsgpack` makes of it.
fn fill(args: &Args, server: &Server) -> Result<()> {
    let closed = ClosedLoop { target: server.target.clone(), conn_count: 1, pipeline: FILL_PIPELINE };
    let report = closed.run_for(&mut Sets { key_count: args.keys, sent: 0 }, FILL_SECONDS, None)?;
    check(server, report.tally.first_error)?;
    let mut client = server.client()?;
    let json = document(if args.small { JSON_BYTES_SMALL } else { JSON_BYTES });
    client.call(&["SET", "json", &json])?;
    client.call(&["EVAL", PACK, "2", "json", "msgpack"])?;
    Ok(())
}

/// Longer than any fill takes.
const FILL_SECONDS: f64 = 3600.0;

fn check(server: &Server, error: Option<String>) -> Result<()> {
    match error {
        Some(error) => Err(BenchError::Failed(format!("{} answered with an error: {error}", server.name))),
        None => Ok(()),
    }
}

/// Records as interfaces send them: texts, whole and broken numbers, lists, truth values.
fn document(byte_len: usize) -> String {
    let mut text = String::from("[");
    for number in 0.. {
        let random = mix(number);
        text.push_str(&format!(
            r#"{{"id":{number},"name":"user {}","score":{}.5,"tags":["a","b",{}],"active":{}}}"#,
            random % 1000,
            random % 10_000,
            random % 7,
            random % 2 == 0,
        ));
        if text.len() >= byte_len {
            break;
        }
        text.push(',');
    }
    text + "]"
}

impl Comparison {
    fn measure(&mut self, script: Script, server: &Server, round: usize) -> Result<()> {
        server.pin();
        let sha = load(&mut server.client()?, script.source)?;
        let mut calls =
            Calls { sha, key: script.key, key_count: self.args.keys, sent: round as u64 * ROUND_STRIDE };
        let (conn_count, pipeline) = match script.key {
            Key::Any => (CONNS, PIPELINE),
            Key::One(_) => (1, 1),
        };
        let closed = ClosedLoop { target: server.target.clone(), conn_count, pipeline };
        check(server, closed.run_for(&mut calls, self.args.seconds / 10.0, None)?.tally.first_error)?;
        let before_ns = server.cpu_time_ns();
        let report = closed.run_for(&mut calls, self.args.seconds, None)?;
        let cpu_ns = (server.cpu_time_ns() - before_ns) as f64 / report.replies.max(1) as f64;
        check(server, report.tally.first_error)?;
        eprintln!("  {} round {}: {} {}", script.name, round + 1, server.name, human_ns(cpu_ns));
        self.results.push(Measurement { script: script.name, peer: server.name.clone(), cpu_ns });
        Ok(())
    }

    fn of(&self, script: &Script, peer: &str) -> Vec<f64> {
        let own = self.results.iter().filter(|m| m.script == script.name && m.peer == peer);
        own.map(|m| m.cpu_ns).collect()
    }

    fn report(&self, peers: &[Peer]) -> String {
        let base = peers.iter().find(|peer| peer.kind == PeerKind::Redis);
        let (mut rows, mut bars) = (Vec::new(), Vec::new());
        for script in &self.scripts {
            let mut row = vec![script.what.to_owned()];
            for peer in peers {
                let all = self.of(script, &peer.name);
                row.push(with_range(&all, human_ns));
                if let Some(base) = base.filter(|_| peer.kind == PeerKind::Stillframe) {
                    let ratio = median(&all) / median(&self.of(script, &base.name));
                    let what = format!("{}: {} to {}", script.what, peer.name, base.name);
                    bars.push(Bar::at_most(what, script.bar, " x", Some(ratio)));
                }
            }
            rows.push(row);
        }
        let mut header = vec!["script"];
        header.extend(peers.iter().map(|peer| peer.name.as_str()));
        let small = if self.args.small { "A small run: no measure.\n\n" } else { "" };
        format!(
            "{small}User and system time of the server a script, medians of {} rounds, range in parentheses. {CONNS} connections \
             with {PIPELINE} requests each; additions, cjson and cmsgpack: one request after the other.\n\n{}\n{}",
            self.args.rounds,
            markdown_table(&header, &rows),
            bar::table(&bars)
        )
    }
}

/// Rounds begin at other keys.
const ROUND_STRIDE: u64 = 1 << 32;

fn load(client: &mut Client, source: &str) -> Result<String> {
    match client.call(&["SCRIPT", "LOAD", source])? {
        Reply::Bulk(sha) => Ok(String::from_utf8_lossy(&sha).into_owned()),
        reply => Err(BenchError::Failed(format!("SCRIPT LOAD was answered with {reply:?}"))),
    }
}

impl Measurement {
    fn json(&self) -> Value {
        json!({ "script": self.script, "peer": self.peer, "cpu_ns_per_script": self.cpu_ns })
    }
}

fn append_key(out: &mut Vec<u8>, number: u64) {
    append_length(out, b'$', "key:".len() + DIGITS);
    out.extend_from_slice(b"key:");
    append_digits(out, number, DIGITS);
    out.extend_from_slice(b"\r\n");
}

/// `SET` of each key.
struct Sets {
    key_count: u64,
    sent: u64,
}

impl Requests for Sets {
    fn append_request(&mut self, out: &mut Vec<u8>) {
        append_length(out, b'*', 3);
        append_word(out, b"SET");
        append_key(out, self.sent % self.key_count);
        append_word(out, VALUE);
        self.sent += 1;
    }

    fn request_count(&self) -> Option<u64> {
        Some(self.key_count)
    }
}

/// `EVALSHA` over and over.
struct Calls {
    sha: String,
    key: Key,
    key_count: u64,
    sent: u64,
}

impl Requests for Calls {
    fn append_request(&mut self, out: &mut Vec<u8>) {
        append_length(out, b'*', 5);
        append_word(out, b"EVALSHA");
        append_word(out, self.sha.as_bytes());
        append_word(out, b"1");
        match self.key {
            Key::Any => append_key(out, mix(self.sent) % self.key_count),
            Key::One(name) => append_word(out, name.as_bytes()),
        }
        append_word(out, VALUE);
        self.sent += 1;
    }

    fn request_count(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::scan::ReplyScanner;

    #[test]
    fn requests_are_well_formed() {
        let mut out = Vec::new();
        Sets { key_count: 10, sent: 3 }.append_request(&mut out);
        for script in ALL {
            let mut calls = Calls { sha: "0".repeat(40), key: script.key, key_count: 10, sent: 0 };
            calls.append_request(&mut out);
        }
        // Requests are arrays, which the scanner of replies counts as well.
        assert_eq!(ReplyScanner::new().feed(&out), Ok(1 + ALL.len()));
    }

    #[test]
    fn the_document_is_json_of_the_length_that_is_asked_for() {
        let text = document(10_000);
        let parsed: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(parsed[3]["id"], 3);
        assert!((10_000..10_200).contains(&text.len()), "{}", text.len());
    }
}
