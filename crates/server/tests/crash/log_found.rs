//! What a server has, read by its commands.

use stillframe_testkit::Reply;

use crate::log_model::{Data, Entry, Space, Value};
use crate::log_streams;
use crate::process::Client;

/// Keys that are asked for at once.
const CHUNK_KEYS: usize = 64;

pub fn text(reply: &Reply) -> String {
    let bytes = reply.bytes().unwrap_or_else(|| panic!("no text: {reply:?}"));
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn texts(reply: &Reply) -> Vec<String> {
    reply.items().iter().map(text).collect()
}

fn keys_of(conn: &mut Client) -> Vec<String> {
    let mut keys = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let reply = conn.run(&format!("SCAN {cursor} COUNT 500"));
        keys.extend(texts(&reply.items()[1]));
        cursor = text(&reply.items()[0]);
        if cursor == "0" {
            return keys;
        }
    }
}

fn deadline_of(reply: &Reply) -> Option<i64> {
    reply.integer().filter(|deadline_ms| *deadline_ms >= 0)
}

/// Both databases of a client, the first of which has that number.
pub fn fetch(conn: &mut Client, first_db: u32) -> Data {
    let mut data = Data::default();
    for db in 0..2 {
        data.dbs[db as usize] = fetch_space(conn, first_db + db);
    }
    data
}

fn fetch_space(conn: &mut Client, db: u32) -> Space {
    conn.ok(&format!("SELECT {db}"));
    let keys = keys_of(conn);
    let mut space = Space::new();
    for chunk in keys.chunks(CHUNK_KEYS) {
        for key in chunk {
            conn.queue_line(&format!("TYPE {key}"));
            conn.queue_line(&format!("PEXPIRETIME {key}"));
        }
        conn.flush().expect("a connection");
        let kinds: Vec<_> = chunk.iter().map(|_| (conn.read().text(), deadline_of(&conn.read()))).collect();
        for (key, (kind, deadline_ms)) in chunk.iter().zip(kinds) {
            // What expires meanwhile is gone.
            let Some(value) = fetch_value(conn, key, &kind) else { continue };
            let entry = Entry { value, deadline_ms };
            assert!(space.insert(key.clone(), entry).is_none(), "SCAN gave {key} of database {db} twice");
        }
    }
    space
}

fn fetch_value(conn: &mut Client, key: &str, kind: &str) -> Option<Value> {
    let value = match kind {
        "string" => {
            let reply = conn.run(&format!("GET {key}"));
            assert!(!reply.is_error(), "GET {key}: {reply:?}");
            return reply.bytes().map(|bytes| Value::Text(bytes.to_vec().into()));
        }
        "hash" => return fetch_hash(conn, key),
        "list" => Value::List(texts(&conn.run(&format!("LRANGE {key} 0 -1"))).into()),
        "set" => Value::Set(texts(&conn.run(&format!("SMEMBERS {key}"))).into_iter().collect()),
        "zset" => {
            let all = texts(&conn.run(&format!("ZRANGE {key} 0 -1 WITHSCORES")));
            let score = |text: &str| text.parse().unwrap_or_else(|_| panic!("the score {text} of {key}"));
            Value::Sorted(all.chunks(2).map(|pair| (pair[0].clone(), score(&pair[1]))).collect())
        }
        "stream" => return log_streams::fetch(conn, key).map(Value::Stream),
        "none" => return None,
        other => panic!("{key} is a {other}"),
    };
    check_count(conn, key, &value);
    Some(value)
}

/// Fails if a collection has not as many elements as it says.
fn check_count(conn: &mut Client, key: &str, value: &Value) {
    let (command, len) = match value {
        Value::List(items) => ("LLEN", items.len()),
        Value::Set(members) => ("SCARD", members.len()),
        Value::Sorted(members) => ("ZCARD", members.len()),
        Value::Text(_) | Value::Hash(_) | Value::Stream(_) => return,
    };
    assert_eq!(conn.run(&format!("{command} {key}")).integer(), Some(len as i64), "{command} {key}");
}

fn fetch_hash(conn: &mut Client, key: &str) -> Option<Value> {
    let all = texts(&conn.run(&format!("HGETALL {key}")));
    if all.is_empty() {
        return None;
    }
    let fields: Vec<&str> = all.iter().step_by(2).map(String::as_str).collect();
    let reply = conn.run(&format!("HPEXPIRETIME {key} FIELDS {} {}", fields.len(), fields.join(" ")));
    let Some(deadlines) = reply.try_items() else {
        assert!(reply.is_null(), "HPEXPIRETIME {key}: {reply:?}");
        return None;
    };
    let values = all.iter().skip(1).step_by(2);
    // -2: it has expired meanwhile.
    let left = fields.iter().zip(values).zip(deadlines).filter(|(_, reply)| reply.integer() != Some(-2));
    let hash = left.map(|((field, value), reply)| ((*field).to_owned(), (value.clone(), deadline_of(reply))));
    Some(Value::Hash(hash.collect()))
}
