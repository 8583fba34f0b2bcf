//! What a server holds, asked for by commands, and how it gets there.

use std::collections::{BTreeMap, BTreeSet};

use crate::data::{Bytes, Content, Data, Key};
use crate::harness::{Client, Reply};

/// Of each stream.
const GROUP: &[u8] = b"group";
/// Elements a command.
const CHUNK: usize = 500;

fn run(client: &mut Client, words: &[&[u8]]) -> Reply {
    let reply = client.run_bytes(words);
    assert!(!reply.is_error(), "{}: {reply:?}", String::from_utf8_lossy(words[0]));
    reply
}

fn add<'e>(client: &mut Client, command: &str, key: &[u8], elements: impl Iterator<Item = Vec<&'e [u8]>>) {
    let elements: Vec<_> = elements.collect();
    for chunk in elements.chunks(CHUNK) {
        let words = [command.as_bytes(), key].into_iter().chain(chunk.iter().flatten().copied());
        run(client, &words.collect::<Vec<_>>());
    }
}

/// Makes a key by commands.
fn make(client: &mut Client, key: &Key) {
    let name = &key.name[..];
    match &key.content {
        // Whatever is changed in place is raw, as short as it may be.
        Content::String(value) if key.encoding == "raw" => {
            run(client, &[b"SETRANGE", name, b"0", value]);
        }
        Content::String(value) => {
            run(client, &[b"SET", name, value]);
        }
        Content::List(items) => add(client, "RPUSH", name, items.iter().map(|item| vec![&item[..]])),
        Content::Set(members) => add(client, "SADD", name, members.iter().map(|member| vec![&member[..]])),
        Content::SortedSet(members) => {
            add(client, "ZADD", name, members.iter().map(|(member, score)| vec![&score[..], &member[..]]));
        }
        // See below.
        Content::Stream(_) => {}
        Content::Hash(fields) => {
            let pairs = fields.iter().map(|(field, (value, _))| vec![&field[..], &value[..]]);
            add(client, "HSET", name, pairs);
            for (field, (_, deadline_ms)) in fields {
                let Some(deadline) = deadline_ms.map(|deadline_ms| deadline_ms.to_string()) else { continue };
                run(client, &[b"HPEXPIREAT", name, deadline.as_bytes(), b"FIELDS", b"1", field]);
            }
        }
    }
    if let Content::Stream(entries) = &key.content {
        for (id, field, value) in entries {
            run(client, &[b"XADD", name, id.as_bytes(), field, value]);
        }
        run(client, &[b"XGROUP", b"CREATE", name, GROUP, b"0"]);
        run(client, &[b"XREADGROUP", b"GROUP", GROUP, b"consumer", b"COUNT", b"2", b"STREAMS", name, b">"]);
    }
    if let Some(deadline_ms) = key.deadline_ms {
        run(client, &[b"PEXPIREAT", name, deadline_ms.to_string().as_bytes()]);
    }
}

/// Makes all keys, with a save in the middle, so that a page file has two checkpoints.
pub fn fill(client: &mut Client, data: &Data) {
    for (index, key) in data.keys.iter().enumerate() {
        client.ok(&format!("SELECT {}", key.db));
        make(client, key);
        if index == data.keys.len() / 2 {
            client.ok("SAVE");
        }
    }
}

fn words(reply: Reply) -> Vec<Bytes> {
    let words = reply.items().iter().map(|item| item.bytes().expect("a string").to_vec());
    words.collect()
}

fn pairs(words: Vec<Bytes>) -> impl Iterator<Item = (Bytes, Bytes)> {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (index, word) in words.into_iter().enumerate() {
        if index % 2 == 0 { &mut names } else { &mut values }.push(word);
    }
    assert_eq!(names.len(), values.len());
    names.into_iter().zip(values)
}

fn hash(client: &mut Client, name: &[u8]) -> Content {
    let pairs: Vec<_> = pairs(words(run(client, &[b"HGETALL", name]))).collect();
    let count = pairs.len().to_string();
    let mut line = vec![&b"HPEXPIRETIME"[..], name, b"FIELDS", count.as_bytes()];
    line.extend(pairs.iter().map(|(field, _)| &field[..]));
    let reply = run(client, &line);
    let deadlines = reply.items().iter().map(|item| item.integer().filter(|deadline_ms| *deadline_ms != -1));
    let deadlines: Vec<_> = deadlines.collect();
    let fields = pairs.into_iter().zip(deadlines);
    Content::Hash(fields.map(|((field, value), deadline_ms)| (field, (value, deadline_ms))).collect())
}

fn stream(client: &mut Client, name: &[u8]) -> Content {
    let pending = run(client, &[b"XPENDING", name, GROUP]);
    let reply = run(client, &[b"XRANGE", name, b"-", b"+"]);
    let entries: Vec<(String, Bytes, Bytes)> = reply
        .items()
        .iter()
        .map(|entry| {
            let parts = words(entry.items()[1].clone());
            (entry.items()[0].text(), parts[0].clone(), parts[1].clone())
        })
        .collect();
    let owned = entries.len().min(2);
    let consumer =
        Reply::Array(vec![Reply::Bulk(b"consumer".to_vec()), Reply::Bulk(owned.to_string().into())]);
    let id = |entry: &(String, Bytes, Bytes)| Reply::Bulk(entry.0.clone().into_bytes());
    let all = Reply::Array(vec![consumer]);
    assert_eq!(
        pending,
        Reply::Array(vec![Reply::Int(owned as i64), id(&entries[0]), id(&entries[owned - 1]), all])
    );
    Content::Stream(entries)
}

fn content(client: &mut Client, name: &[u8], value_type: &str) -> Content {
    match value_type {
        "string" => Content::String(run(client, &[b"GET", name]).bytes().expect("a string").to_vec()),
        "list" => Content::List(words(run(client, &[b"LRANGE", name, b"0", b"-1"]))),
        "set" => {
            let members = words(run(client, &[b"SMEMBERS", name]));
            let (count, members) = (members.len(), BTreeSet::from_iter(members));
            assert_eq!(members.len(), count, "a member twice");
            Content::Set(members)
        }
        "zset" => {
            let scored = words(run(client, &[b"ZRANGE", name, b"0", b"-1", b"WITHSCORES"]));
            let count = scored.len() / 2;
            let members = BTreeMap::from_iter(pairs(scored));
            assert_eq!(members.len(), count, "a member twice");
            Content::SortedSet(members)
        }
        "hash" => hash(client, name),
        "stream" => stream(client, name),
        other => panic!("a {other}"),
    }
}

fn check_key(client: &mut Client, key: &Key) {
    let shown = format!("{}:{:.60}", key.db, key.name.escape_ascii().to_string());
    let text = |client: &mut Client, words: &[&[u8]]| run(client, words).text();
    let value_type = text(client, &[b"TYPE", &key.name]);
    assert_eq!(value_type, key.content.type_name(), "{shown}");
    assert_eq!(text(client, &[b"OBJECT", b"ENCODING", &key.name]), key.encoding, "{shown}");
    let deadline_ms = key.deadline_ms.unwrap_or(-1);
    assert_eq!(text(client, &[b"PEXPIRETIME", &key.name]), deadline_ms.to_string(), "{shown}");
    let found = content(client, &key.name, &value_type);
    let [found_len, expected_len] = [&found, &key.content].map(Content::len);
    assert!(found == key.content, "{shown} is another {value_type}, length {found_len}, not {expected_len}");
}

/// Checks every key, and that there are no others.
pub fn check(client: &mut Client, data: &Data) {
    let keyspace = client.try_info("keyspace").expect("INFO");
    let databases: BTreeSet<u32> = keyspace
        .keys()
        .map(|db| db.strip_prefix("db").and_then(|db| db.parse().ok()).expect("a database"))
        .collect();
    assert_eq!(databases, data.databases());
    for db in databases {
        client.ok(&format!("SELECT {db}"));
        assert_eq!(client.run("DBSIZE").text(), data.of_database(db).count().to_string(), "database {db}");
        data.of_database(db).for_each(|key| check_key(client, key));
        let timed = data.of_database(db).filter(|key| key.deadline_ms.is_some()).count();
        assert!(keyspace[&format!("db{db}")].contains(&format!("expires={timed},")), "{keyspace:?}");
    }
    client.ok("SELECT 0");
}
