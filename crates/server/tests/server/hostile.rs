//! What a stranger, a browser or a greedy client must not get: commands run for them, passwords, all of the memory.

use crate::harness::*;

/// What a browser that was talked into it sends.
const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\nSET pwned 1\r\n";

#[test]
fn http_requests_are_not_executed() {
    let server = TestServer::start(&[]);
    for request in [
        POST.to_vec(),
        b"SET before 1\r\nhost: localhost\r\nSET pwned 1\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nSET pwned 1\r\n".to_vec(),
        b"MULTI\r\npost /\r\nSET pwned 1\r\nEXEC\r\n".to_vec(),
        [encoded(&[b"Host:", b"localhost"]), encoded(&[b"SET", b"pwned", b"1"])].concat(),
    ] {
        let mut stranger = server.connect();
        stranger.send_raw(&request);
        assert_eq!(stranger.read_to_end(), b"", "{}", request.escape_ascii());
    }
    let mut c = server.connect();
    assert_eq!(c.run("EXISTS pwned"), Reply::Int(0));
    assert_eq!(c.run("GET before").text(), "1");
    let line = "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to Redis. \
                This is likely due to an attacker attempting to use Cross Protocol Scripting to compromise your Redis \
                instance. Connection aborted.";
    // Once a minute, so that the log cannot be filled.
    assert_eq!(server.log().matches(line).count(), 1, "{}", server.log());
    // With a password, too.
    let server = TestServer::start(&["--requirepass", "secret"]);
    let mut stranger = server.connect();
    stranger.send_raw(POST);
    assert_eq!(stranger.read_to_end(), b"");
}

#[test]
fn the_slow_log_has_no_secrets() {
    let server = TestServer::start(&["--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000"]);
    let mut c = server.connect();
    let commands = [
        "AUTH swordfish",
        "AUTH default swordfish",
        "HELLO 3 AUTH default swordfish SETNAME me",
        "HELLO 2 SETNAME me AUTH default swordfish",
        "CONFIG SET masterauth swordfish",
        "CONFIG SET timeout 0 MasterUser swordfish",
        "CONFIG SET nosuch 1 requirepass swordfish",
        "CONFIG SET tls-key-file-pass swordfish",
        "CONFIG SET tls-client-key-file-pass swordfish",
        "ACL SETUSER me >swordfish",
        "CONFIG SET requirepass swordfish",
        "AUTH swordfish",
        "MULTI",
        "AUTH default swordfish",
        "CONFIG SET requirepass swordfish",
        "EXEC",
    ];
    for command in commands {
        c.run(command);
    }
    let log = c.run("SLOWLOG GET -1");
    let shown: Vec<String> = log
        .items()
        .iter()
        .map(|entry| entry.items()[3].items().iter().map(Reply::text).collect::<Vec<_>>().join(" "))
        .collect();
    assert!(shown.iter().all(|line| !line.contains("swordfish")), "{shown:#?}");
    for line in [
        "AUTH (redacted)",
        "AUTH (redacted) (redacted)",
        "HELLO 3 AUTH (redacted) (redacted) SETNAME me",
        "HELLO 2 SETNAME me AUTH (redacted) (redacted)",
        "CONFIG SET masterauth (redacted)",
        "CONFIG SET timeout 0 MasterUser (redacted)",
        "CONFIG SET nosuch 1 requirepass (redacted)",
        "CONFIG SET requirepass (redacted)",
    ] {
        assert!(shown.iter().any(|shown| shown == line), "{line} is not in {shown:#?}");
    }
}

#[test]
fn a_reply_beyond_the_hard_limit_is_not_built() {
    let server = TestServer::start(&["--client-output-buffer-limit", "normal", "50mb", "0", "0"]);
    let mut c = server.connect();
    c.run_bytes(&[b"SET", b"big", &vec![b'v'; 8 << 20]]);
    for _ in 0..100 {
        c.run_bytes(&[b"SET", &[b'k'; 100], b""]);
    }
    for line in [
        "MGET".to_owned() + &" big".repeat(60),
        "MULTI\r\n".to_owned() + &"GET big\r\n".repeat(60) + "SET last 1\r\nEXEC",
    ] {
        let mut greedy = server.connect();
        greedy.send_raw(format!("{line}\r\nSET after 1\r\n").as_bytes());
        assert!(greedy.read_to_end().len() < 50 << 20);
    }
    eventually("both are closed", || c.info("client_output_buffer_limit_disconnections") == "2");
    // A transaction is done as a whole all the same; what comes after it is not.
    assert_eq!(c.run("GET last").text(), "1");
    assert_eq!(c.run("EXISTS after"), Reply::Int(0));
    let peak = server.peak_resident_bytes();
    assert!(peak < 200 << 20, "{peak} bytes");
}

#[test]
fn the_hard_limit_counts_what_was_asked_for() {
    let server = TestServer::start(&["--client-output-buffer-limit", "normal", "100kb", "0", "0"]);
    let mut c = server.connect();
    let mut greedy = server.connect();
    c.run_bytes(&[b"SET", b"fits", &vec![b'v'; 90 << 10]]);
    c.run_bytes(&[b"SET", b"large", &vec![b'v'; 130 << 10]]);
    assert_eq!(greedy.run("GET fits").text().len(), 90 << 10);
    // The socket would take it all at once.
    greedy.send("GET large");
    assert_eq!(greedy.read_to_end(), b"");
    let log = server.log();
    assert!(log.contains(" closed for overcoming of output buffer limits."), "{log}");
    assert!(log.contains("Client id=") && log.contains(" cmd=get "), "{log}");
}

#[test]
fn unread_output_is_shown() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    c.run_bytes(&[b"SET", b"big", &vec![b'v'; 32 << 20]]);
    let mut slow = server.connect();
    slow.send("GET big");
    let field = |line: &str, name: &str| -> u64 {
        let prefix = format!("{name}=");
        line.split(' ').find_map(|f| f.strip_prefix(&prefix)).unwrap().parse().unwrap()
    };
    eventually("it waits for its reader", || {
        let list = c.run("CLIENT LIST").text();
        let line =
            list.lines().find(|line| line.contains("cmd=get ")).unwrap_or("obl=0 oll=0 omem=0 tot-mem=0");
        let memory = field(line, "omem");
        field(line, "oll") > 0
            && memory > 16 << 20
            && field(line, "tot-mem") >= memory
            && field(line, "obl") <= 16384
    });
    assert_eq!(slow.read().text().len(), 32 << 20);
}
