//! Commands that wait, beside Redis: who is served, with what, and what ends a wait.

use std::collections::HashMap;

use crate::harness::*;

/// Clients by their names. `a> LINE` sends what is to wait, and waits until it does; `a LINE` runs a line; `a<` reads the reply
/// of what waited; `a?` is for a client that has not been served. `{a}` in a line is the identity of a client.
struct Talk<'c> {
    connect: &'c mut dyn FnMut() -> Client,
    clients: HashMap<String, Client>,
    ids: HashMap<String, String>,
    said: Vec<Reply>,
}

impl Talk<'_> {
    fn client(&mut self, name: &str) -> &mut Client {
        let Talk { connect, clients, ids, .. } = self;
        clients.entry(name.to_owned()).or_insert_with(|| {
            let mut client = connect();
            ids.insert(name.to_owned(), client.run("CLIENT ID").text());
            client
        })
    }

    fn blocked_count(&mut self) -> u32 {
        self.client("observer").info("blocked_clients").parse().expect("a number")
    }

    fn line(&mut self, line: &str) {
        let (name, rest) = line.split_at(line.find([' ', '>', '<', '?']).expect("a name"));
        self.client(name);
        let said = self.ids.iter().fold(rest[1..].trim_start().to_owned(), |line, (name, id)| {
            line.replace(&format!("{{{name}}}"), id)
        });
        match rest.as_bytes()[0] {
            b'>' => {
                let before = self.blocked_count();
                self.client(name).send(&said);
                eventually(line, || self.blocked_count() == before + 1);
            }
            b'<' => {
                let reply = self.client(name).read();
                self.said.push(reply);
            }
            b'?' => assert!(self.client(name).is_silent(), "{name} has been answered"),
            _ => {
                let reply = self.client(name).run(&said);
                self.said.push(reply);
            }
        }
    }
}

/// Each script on an empty server of ours, and of Redis.
pub fn talk_beside_redis(scripts: &[&[&str]]) {
    beside_redis(&[], &|connect| {
        let mut all = Vec::new();
        for script in scripts {
            let mut talk = Talk { connect, clients: HashMap::new(), ids: HashMap::new(), said: Vec::new() };
            talk.client("observer").ok("FLUSHALL");
            script.iter().for_each(|line| talk.line(line));
            all.append(&mut talk.said);
            drop(talk);
            let mut observer = connect();
            eventually("nobody waits", || observer.info("blocked_clients") == "0");
        }
        all
    });
}

#[test]
fn what_is_there_is_taken_at_once() {
    talk_beside_redis(&[&[
        "a RPUSH k 1 2 3 4 5 6 7 8 9",
        "a BLPOP none k 0",
        "a BRPOP none k 0",
        "a BLMOVE k to LEFT RIGHT 0",
        "a BLMOVE k k RIGHT LEFT 0",
        "a BRPOPLPUSH k to 0",
        "a BLMPOP 0 2 none k LEFT",
        "a BLMPOP 0 2 none k RIGHT COUNT 2",
        "a LRANGE k 0 -1",
        "a LRANGE to 0 -1",
        "a BLMPOP 0 1 k LEFT COUNT 100",
        "a EXISTS k",
        "a ZADD z 1 a 2.5 b 3 c -inf d inf e",
        "a BZPOPMIN none z 0",
        "a BZPOPMAX z 0",
        "a BZMPOP 0 2 none z MIN",
        "a BZMPOP 0 1 z MAX COUNT 9",
        "a EXISTS z",
        "a ZADD z 1.5 a 2 b 3 c",
        "a BZPOPMIN z 0",
        "a BZMPOP 0 1 z MAX COUNT 9",
    ]]);
}

#[test]
fn arguments_are_refused_as_in_redis() {
    let lines = [
        "BLPOP",
        "BLPOP k",
        "BLPOP k x",
        "BLPOP k -1",
        "BLPOP k inf",
        "BLPOP k 1e400",
        "BLPOP k nan",
        "BLPOP k 9223372036854775807",
        "BRPOP k abc",
        "BLMOVE k t LEFT UP 0",
        "BLMOVE k t UP LEFT x",
        "BLMOVE k t LEFT LEFT x",
        "BLMOVE k t LEFT LEFT -1",
        "BRPOPLPUSH k t x",
        "BRPOPLPUSH k t",
        "BLMPOP x 1 k LEFT",
        "BLMPOP -1 1 k LEFT",
        "BLMPOP 0 0 k LEFT",
        "BLMPOP 0 x k LEFT",
        "BLMPOP 0 2 k LEFT",
        "BLMPOP 0 1 k UP",
        "BLMPOP 0 1 k LEFT COUNT",
        "BLMPOP 0 1 k LEFT COUNT 0",
        "BLMPOP 0 1 k LEFT COUNT 1 COUNT 1",
        "BLMPOP x 0 k LEFT",
        "BLMPOP x 1 k UP",
        "BZMPOP x 1 k MIN COUNT x",
        "BZPOPMIN k x",
        "BZPOPMAX k -1",
        "BZMPOP 0 0 k MIN",
        "BZMPOP 0 1 k UP",
        "BZMPOP x 0 k UP",
        "BZMPOP 0 1 k MIN COUNT x",
        "SET s 1",
        "BLPOP s 0",
        "BRPOP none s 0",
        "BLMOVE s t LEFT LEFT 0",
        "BLMPOP 0 1 s LEFT",
        "BZPOPMIN s 0",
        "BZMPOP 0 1 s MAX",
        "RPUSH l 1",
        "BLMOVE l s LEFT LEFT 0",
        "BRPOPLPUSH l s 0",
        "BZPOPMIN l 0",
        "LRANGE l 0 -1",
        "BLPOP l s 0",
        "BLPOP s l 0",
        "BLMOVE none s LEFT LEFT 0.01",
    ];
    let lines: Vec<String> = lines.iter().map(|line| format!("a {line}")).collect();
    talk_beside_redis(&[&lines.iter().map(String::as_str).collect::<Vec<_>>()]);
}

#[test]
fn times_end_as_in_redis() {
    talk_beside_redis(&[
        &[
            "a BLPOP k 0.01",
            "a BRPOP k j 0.0001",
            "a BLMOVE k j LEFT LEFT 0.05",
            "a BRPOPLPUSH k j 0.01",
            "a BLMPOP 0.01 1 k LEFT",
            "a BZPOPMIN k 0.01",
            "a BZPOPMAX k 0.01",
            "a BZMPOP 0.01 1 k MIN",
            "a RPUSH k 1",
            "a LLEN k",
        ],
        // Less than nothing by less than a millisecond is for ever.
        &["a> BLPOP k -0.0001", "a?", "b RPUSH k 1", "a<"],
    ]);
}

#[test]
fn who_came_first_is_served_first() {
    talk_beside_redis(&[
        &[
            "a> BLPOP k 0",
            "b> BRPOP k 0",
            "c> BLPOP k 0",
            "d RPUSH k 1 2",
            "a<",
            "b<",
            "c?",
            "d LPUSH k 3 4",
            "c<",
            "d LRANGE k 0 -1",
        ],
        &["a> BLPOP j k 0", "b> BLPOP k j 0", "d RPUSH k 1", "a<", "d RPUSH j 2", "b<", "d EXISTS k j"],
        // From the key that was made ready first.
        &["a> BLPOP j k 0", "d MULTI", "d RPUSH k 1", "d RPUSH j 2", "d EXEC", "a<", "d EXISTS j k"],
        &["a> BLPOP k k 0", "d RPUSH k 1 2", "a<", "d LRANGE k 0 -1"],
        &[
            "a> BLMPOP 0 1 k RIGHT COUNT 2",
            "b> BLMPOP 0 1 k LEFT COUNT 5",
            "d RPUSH k 1 2 3",
            "a<",
            "b<",
            "d EXISTS k",
        ],
        &[
            "a> BZPOPMIN z 0",
            "b> BZPOPMAX z 0",
            "c> BZMPOP 0 1 z MAX COUNT 2",
            "d ZADD z 1 a 2 b 3 c 4 d",
            "a<",
            "b<",
            "c<",
            "d EXISTS z",
        ],
        &[
            "a> BZPOPMIN z 0",
            "d ZINCRBY z 1.5 a",
            "a<",
            "a> BZPOPMIN z 0",
            "d ZUNIONSTORE z 1 z",
            "a?",
            "d ZADD y 1 a",
            "d ZUNIONSTORE z 1 y",
            "a<",
        ],
        &[
            "a> BZPOPMIN z 0",
            "d GEOADD z 15 37 m",
            "a<",
            "a> BZPOPMIN z 0",
            "d GEOADD y 15 37 m",
            "d GEOSEARCHSTORE z y FROMMEMBER m BYRADIUS 1 km STOREDIST",
            "a<",
        ],
        // A list is nothing for who waits for a sorted set.
        &["a> BZPOPMIN k 0", "b> BLPOP k 0", "d RPUSH k 1", "b<", "a?", "d ZADD k 1 m", "a<"],
        &["a> BLPOP k 0", "d SET k 1", "a?", "d DEL k", "d RPUSH k 1", "a<"],
    ]);
}

#[test]
fn items_go_on_from_list_to_list() {
    talk_beside_redis(&[
        &[
            "a> BLMOVE a b LEFT RIGHT 0",
            "b> BRPOPLPUSH b c 0",
            "c> BLPOP c 0",
            "d RPUSH a 1 2",
            "a<",
            "b<",
            "c<",
            "d LRANGE a 0 -1",
            "d EXISTS b c",
        ],
        &["a> BLMOVE a a LEFT RIGHT 0", "d RPUSH a 1 2", "a<", "d LRANGE a 0 -1"],
        // In a circle: each is served once.
        &[
            "a> BLMOVE a b LEFT RIGHT 0",
            "b> BLMOVE b a LEFT RIGHT 0",
            "d RPUSH a 1",
            "a<",
            "b<",
            "d LRANGE a 0 -1",
            "d EXISTS b",
        ],
        // Not onto another type: the item stays, for the next.
        &["d SET b 1", "a> BLMOVE a b LEFT RIGHT 0", "d RPUSH a 1", "a<", "d LRANGE a 0 -1"],
        &["d SET b 1", "a> BLMOVE a b LEFT RIGHT 0", "b> BLPOP a 0", "d RPUSH a 1", "a<", "b<", "d EXISTS a"],
    ]);
}

#[test]
fn whatever_brings_a_list_there_wakes() {
    talk_beside_redis(&[
        &["d RPUSH x 1", "a> BLPOP k 0", "d RENAME x k", "a<"],
        &["d RPUSH x 1", "a> BLPOP k 0", "d RENAMENX x k", "a<"],
        &["d RPUSH x 1", "a> BLPOP k 0", "d COPY x k", "a<", "d LLEN x"],
        &["a> BLPOP k 0", "d SELECT 1", "d RPUSH k 1", "a?", "d MOVE k 0", "a<"],
        &["a> BLPOP k 0", "d SELECT 1", "d RPUSH k 1", "d SWAPDB 0 1", "a<"],
        &["d SELECT 1", "d RPUSH k 1", "a> BLPOP k 0", "d SWAPDB 1 0", "a<"],
        &["d RPUSH x 2 1", "a> BLPOP k 0", "d SORT x STORE k", "a<", "d LRANGE k 0 -1"],
        &["d RPUSH x 2 1", "a> BLPOP k 0", "d LMOVE x k LEFT LEFT", "a<"],
        &["a> BLPOP k 0", "d LPUSHX k 1", "a?", "d LPUSH k 1", "a<"],
        &["a> BLPOP k 0", "d MULTI", "d RPUSH k 1", "d DEL k", "d EXEC", "a?", "d RPUSH k 2", "a<"],
        &["a> BLPOP k 0", "d MULTI", "d RPUSH k 1", "d RPUSH k 2", "d LPOP k", "d EXEC", "a<", "d EXISTS k"],
        &["a> BLPOP k 0", "d MULTI", "d RPUSH k 1", "d FLUSHALL", "d EXEC", "a?", "d RPUSH k 2", "a<"],
        &["a> BLPOP k 0", "d DEL k", "d FLUSHALL", "d FLUSHDB", "a?", "d RPUSH k 2", "a<"],
        &["a> BZPOPMIN k 0", "d ZADD x 1 a", "d RENAME x k", "a<"],
    ]);
}

#[test]
fn a_transaction_waits_for_nothing() {
    talk_beside_redis(&[
        &[
            "a MULTI",
            "a BLPOP k 0",
            "a BRPOP k 0",
            "a BLMOVE k j LEFT LEFT 0",
            "a BRPOPLPUSH k j 0",
            "a BLMPOP 0 1 k LEFT",
            "a BZPOPMIN k 0",
            "a BZPOPMAX k 0",
            "a BZMPOP 0 1 k MIN",
            "a RPUSH k 1",
            "a BLPOP k 0",
            "a BLPOP k x",
            "a EXEC",
        ],
        // What it pops itself nobody is served with.
        &["a> BLPOP k 0", "d MULTI", "d RPUSH k 1", "d BLPOP k 0", "d EXEC", "a?", "d RPUSH k 2", "a<"],
        // What is served is a change for who watches.
        &[
            "d RPUSH j 1",
            "w WATCH k j",
            "a> BLMOVE k j LEFT LEFT 0",
            "d RPUSH k 1",
            "a<",
            "w MULTI",
            "w PING",
            "w EXEC",
        ],
        &["w WATCH k", "a> BLPOP k 0", "d RPUSH k 1", "a<", "w MULTI", "w PING", "w EXEC"],
        &["w WATCH k", "a> BLPOP k 0", "w MULTI", "w PING", "w EXEC", "d RPUSH k 1", "a<"],
    ]);
}

#[test]
fn others_may_end_a_wait() {
    talk_beside_redis(&[
        &["a> BLPOP k 0", "d CLIENT UNBLOCK {a}", "a<", "d CLIENT UNBLOCK {a}", "d RPUSH k 1", "d LLEN k"],
        &["a> BLMOVE k j LEFT LEFT 0", "d CLIENT UNBLOCK {a} TIMEOUT", "a<"],
        &[
            "a> BZPOPMIN k 0",
            "d CLIENT UNBLOCK {a} ERROR",
            "a<",
            "a PING",
            "d CLIENT UNBLOCK {a} NO",
            "d CLIENT UNBLOCK x",
        ],
        &["a> BLPOP k 0", "b> BLPOP k 0", "d CLIENT KILL ID {a}", "d RPUSH k 1", "b<", "d EXISTS k"],
        &["a> BLPOP k 0.3", "b> BLPOP k 0", "a<", "d RPUSH k 1", "b<"],
    ]);
}

#[test]
fn what_is_restored_wakes() {
    beside_redis(&[], &|connect| {
        let (mut a, mut d, mut said) = (connect(), connect(), Vec::new());
        for (wait, push) in [("BRPOP k 0", "RPUSH x 1 2"), ("BZPOPMAX k 0", "ZADD x 1 a 2 b")] {
            d.run(push);
            let dumped = d.run("DUMP x");
            a.send(wait);
            eventually("it waits", || d.info("blocked_clients") == "1");
            said.push(d.run_bytes(&[b"RESTORE", b"k", b"0", dumped.bytes().expect("a payload")]));
            said.push(a.read());
            said.push(d.run("DEL k x"));
        }
        said
    });
}

/// What is sent behind a command that waits comes after it.
#[test]
fn what_follows_waits_with_it() {
    beside_redis(&[], &|connect| {
        let (mut a, mut d) = (connect(), connect());
        ["PING", "BLPOP k 0", "LLEN k", "BLPOP k 0.02", "ECHO end"].iter().for_each(|line| a.send(line));
        let mut said = vec![a.read()];
        assert!(a.is_silent());
        said.push(d.run("RPUSH k 1"));
        said.extend((0..4).map(|_| a.read()));
        said
    });
}

#[test]
fn a_served_client_changes_the_key_in_the_eyes_of_others() {
    beside_redis(&[], &|connect| {
        let (mut heard, mut d) = (Vec::new(), connect());
        d.ok("CONFIG SET notify-keyspace-events KEA");
        let scripts = [
            ("BLPOP k 0", "RPUSH k 1"),
            ("BRPOP k 0", "RPUSH k 1 2"),
            ("BLMOVE k j LEFT RIGHT 0", "RPUSH k 1"),
            ("BRPOPLPUSH k j 0", "RPUSH k 1"),
            ("BLMPOP 0 1 k LEFT COUNT 9", "RPUSH k 1 2"),
            ("BZPOPMIN k 0", "ZADD k 1 a"),
            ("BZPOPMAX k 0", "ZADD k 1 a 2 b"),
            ("BZMPOP 0 1 k MAX", "ZADD k 1 a"),
        ];
        for (wait, push) in scripts {
            d.ok("FLUSHALL");
            let (mut a, mut listener) = (connect(), connect());
            a.send(wait);
            eventually("it waits", || d.info("blocked_clients") == "1");
            listener.run("PSUBSCRIBE __key*");
            heard.push(d.run(push));
            heard.push(a.read());
            d.run("PUBLISH __key_end end");
            loop {
                let message = listener.read();
                let is_last = message.items().last().is_some_and(|last| last.text() == "end");
                heard.push(message);
                if is_last {
                    break;
                }
            }
        }
        heard
    });
}

#[test]
fn replies_are_those_of_the_clients_protocol() {
    beside_redis(&[], &|connect| {
        let (mut a, mut d, mut said) = (connect(), connect(), Vec::new());
        a.run("HELLO 3");
        for (wait, push) in [
            ("BLPOP k 0", "RPUSH k 1"),
            ("BZPOPMIN z 0", "ZADD z 1.5 a"),
            ("BZMPOP 0 1 z MAX COUNT 2", "ZADD z 1.5 a 2 b"),
        ] {
            a.send(wait);
            eventually("it waits", || d.info("blocked_clients") == "1");
            said.push(d.run(push));
            said.push(a.read());
        }
        said.push(a.run("BLPOP k 0.01"));
        said.push(a.run("BLMOVE k j LEFT LEFT 0.01"));
        said
    });
}

/// A bit that was as it is set is no change, though the encoding of the value becomes another.
#[test]
fn a_bit_set_as_it_was_is_no_change() {
    talk_beside_redis(&[
        &["d SET k abc", "w WATCH k", "d SETBIT k 0 0", "d OBJECT ENCODING k", "w MULTI", "w PING", "w EXEC"],
        &[
            "d SET k abc",
            "w WATCH k",
            "d SETBIT k 15 0",
            "d OBJECT ENCODING k",
            "w MULTI",
            "w PING",
            "w EXEC",
        ],
        &[
            "d SET k 123",
            "w WATCH k",
            "d BITFIELD k SET u8 0 49",
            "d OBJECT ENCODING k",
            "w MULTI",
            "w PING",
            "w EXEC",
        ],
        &["d SET k abc", "w WATCH k", "d SETBIT k 0 1", "w MULTI", "w PING", "w EXEC"],
        &["d SET k abc", "w WATCH k", "d SETBIT k 31 0", "w MULTI", "w PING", "w EXEC"],
    ]);
}
