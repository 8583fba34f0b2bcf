//! Starting: what is in the way is named.

use std::net::TcpListener;

use crate::harness::*;

/// Standard output and error of a server that does not start, and its exit code.
fn failed_start(args: &[&str]) -> String {
    let output = binary().args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_used_port_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let dir = temp_dir();
    let text = failed_start(&["--port", &port, "--bind", "127.0.0.1", "--dir", dir.to_str().unwrap()]);
    assert!(
        text.contains(&format!("Could not create server TCP listening socket 127.0.0.1:{port}")),
        "{text}"
    );
    assert!(text.contains("Address already in use"), "{text}");
}

#[test]
fn a_missing_directory_is_named() {
    let text = failed_start(&["--port", "0", "--dir", "/nonexistent/data"]);
    assert!(text.contains("Can't chdir to '/nonexistent/data': No such file or directory"), "{text}");
}

#[test]
fn nowhere_to_listen_is_an_error() {
    let dir = temp_dir();
    let text = failed_start(&["--port", "0", "--dir", dir.to_str().unwrap()]);
    assert!(text.contains("Configured to not listen anywhere, exiting."), "{text}");
    let text = failed_start(&["--port", "1", "--bind", "nohost", "--dir", dir.to_str().unwrap()]);
    assert!(text.contains("'bind nohost' is not an IP address"), "{text}");
    let text =
        failed_start(&["--port", "0", "--unixsocket", "/nonexistent/s", "--dir", dir.to_str().unwrap()]);
    assert!(text.contains("Failed opening Unix socket /nonexistent/s"), "{text}");
}

#[test]
fn configuration_errors_are_placed() {
    let dir = temp_dir();
    let file = dir.join("bad.conf");
    std::fs::write(&file, "port 0\n# fine\nmaxmemory lots\n").unwrap();
    let text = failed_start(&[file.to_str().unwrap()]);
    let place =
        format!("Reading the configuration file {}, at line 3\n>>> 'maxmemory lots'\n", file.display());
    assert!(text.contains(&(place + "argument must be a memory value")), "{text}");
    std::fs::write(&file, "tls-port 7000\n").unwrap();
    assert!(failed_start(&[file.to_str().unwrap()]).contains("TLS is not available"));
    assert!(failed_start(&["--nosuch", "1"])
        .contains(">>> 'nosuch \"1\"'\nBad directive or wrong number of arguments"));
}

#[test]
fn version_help_and_check_do_not_start_anything() {
    for (arg, expected) in [
        ("--version", "Stillframe server v="),
        ("-v", "Stillframe server v="),
        ("--help", "Usage: stillframe-server"),
        ("--check-config", "The configuration is valid."),
    ] {
        let output = binary().arg(arg).output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).starts_with(expected));
    }
}

#[test]
fn the_help_lists_the_settings_and_explains_its_own() {
    let output = binary().arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = help.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    for (name, default) in
        [("port", "6379"), ("snapshot-memory", "64mb"), ("io-threads", "1"), ("workers", "1")]
    {
        assert!(lines.contains(&vec![name, default]), "{name} {default}: {help}");
    }
    assert!(help.contains("What SAVE, BGSAVE and save points write."), "{help}");
    assert!(help.lines().all(|line| line.len() <= 120), "{help}");
}

#[test]
fn redis_conf_files_are_read() {
    let dir = temp_dir();
    let file = dir.join("redis.conf");
    let text = "bind 127.0.0.1 -::1\ntimeout 0\ntcp-keepalive 300\nloglevel notice\nappendonly no\n\
                hash-max-listpack-entries 1024\nmaxmemory 100mb\nmaxmemory-policy noeviction\n";
    std::fs::write(&file, text).unwrap();
    let port = Port::reserve().unwrap();
    let mut command = binary();
    command.arg(&file).args(["--port", &port.to_string(), "--dir"]).arg(&dir).args([
        "--logfile",
        "server.log",
        "--pidfile",
    ]);
    let mut child = command.arg("server.pid").spawn().unwrap();
    let mut stream = None;
    eventually("it listens", || {
        stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).ok();
        stream.is_some()
    });
    let mut client = Client::new(stream.unwrap());
    assert_eq!(client.run("CONFIG GET maxmemory").items()[1].text(), (100 << 20).to_string());
    assert_eq!(
        client.run("CONFIG GET dir").items()[1].text(),
        dir.canonicalize().unwrap().display().to_string()
    );
    let pid = format!("{}\n", child.id());
    eventually("it writes its pid", || {
        std::fs::read_to_string(dir.join("server.pid")).is_ok_and(|p| p == pid)
    });
    client.send("SHUTDOWN NOSAVE");
    assert!(client.read_to_end().is_empty());
    assert!(child.wait().unwrap().success());
    let log = std::fs::read_to_string(dir.join("server.log")).unwrap();
    assert!(log.contains("Ready to accept connections"), "{log}");
    assert!(!dir.join("server.pid").exists());
}

#[test]
fn limits_of_packed_collections_hold_from_the_start() {
    let limits = ["hash-max-listpack-entries", "zset-max-ziplist-entries", "set-max-intset-entries"];
    let values = ["hash-max-ziplist-value", "zset-max-listpack-value"];
    let flags = limits.iter().map(|name| (name, "2")).chain(values.iter().map(|name| (name, "4")));
    let flags: Vec<String> =
        flags.flat_map(|(name, value)| [format!("--{name}"), value.to_owned()]).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = TestServer::start(&flags);
    let mut client = server.connect();
    for (line, encoding) in [
        ("HSET hash a 1 b 2", "listpack"),
        ("HSET hash c 3", "hashtable"),
        ("HSET long-hash a 12345", "hashtable"),
        ("ZADD zset 1 a 2 b", "listpack"),
        ("ZADD zset 3 c", "skiplist"),
        ("ZADD long-zset 1 12345", "skiplist"),
        ("SADD set 1 2", "intset"),
        ("SADD set 3", "hashtable"),
    ] {
        client.run(line);
        let key = line.split(' ').nth(1).expect("a key");
        assert_eq!(client.run(&format!("OBJECT ENCODING {key}")).text(), encoding, "{line}");
    }
}

#[test]
fn a_check_names_what_has_no_effect() {
    let output = binary()
        .args([
            "--lazyfree-lazy-expire",
            "yes",
            "--active-defrag-cycle-min",
            "5",
            "--maxmemory",
            "1gb",
            "--check-config",
        ])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "The configuration is valid.\nThe directive 'active-defrag-cycle-min' has no effect in this server.\n\
         The directive 'lazyfree-lazy-expire' has no effect in this server.\n"
    );
    assert!(failed_start(&["--min-replicas-to-write", "1", "--check-config"])
        .contains("replication is not available"));
}
