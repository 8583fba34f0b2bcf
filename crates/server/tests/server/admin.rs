//! `CONFIG`, `INFO`, `SLOWLOG`, `LATENCY`, `COMMAND`.

use crate::harness::*;

#[test]
fn several_parameters_are_set_at_once_or_not_at_all() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    c.ok("CONFIG SET maxmemory 1gb timeout 100");
    let error = c.run("CONFIG SET timeout 5 maxclients 0").text();
    let reason = "argument must be between 1 and 4294967295 inclusive";
    assert_eq!(
        error,
        format!("ERR CONFIG SET failed (possibly related to argument 'maxclients') - {reason}")
    );
    assert_eq!(c.run("CONFIG GET timeout").items()[1].text(), "100");
    let error = c.run("CONFIG SET timeout 5 nosuch 1").text();
    assert_eq!(error, "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'");
    let all = c.run("CONFIG GET *");
    assert!(all.items().len() > 300);
    assert_eq!(c.run("CONFIG GET MAXMEM* nosuch").items()[1].text(), (1 << 30).to_string());
    assert_eq!(c.run("CONFIG REWRITE").text(), "ERR The server is running without a config file");
}

#[test]
fn rewriting_the_configuration_survives_a_restart() {
    let dir = temp_dir();
    let file = dir.join("my.conf");
    std::fs::write(&file, "# mine\nmaxclients 77\n").unwrap();
    let port = free_port().to_string();
    let start = || {
        let mut command = binary();
        let child = command.arg(&file).args(["--port", &port, "--dir"]).arg(&dir).spawn().unwrap();
        let mut stream = None;
        eventually("it listens", || {
            stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).ok();
            stream.is_some()
        });
        (child, Client::new(stream.unwrap()))
    };
    let (mut child, mut c) = start();
    c.ok("CONFIG SET maxclients 88");
    c.run_bytes(&[b"CONFIG", b"SET", b"save", b"10 5"]);
    c.ok("CONFIG REWRITE");
    c.send("SHUTDOWN NOSAVE");
    child.wait().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# mine\nmaxclients 88\n"), "{text}");
    let (mut child, mut c) = start();
    assert_eq!(c.run("CONFIG GET save").items()[1].text(), "10 5");
    assert_eq!(c.run("CONFIG GET maxclients").items()[1].text(), "88");
    c.send("SHUTDOWN NOSAVE");
    child.wait().unwrap();
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn info_has_the_fields_of_redis() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    c.ok("SET a 1");
    c.run("GET a");
    c.run("GET b");
    c.run("NOSUCH");
    for (field, value) in [
        ("redis_version", "7.0.15"),
        ("redis_mode", "standalone"),
        ("connected_clients", "1"),
        ("loading", "0"),
        ("rdb_changes_since_last_save", "1"),
        ("rdb_bgsave_in_progress", "0"),
        ("rdb_last_bgsave_status", "ok"),
        ("keyspace_hits", "1"),
        ("keyspace_misses", "1"),
        ("role", "master"),
        ("errorstat_ERR", "count=1"),
        ("cluster_enabled", "0"),
        ("db0", "keys=1,expires=0,avg_ttl=0"),
        ("warmup_in_progress", "0"),
    ] {
        assert_eq!(c.info(field), value, "{field}");
    }
    assert!(c.info("cmdstat_get").starts_with("calls=2,usec="));
    assert!(c.info("latency_percentiles_usec_get").starts_with("p50="));
    assert!(c.info("used_cpu_user").parse::<f64>().is_ok());
    let sections = c.run("INFO server keyspace nosuch").text();
    assert!(sections.starts_with("# Server\r\n") && sections.contains("\r\n\r\n# Keyspace\r\n"));
    assert!(!c.run("INFO").text().contains("# Commandstats"));
    c.ok("CONFIG RESETSTAT");
    assert_eq!(c.info("keyspace_hits"), "0");
}

#[test]
fn slow_commands_are_logged() {
    let server = TestServer::start(&["--slowlog-log-slower-than", "20000", "--slowlog-max-len", "2"]);
    let mut c = server.connect();
    c.ok("CLIENT SETNAME me");
    c.run("PING");
    assert_eq!(c.run("SLOWLOG LEN"), Reply::Int(0));
    for _ in 0..3 {
        c.ok("DEBUG SLEEP 0.03");
    }
    assert_eq!(c.run("SLOWLOG LEN"), Reply::Int(2));
    let log = c.run("SLOWLOG GET 1");
    let entry = log.items()[0].items();
    assert_eq!(entry[0], Reply::Int(2));
    assert!(matches!(entry[2], Reply::Int(30_000..=5_000_000)));
    assert_eq!(entry[3].items().iter().map(Reply::text).collect::<Vec<_>>(), ["DEBUG", "SLEEP", "0.03"]);
    assert_eq!(entry[5].text(), "me");
    c.ok("SLOWLOG RESET");
    // With a threshold of nothing every command is measured and logged.
    c.ok("CONFIG SET slowlog-log-slower-than 0");
    c.run("PING");
    let words: Vec<&[u8]> = std::iter::repeat_n(&b"x"[..], 40).collect();
    c.run_bytes(&[&[b"DEL".as_slice()], words.as_slice()].concat());
    let log = c.run("SLOWLOG GET -1");
    let args = log.items()[0].items()[3].items();
    assert_eq!(args.len(), 32);
    assert_eq!(args[31].text(), "... (10 more arguments)");
}

#[test]
fn latency_spikes_are_recorded() {
    let server = TestServer::start(&["--latency-monitor-threshold", "20"]);
    let mut c = server.connect();
    assert_eq!(c.run("LATENCY LATEST"), Reply::Array(vec![]));
    assert!(c.run("LATENCY DOCTOR").text().contains("no latency spike was observed"));
    c.ok("DEBUG SLEEP 0.05");
    let latest = c.run("LATENCY LATEST");
    let event = latest.items()[0].items();
    assert_eq!(event[0].text(), "command");
    assert!(matches!(event[2], Reply::Int(50..=5000)));
    assert_eq!(c.run("LATENCY HISTORY command").items().len(), 1);
    assert!(c.run("LATENCY GRAPH command").text().starts_with("command - high "));
    assert!(c.run("LATENCY DOCTOR").text().contains("1. command: 1 latency spikes"));
    assert_eq!(c.run("LATENCY RESET"), Reply::Int(1));
    c.ok("SET a 1");
    let histogram = c.run("LATENCY HISTOGRAM set nosuch");
    assert_eq!(histogram.items()[0].text(), "set");
    assert_eq!(histogram.items()[1].items()[1], Reply::Int(1));
}

#[test]
fn the_command_table_is_told() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    let count = c.run("COMMAND COUNT");
    assert_eq!(Reply::Int(c.run("COMMAND").items().len() as i64), count);
    assert_eq!(Reply::Int(c.run("COMMAND LIST").items().len() as i64), count);
    assert_eq!(Reply::Int(c.run("COMMAND DOCS").items().len() as i64 / 2), count);
    assert_eq!(c.run("COMMAND GETKEYS MSET a 1 b 2").items().len(), 2);
    assert_eq!(c.run("COMMAND GETKEYS FOO a").text(), "ERR Invalid command specified");
    assert_eq!(c.run("COMMAND INFO nosuch"), Reply::Array(vec![Reply::Null]));
    assert_eq!(
        c.run("CLIENT MAINT_NOTIFICATIONS ON").text(),
        "ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."
    );
    for container in ["CLIENT", "CONFIG", "COMMAND", "SLOWLOG", "LATENCY", "ACL", "OBJECT", "MEMORY"] {
        let help = c.run(&format!("{container} HELP"));
        assert!(help.items()[0].text().starts_with(&format!("{container} <subcommand>")), "{help:?}");
    }
}

#[test]
fn debug_needs_permission() {
    let server = TestServer::start(&["--enable-debug-command", "no"]);
    let text = server.connect().run("DEBUG SLEEP 0").text();
    assert!(text.starts_with(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\""
    ));
}
