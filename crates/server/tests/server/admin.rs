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
    let port = Port::reserve().unwrap();
    let start = || {
        let mut command = binary();
        let child =
            command.arg(&file).args(["--port", &port.to_string(), "--dir"]).arg(&dir).spawn().unwrap();
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

/// What stands in code and looks like a field of `INFO` is one.
#[test]
fn pages_name_fields_that_are_there() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    let info = c.run("INFO everything").text();
    let pages = [
        include_str!("../../../../docs/guide/damage.md"),
        include_str!("../../../../docs/guide/data.md"),
        include_str!("../../../../docs/internals/writes.md"),
    ];
    let lines = pages.iter().flat_map(|page| page.lines());
    let code = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_field = |word: &&str| {
        word.contains('_') && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let mut count = 0;
    for field in code.filter(is_field) {
        assert!(info.lines().any(|line| line.starts_with(&format!("{field}:"))), "{field} is not in INFO");
        count += 1;
    }
    assert!(count >= 5, "the pages say what to look at");
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
    let names: Vec<String> = c.run("COMMAND LIST").items().iter().map(Reply::text).collect();
    assert_eq!(Reply::Int(names.iter().filter(|name| !name.contains('|')).count() as i64), count);
    assert!(names.contains(&"config|set".to_owned()));
    let docs =
        c.run("COMMAND DOCS backup").items()[1].items().iter().map(Reply::text).collect::<Vec<_>>().concat();
    assert!(docs.contains("arguments") && docs.contains("TO"), "{docs}");
    assert_eq!(Reply::Int(c.run("COMMAND DOCS").items().len() as i64 / 2), count);
    assert_eq!(c.run("COMMAND GETKEYS MSET a 1 b 2").items().len(), 2);
    assert_eq!(c.run("COMMAND GETKEYS FOO a").text(), "ERR Invalid command specified");
    assert_eq!(c.run("COMMAND INFO nosuch"), Reply::Array(vec![Reply::NullBulk]));
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

#[test]
fn refused_calls_of_subcommands_are_counted() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    for line in ["CLIENT SETNAME", "CLIENT", "CLIENT NOSUCH", "COMMAND GETKEYS GET", "GET"] {
        assert!(matches!(c.run(line), Reply::Error(_)));
    }
    for name in ["client|setname", "client", "command|getkeys", "get"] {
        let line = c.info(&format!("cmdstat_{name}"));
        assert_eq!(line, "calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0", "{name}");
    }
    // As in Redis the name of a container is its own row: what is not known is nobody's.
    assert_eq!(c.info("errorstat_ERR"), "count=5");
}

#[test]
fn the_average_time_to_live_is_estimated() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    c.ok("SET a 1 EX 1000");
    c.ok("SET b 1 EX 2000");
    c.ok("SET c 1");
    let average = |c: &mut Client| -> u64 {
        c.info("db0").rsplit_once("avg_ttl=").map_or(0, |(_, number)| number.parse().unwrap())
    };
    eventually("it has looked", || average(&mut c) > 0);
    assert!((1_400_000..=1_500_000).contains(&average(&mut c)), "{}", average(&mut c));
    c.run("DEL a b");
    eventually("there is nothing left to look at", || average(&mut c) == 0);
}

#[test]
fn the_port_and_the_addresses_change_while_it_runs() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let mut c = server.connect();
        let reserved = Port::reserve().unwrap();
        let other = reserved.number();
        let can_connect = |host: &str, port: u16| std::net::TcpStream::connect((host, port)).is_ok();
        c.ok(&format!("CONFIG SET port {other}"));
        assert!(can_connect("127.0.0.1", other) && !can_connect("127.0.0.1", server.port));
        assert_eq!(c.info("tcp_port"), other.to_string());
        // Overlapping addresses, and one that is not there.
        let set = |c: &mut Client, name: &str, value: &str| {
            c.run_bytes(&[b"CONFIG", b"SET", name.as_bytes(), value.as_bytes()]).text()
        };
        assert_eq!(set(&mut c, "bind", "* -192.0.2.9"), "OK");
        assert!(can_connect("127.0.0.2", other));
        let error =
            "ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to specified \
                     addresses.";
        assert_eq!(set(&mut c, "bind", "127.0.0.1 192.0.2.9"), error);
        assert_eq!(set(&mut c, "bind", "nohost"), error);
        assert_eq!(c.run("CONFIG GET bind").items()[1].text(), "* -192.0.2.9");
        assert!(can_connect("127.0.0.2", other));
        assert_eq!(set(&mut c, "bind", "127.0.0.1"), "OK");
        assert!(can_connect("127.0.0.1", other) && !can_connect("127.0.0.2", other));
        // A port in use.
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        assert_eq!(
            set(&mut c, "port", &port),
            "ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check \
             server logs."
        );
        assert!(can_connect("127.0.0.1", other));
        assert!(server.log().contains("Possibly related to new port setting. Restoring previous settings."));
        // Connections stay, and new ones are served.
        let mut d = Client::new(std::net::TcpStream::connect(("127.0.0.1", other)).unwrap());
        assert_eq!(d.run("PING").text(), "PONG");
        c.ok("CONFIG SET port 0");
        assert!(!can_connect("127.0.0.1", other));
        assert_eq!(d.run("PING").text(), "PONG");
    }
}

#[test]
fn settings_say_what_they_do_not_do() {
    let server = TestServer::start(&["--enable-protected-configs", "yes"]);
    let mut c = server.connect();
    let failed = |name: &str, reason: &str| {
        format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")
    };
    assert_eq!(
        c.run("CONFIG SET min-replicas-to-write 1").text(),
        failed("min-replicas-to-write", "replication is not available")
    );
    c.ok("CONFIG SET lazyfree-lazy-expire yes");
    assert!(server.log().contains("The directive 'lazyfree-lazy-expire' has no effect in this server."));
    assert_eq!(c.run("CONFIG SET a b c").text(), "ERR syntax error");
    let dir = server.dir.to_str().unwrap();
    c.ok(&format!("CONFIG SET dir {dir}"));
    let refused = c.run("CONFIG SET dir /").text();
    assert!(refused.contains("cannot change while the server runs"), "{refused}");
    assert!(refused.contains("--dir") && refused.contains("BACKUP TO"), "it says what to do: {refused}");
    c.ok("CONFIG SET hz 1000");
    assert_eq!(c.run("CONFIG GET hz").items()[1].text(), "500");
}
