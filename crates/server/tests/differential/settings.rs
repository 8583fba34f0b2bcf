//! Every setting of the oracle, given all kinds of values.

use stillframe_testkit::{log_flags, Client, Reply};

use crate::server::{Kind, Server, STILLFRAME};

/// What a setting is given beside the value that it has.
const VALUES: [&str; 17] = [
    "abc",
    "-1",
    "yes",
    "no",
    "",
    "1",
    "0",
    "1gb",
    "10%",
    "99999999999999999999",
    "1 2",
    "+1",
    "007",
    "LOCAL",
    "0x10",
    "2.5",
    " 1",
];

/// Settings that cannot be tried here: the servers would lose their places, their clients, or all of their memory.
const NOT_TRIED: [&str; 11] = [
    "bind",
    "client-query-buffer-limit",
    "dir",
    "logfile",
    "maxclients",
    "maxmemory-clients",
    "maxmemory-policy",
    "port",
    "requirepass",
    "timeout",
    "unixsocket",
];

/// Settings that Debian's Redis knows and that do something only in it; a value that it takes is refused here.
const REFUSED: [&str; 3] = ["min-replicas-to-write", "min-slaves-to-write", "aof-timestamp-enabled"];

/// Settings without an effect here, whose values Redis checks or rounds.
const UNCHECKED: [&str; 2] = ["cluster-announce-hostname", "repl-backlog-size"];

fn set(conn: &mut Client, name: &str, value: &str) -> Reply {
    let words = ["CONFIG", "SET", name, value].map(|word| word.as_bytes().to_vec());
    conn.try_run_words(&words).expect("a reply")
}

fn get(conn: &mut Client, name: &str) -> Reply {
    conn.try_run(&format!("CONFIG GET {name}")).expect("a reply")
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned()
}

/// All settings of a server with their values.
fn all(conn: &mut Client) -> Vec<(String, String)> {
    let reply = get(conn, "*");
    reply.items().chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

/// What is wrong with the subject's answer to a value, if anything.
fn compare(oracle: &mut Client, subject: &mut Client, name: &str, value: &str) -> Option<String> {
    let (expected, given) = (set(oracle, name, value), set(subject, name, value));
    let is_refusal = REFUSED.contains(&name) && !expected.is_error() && given.is_error();
    let (kept, shown) = (get(oracle, name), get(subject, name));
    let is_same = expected == given && kept == shown;
    (!is_same && !is_refusal)
        .then(|| format!("{name} {value:?}: {expected:?} {kept:?}, not {given:?} {shown:?}"))
}

#[test]
fn every_setting_is_taken_or_refused_as_by_the_oracle() {
    let (oracle, subject) = (Server::start(Kind::Oracle), Server::start(STILLFRAME));
    let mut oracle = oracle.connect().map(|conn| (oracle, conn)).expect("a connection");
    let mut subject = subject.connect().map(|conn| (subject, conn)).expect("a connection");
    let (oracle, subject) = (&mut oracle.1, &mut subject.1);
    let mut wrong = Vec::new();
    for (name, before) in all(oracle) {
        if name.starts_with("tls-")
            || NOT_TRIED.contains(&name.as_str())
            || UNCHECKED.contains(&name.as_str())
        {
            continue;
        }
        // A suite with a log starts the subject with other settings.
        set(subject, &name, &before);
        for value in VALUES.iter().copied().chain([before.as_str()]) {
            let is_tried = match name.as_str() {
                // The bound would be passed at once.
                "maxmemory" => ["abc", "-1", "10%", "", "0"].contains(&value),
                // Percentiles in hexadecimal digits are left to Redis.
                "latency-tracking-info-percentiles" => value != "0x10",
                _ => true,
            };
            if !is_tried {
                continue;
            }
            wrong.extend(compare(oracle, subject, &name, value));
            set(oracle, &name, &before);
            set(subject, &name, &before);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_setting_is_there_with_the_oracles_default() {
    let (oracle, subject) = (Server::start(Kind::Oracle), Server::start(STILLFRAME));
    let expected = all(&mut oracle.connect().expect("a connection"));
    let given = all(&mut subject.connect().expect("a connection"));
    // It has one value more here, which is the default.
    let mut own = vec!["dir", "maxmemory-policy", "unixsocket"];
    if !log_flags().is_empty() {
        own.extend(["appendonly", "appendfsync"]);
    }
    for (name, value) in expected.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
        assert!(given.contains(&(name.clone(), value.clone())), "{name} {value:?}");
    }
}
