//! What arrives in pieces, wrongly, or too large.

use std::time::Duration;

use crate::harness::*;

#[test]
fn pieces_of_any_size_are_put_together() {
    let server = TestServer::start(&[]);
    let mut client = server.connect();
    let input = encoded(&[b"SET", b"k\r\n\0\xff", b"v\r\n"]);
    for byte in &input {
        client.send_raw(&[*byte]);
    }
    assert_eq!(client.read(), Reply::ok());
    assert_eq!(client.run_bytes(&[b"GET", b"k\r\n\0\xff"]), Reply::Bulk(b"v\r\n".to_vec()));
    // Inline commands, with quotes and empty lines, in one piece with others.
    client.send_raw(b"\r\n  SET 'a b' \"x\\x41\"\r\n\r\nGET \"a b\"\nPING\r\n*1\r\n$4\r\nPING\r\n");
    assert_eq!(client.read(), Reply::ok());
    assert_eq!(client.read(), Reply::Bulk(b"xA".to_vec()));
    assert_eq!(client.read(), Reply::Simple("PONG".into()));
    assert_eq!(client.read(), Reply::Simple("PONG".into()));
}

#[test]
fn long_pipelines_are_answered_in_order() {
    let server = TestServer::start(&["--workers", "2"]);
    let mut clients: Vec<Client> = (0..5).map(|_| server.connect()).collect();
    let count = 20_000;
    for (number, client) in clients.iter_mut().enumerate() {
        let input: Vec<u8> =
            (0..count).flat_map(|i| encoded(&[b"ECHO", format!("{number}:{i}").as_bytes()])).collect();
        client.send_raw(&input);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        for i in 0..count {
            assert_eq!(client.read().text(), format!("{number}:{i}"));
        }
    }
}

/// Sends `input` after a `PING` and gives what comes back until the connection is closed.
fn answer_to(server: &TestServer, input: &[u8]) -> String {
    let mut client = server.connect();
    client.send_raw(b"PING\r\n");
    client.send_raw(input);
    String::from_utf8_lossy(&client.read_to_end()).into_owned()
}

#[test]
fn protocol_errors_close_the_connection() {
    let server = TestServer::start(&[]);
    for (input, error) in [
        (&b"*x\r\n"[..], "invalid multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\nPING\r\n", "invalid multibulk length"),
        (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$9999999999999999999\r\n", "invalid bulk length"),
        (b"SET 'a\r\n", "unbalanced quotes in request"),
        (&[b'a'; 70_000], "too big inline request"),
        (&[b'*'; 70_000], "too big mbulk count string"),
    ] {
        assert_eq!(answer_to(&server, input), format!("+PONG\r\n-ERR Protocol error: {error}\r\n"));
    }
    assert_eq!(server.connect().info("protocol_errors"), "10");
}

#[test]
fn announced_lengths_take_no_memory() {
    let server = TestServer::start(&[]);
    let before = server.resident_bytes();
    let mut clients: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$536870912\r\nabc");
        client.send_raw(&[b'x'; 10_000]);
    }
    for client in &mut clients {
        client.send_raw(&[b'x'; 10_000]);
    }
    assert_eq!(server.connect().run("PING").text(), "PONG");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
    // Clients that leave in the middle of a command leave nothing behind.
    drop(clients);
    let mut client = server.connect();
    eventually("the clients are gone", || client.info("connected_clients") == "1");
    assert_eq!(client.run("EXISTS a"), Reply::Int(0));
}

#[test]
fn large_values_come_and_go() {
    let server = TestServer::start(&[]);
    let mut client = server.connect();
    let value: Vec<u8> = (0..48 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert_eq!(client.run_bytes(&[b"SET", b"large", &value]), Reply::ok());
    assert!(client.run("GET large") == Reply::Bulk(value), "the value is not what was stored");
    assert_eq!(client.run("STRLEN large"), Reply::Int(48 << 20));
}

#[test]
fn many_arguments_are_taken() {
    let server = TestServer::start(&[]);
    let mut client = server.connect();
    let keys: Vec<String> = (0..200_000).map(|i| format!("k{i}")).collect();
    let mut words: Vec<&[u8]> = vec![b"MSET"];
    for key in &keys {
        words.extend([key.as_bytes(), b"v"]);
    }
    assert_eq!(client.run_bytes(&words), Reply::ok());
    assert_eq!(client.run("DBSIZE"), Reply::Int(200_000));
}

#[test]
fn a_client_that_does_not_read_does_not_fill_the_memory() {
    let server = TestServer::start(&[]);
    let mut client = server.connect();
    let value = vec![b'v'; 1 << 20];
    client.run_bytes(&[b"SET", b"k", &value]);
    let before = server.resident_bytes();
    let count = 300;
    let mut slow = server.connect();
    slow.send_raw(&encoded(&[b"GET", b"k"]).repeat(count));
    // Others are served meanwhile.
    for _ in 0..100 {
        assert_eq!(client.run("PING").text(), "PONG");
        std::thread::sleep(Duration::from_millis(1));
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
    for _ in 0..count {
        assert!(slow.read() == Reply::Bulk(value.clone()));
    }
}

#[test]
fn output_limits_close_slow_clients() {
    let server = TestServer::start(&["--client-output-buffer-limit", "normal", "100kb", "0", "0"]);
    let mut client = server.connect();
    client.run_bytes(&[b"SET", b"k", &vec![b'v'; 8 << 20]]);
    let mut slow = server.connect();
    slow.send("GET k");
    eventually("the slow client is closed", || {
        client.info("client_output_buffer_limit_disconnections") == "1"
    });
    assert!(slow.read_to_end().len() < 8 << 20);
    assert!(server.log().contains("closed for overcoming of output buffer limits"));
}

#[test]
fn input_limits_close_greedy_clients() {
    let server = TestServer::start(&["--client-query-buffer-limit", "1mb"]);
    let mut client = server.connect();
    let mut greedy = server.connect();
    let mut input = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4000000\r\n".to_vec();
    input.resize(3 << 20, b'x');
    let _ = std::io::Write::write_all(&mut greedy.stream, &input);
    eventually("the greedy client is closed", || {
        client.info("client_query_buffer_limit_disconnections") == "1"
    });
    assert!(greedy.read_to_end().is_empty());
}

#[test]
fn strangers_may_send_little() {
    let server = TestServer::start(&["--requirepass", "secret"]);
    assert_eq!(answer_to(&server, b"*11\r\n").lines().next(), Some("-NOAUTH Authentication required."));
    assert!(
        answer_to(&server, b"*11\r\n").ends_with("-ERR Protocol error: unauthenticated multibulk length\r\n")
    );
    assert!(answer_to(&server, b"*1\r\n$16385\r\n")
        .ends_with("-ERR Protocol error: unauthenticated bulk length\r\n"));
    let mut client = server.connect();
    assert_eq!(client.run("GET a").text(), "NOAUTH Authentication required.");
    assert_eq!(client.run("NOSUCH").text(), "ERR unknown command 'NOSUCH', with args beginning with: ");
    assert!(client.run("HELLO 3").text().starts_with("NOAUTH HELLO must be called"));
    assert!(client.run("AUTH wrong").text().starts_with("WRONGPASS"));
    assert!(client.run("AUTH other secret").text().starts_with("WRONGPASS"));
    client.ok("AUTH secret");
    assert_eq!(client.run("GET a"), Reply::NullBulk);
    assert_eq!(client.run("RESET").text(), "RESET");
    assert_eq!(client.run("GET a").text(), "NOAUTH Authentication required.");
    assert!(matches!(client.run("HELLO 3 AUTH default secret SETNAME me"), Reply::Map(_)));
    assert_eq!(client.run("CLIENT GETNAME").text(), "me");
}

#[test]
fn random_bytes_do_no_harm() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let server = TestServer::start(&[]);
    for _ in 0..200 {
        let mut client = server.connect();
        let mut input = encoded(&[b"SET", b"key", b"value"]).repeat(rng.usize(1..5));
        for _ in 0..rng.usize(1..8) {
            let at = rng.usize(..input.len());
            input[at] = rng.u8(..);
        }
        // The server may close the connection before all is written.
        let _ = std::io::Write::write_all(&mut client.stream, &input);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        client.read_to_end();
    }
    assert_eq!(server.connect().run("PING").text(), "PONG");
}

#[test]
fn reply_modes_silence_replies() {
    let server = TestServer::start(&[]);
    let mut client = server.connect();
    client.send("CLIENT REPLY SKIP");
    client.send("SET a 1");
    assert_eq!(client.run("GET a").text(), "1");
    client.send("CLIENT REPLY OFF");
    client.send("SET a 2");
    client.send("NOSUCH");
    client.send("CLIENT REPLY SKIP");
    assert!(client.is_silent());
    client.ok("CLIENT REPLY ON");
    assert_eq!(client.run("GET a").text(), "2");
}

#[test]
fn resp3_has_its_types() {
    let server = TestServer::start(&[]);
    let mut client = server.connect();
    let hello = client.run("HELLO 3");
    let Reply::Map(fields) = hello else { panic!("{hello:?}") };
    let names: Vec<String> = fields.iter().map(|(name, _)| name.text()).collect();
    assert_eq!(names, ["server", "version", "proto", "id", "mode", "role", "modules"]);
    client.send("GET missing");
    client.send("CONFIG GET port");
    assert_eq!(client.read(), Reply::Null3);
    assert!(matches!(client.read(), Reply::Map(_)));
    assert!(matches!(client.run("COMMAND INFO get").items()[0].items()[2], Reply::Set(_)));
    assert!(matches!(client.run("HELLO 2"), Reply::Array(_)));
    assert_eq!(client.run("HELLO 4").text(), "NOPROTO unsupported protocol version");
}
