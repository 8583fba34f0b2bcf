//! Publish and subscribe, and keyspace notifications, beside Redis.

use crate::harness::*;

/// Sends a line and reads so many replies.
fn exchange(client: &mut Client, line: &str, count: usize, into: &mut Vec<Reply>) {
    client.send(line);
    into.extend((0..count).map(|_| client.read()));
}

fn talk(hello: &str, connect: &mut dyn FnMut() -> Client) -> Vec<Reply> {
    let (mut a, mut b, mut all) = (connect(), connect(), Vec::new());
    if hello == "3" {
        a.run("HELLO 3");
    }
    exchange(&mut a, "UNSUBSCRIBE", 1, &mut all);
    exchange(&mut a, "PUNSUBSCRIBE nothing", 1, &mut all);
    exchange(&mut a, "SUBSCRIBE news sports news", 3, &mut all);
    exchange(&mut a, "PSUBSCRIBE n* [", 2, &mut all);
    exchange(&mut a, "SSUBSCRIBE shard", 1, &mut all);
    exchange(&mut b, "PUBLISH news hello", 1, &mut all);
    all.extend((0..2).map(|_| a.read()));
    exchange(&mut b, "SPUBLISH shard there", 1, &mut all);
    all.push(a.read());
    exchange(&mut b, "PUBLISH nobody cares", 1, &mut all);
    all.push(a.read());
    exchange(&mut b, "PUBLISH else silence", 1, &mut all);
    for line in ["PUBSUB CHANNELS x*", "PUBSUB NUMSUB news else", "PUBSUB NUMPAT", "PUBSUB SHARDCHANNELS"] {
        exchange(&mut b, line, 1, &mut all);
    }
    for line in ["PUBSUB SHARDNUMSUB shard x", "PUBSUB HELP", "PUBSUB CHANNELS a b", "PUBSUB none", "PUBSUB"]
    {
        exchange(&mut b, line, 1, &mut all);
    }
    for line in ["GET k", "CONFIG GET port", "PING", "PING text", "PING a b", "ECHO x"] {
        if hello != "3" || !line.starts_with("CONFIG") {
            exchange(&mut a, line, 1, &mut all);
        }
    }
    exchange(&mut a, "UNSUBSCRIBE sports none", 2, &mut all);
    exchange(&mut b, "PUBLISH sports unheard", 1, &mut all);
    exchange(&mut a, "PUNSUBSCRIBE n*", 1, &mut all);
    exchange(&mut a, "UNSUBSCRIBE", 1, &mut all);
    exchange(&mut a, "PUNSUBSCRIBE", 1, &mut all);
    exchange(&mut a, "SUNSUBSCRIBE", 1, &mut all);
    exchange(&mut a, "GET k", 1, &mut all);
    // Within a transaction, and unanswered.
    exchange(&mut b, "MULTI", 1, &mut all);
    exchange(&mut b, "PUBLISH c 1", 1, &mut all);
    exchange(&mut b, "EXEC", 1, &mut all);
    a.send("CLIENT REPLY OFF");
    exchange(&mut a, "SUBSCRIBE off", 1, &mut all);
    exchange(&mut b, "PUBLISH off x", 1, &mut all);
    all.push(a.read());
    exchange(&mut a, "RESET", 1, &mut all);
    exchange(&mut b, "PUBLISH off x", 1, &mut all);
    exchange(&mut a, "PING", 1, &mut all);
    all
}

#[test]
fn subscribers_hear_and_are_answered_as_in_redis() {
    for hello in ["2", "3"] {
        beside_redis(&[], &|connect| talk(hello, connect));
    }
}

/// What changes keys, or looks for keys that are not there. A line each.
#[rustfmt::skip]
const LINES: &[&str] = &[
    "SET a 1", "SET a 2 EX 100", "SET a 3 KEEPTTL", "SET a 4 XX", "SET none 4 XX", "SETNX b 1", "SETNX b 2",
    "GETSET b 3", "MSET a 1 c 2", "MSETNX a 1 d 1", "MSETNX d 1 e 1", "INCR n", "INCRBY n 5", "DECR n",
    "DECRBY n 2", "INCRBYFLOAT f 1.5", "APPEND a x", "APPEND new y", "SETRANGE a 2 zz", "SETRANGE r 3 q",
    "SETRANGE nothing 0 ", "SETBIT bits 7 1", "SETBIT bits 7 1", "BITFIELD bits SET u8 0 5 INCRBY u8 8 1",
    "BITFIELD bits GET u8 0", "BITOP NOT dest bits", "BITOP AND dest none1 none2", "EXPIRE a 100", "PERSIST a",
    "PERSIST a", "EXPIRE none 100", "EXPIRE a -1", "GETEX b EX 100", "GETEX b PERSIST", "GETEX b", "GETDEL b",
    "GETDEL b", "DEL c none", "UNLINK d e", "RENAME n m", "RENAMENX m n", "COPY n copied", "COPY n copied REPLACE",
    "MOVE n 3", "SETEX s 100 v", "PSETEX s 100000 v", "GET none", "EXISTS none s", "TYPE none", "TTL none",
    "STRLEN none", "GETRANGE none 0 1", "MGET none s", "OBJECT ENCODING none", "GETBIT none 1", "BITCOUNT none",
    "HSET h f 1", "HSET h f 2 g 3", "HSETNX h f 1", "HSETNX h i 1", "HMSET h a 1 b 2", "HINCRBY h f 5",
    "HINCRBYFLOAT h f 1.5", "HINCRBY h2 f 1", "HGET none f", "HGETALL none", "HLEN none", "HDEL h none", "HDEL h f g f",
    "HEXISTS none f", "HMGET none f", "HSTRLEN none f", "HRANDFIELD none", "HRANDFIELD none 2", "HSCAN none 0",
    "COPY h h3", "RENAME h3 h4", "HDEL h i a b", "DEL h2 h4",
    "RPUSH l a b c a", "LPUSH l z a", "LPUSHX l y", "RPUSHX none y", "LPUSHX none y", "LSET l 0 x", "LSET none 0 x",
    "LINSERT l BEFORE b q", "LINSERT l AFTER none q", "LREM l 0 a", "LREM l 0 none", "LTRIM l 1 -1",
    "LTRIM l 0 -1",
    "LPOP l", "RPOP l 2", "LPOP none", "RPOP none 3", "LPOP l 0", "RPUSH l 1 2 3 4", "LMOVE l l2 LEFT RIGHT",
    "LMOVE l l LEFT RIGHT", "RPOPLPUSH l2 l2", "RPOPLPUSH l2 l", "LMOVE none l LEFT LEFT", "LMPOP 2 none l LEFT COUNT 2",
    "LMPOP 1 none RIGHT", "LLEN none", "LRANGE none 0 -1", "LINDEX none 0", "LPOS none a", "LREM none 0 a", "LTRIM none 0 1",
    "LTRIM l 5 2", "RPUSH l a a", "LREM l 0 a", "RPUSH l a", "RPOP l", "RPUSH l a b", "LPOP l 9", "RPUSH l a",
    "LMPOP 1 l RIGHT COUNT 5", "RPUSH l a", "COPY l l3", "LMOVE l l3 LEFT LEFT",
    "GEOADD geo 15 37 x 15.1 37 y", "GEOADD geo 15 37 x", "GEOADD geo CH 16 37 x", "GEOADD geo XX 1 1 none",
    "GEOSEARCHSTORE near geo FROMMEMBER x BYRADIUS 1 km", "GEOSEARCHSTORE near geo FROMMEMBER x BYBOX 1 1 km STOREDIST",
    "GEOSEARCHSTORE near geo FROMLONLAT 0 0 BYRADIUS 1 m", "GEOSEARCHSTORE near geo FROMLONLAT 0 0 BYRADIUS 1 m",
    "GEORADIUS geo 15 37 100 km STORE near", "GEORADIUS geo 15 37 100 km", "GEORADIUSBYMEMBER geo x 1 km STOREDIST near",
    "GEORADIUS none 1 1 1 m STORE near", "GEOPOS none a", "GEOHASH none a", "GEODIST none a b",
    "GEOSEARCH none FROMMEMBER x BYRADIUS 1 m",
    "SADD s a b a", "SADD s a", "SADD s c d e f", "SREM s a none", "SREM none a", "SMOVE s s2 b", "SMOVE s s2 none", "SMOVE s2 s2 b",
    "SPOP s2", "SPOP none", "SPOP s 2", "SPOP s 0", "SADD i 1 2 3", "SINTERSTORE to i i", "SUNIONSTORE to i none", "SDIFFSTORE to i i",
    "SDIFFSTORE to i i", "SPOP i 9", "SADD i 1", "SREM i 1", "SADD i 1", "SMOVE i i2 1", "SORT i2 STORE to", "SORT none STORE to",
    "ZADD z 1 a 2 b 3 c 4 d", "ZADD z 1 a", "ZADD z XX CH 5 a", "ZADD z NX 1 a", "ZADD z INCR 1 a", "ZADD z XX INCR 1 none",
    "ZADD z GT INCR -1 a", "ZINCRBY z 1 b", "ZINCRBY z 0 b", "ZREM z a none", "ZREM none a", "ZADD z 1 a 2 e 6 f 7 g 8 h",
    "ZPOPMIN z", "ZPOPMAX z 1", "ZPOPMIN none", "ZPOPMAX z 0", "ZMPOP 1 z MIN", "ZMPOP 2 none z MAX COUNT 1",
    "ZREMRANGEBYRANK z 0 0", "ZREMRANGEBYRANK z 9 9", "ZREMRANGEBYSCORE z 0 4", "ZREMRANGEBYLEX z - +", "ZADD z 0 a 0 b 0 c",
    "ZREMRANGEBYLEX z - (b", "ZRANGESTORE to z 0 -1", "ZRANGESTORE to none 0 -1", "ZRANGESTORE to none 0 -1",
    "ZUNIONSTORE to 2 z none", "ZINTERSTORE to 2 z none", "ZDIFFSTORE to 1 z", "ZDIFFSTORE z 2 z to", "PFADD hll a b c", "PFADD hll a",
    "PFADD hll2", "PFMERGE hll3 hll hll2", "PFMERGE hll3", "PFCOUNT hll",
    "DUMP none", "TOUCH none", "SET short v PX 1", "FLUSHDB", "SET last 1",
];

/// Each change under its name, in its order, to both kinds of channels.
#[test]
fn keyspace_notifications_are_those_of_redis() {
    let script = |connect: &mut dyn FnMut() -> Client| {
        let (mut a, mut b, mut heard) = (connect(), connect(), Vec::new());
        for events in ["KEA", "KEg$xenm", "E$", "Kg", ""] {
            b.ok("FLUSHALL");
            b.run_bytes(&[b"CONFIG", b"SET", b"notify-keyspace-events", events.as_bytes()]);
            heard.push(b.run("CONFIG GET notify-keyspace-events"));
            a.run("PSUBSCRIBE __key*");
            for line in LINES {
                b.run(line);
                if line.ends_with("PX 1") {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    b.run("GET short");
                }
            }
            let dumped =
                [b"RESTORE".as_slice(), b"restored", b"0", b"\0\x01v\x0b\0\xdbS\xa5m\xdd\xef\xbe\x89"];
            b.run_bytes(&dumped);
            b.run("PUBLISH __key_end end");
            loop {
                let message = a.read();
                let is_end = message.items()[2].text() == "__key_end";
                heard.push(message);
                if is_end {
                    break;
                }
            }
            a.run("PUNSUBSCRIBE");
        }
        heard
    };
    beside_redis(&[], &script);
}

/// Who does not read is closed at the limit of its class, and others hear on.
#[test]
fn a_subscriber_that_does_not_read_is_closed() {
    let server = TestServer::start(&["--client-output-buffer-limit", "pubsub 1mb 0 0"]);
    let (mut deaf, mut a, mut b) = (server.connect(), server.connect(), server.connect());
    deaf.run("SUBSCRIBE c");
    a.run("SUBSCRIBE c");
    let payload = "x".repeat(100_000);
    let mut count = Reply::Int(2);
    for _ in 0..400 {
        count = b.run(&format!("PUBLISH c {payload}"));
        a.read();
        if count == Reply::Int(1) {
            break;
        }
    }
    assert_eq!(count, Reply::Int(1), "the one that reads is left");
    assert_eq!(b.info("client_output_buffer_limit_disconnections"), "1");
}

#[test]
fn subscribers_are_told_apart() {
    let server = TestServer::start(&["--workers", "2", "--timeout", "1"]);
    let (mut a, mut b) = (server.connect(), server.connect());
    a.run("SUBSCRIBE c d");
    a.run_bytes(&[b"PING"]);
    eventually("its worker has told", || {
        b.run("CLIENT LIST TYPE pubsub").text().contains("sub=2 psub=0 ssub=0")
    });
    let list = b.run("CLIENT LIST TYPE pubsub").text();
    assert!(list.lines().count() == 1 && list.contains(" flags=P "), "{list}");
    assert_eq!(b.info("pubsub_channels"), "2");
    for _ in 0..6 {
        std::thread::sleep(std::time::Duration::from_millis(400));
        b.run("PING");
    }
    assert_eq!(b.run("PUBLISH c x"), Reply::Int(1), "the timeout is not for who listens");
    assert_eq!(b.run("CLIENT KILL TYPE pubsub"), Reply::Int(1));
    eventually("nobody listens", || b.info("pubsub_channels") == "0");
}
