use super::*;

fn config(args: &[&str]) -> Config {
    let args: Vec<String> = args.iter().map(|a| (*a).into()).collect();
    match from_args(&args) {
        Ok(Start::Serve(config)) => *config,
        other => panic!("{other:?}"),
    }
}

fn error(args: &[&str]) -> String {
    let args: Vec<String> = args.iter().map(|a| (*a).into()).collect();
    from_args(&args).unwrap_err().to_string()
}

fn temp_file(name: &str, text: &str) -> String {
    let path = std::env::temp_dir().join(format!("stillframe-config-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn every_parameter_has_a_valid_default() {
    let config = Config::default();
    for (index, param) in PARAMS.iter().enumerate() {
        let text = String::from_utf8_lossy(config.value(ParamId(index))).into_owned();
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let words = if param.has_several_words() { words } else { vec![text.as_bytes()] };
        assert_eq!(config.read(ParamId(index), &words).unwrap(), param.default.as_bytes(), "{}", param.name);
        let same = PARAMS.iter().filter(|p| p.name == param.name || p.alias == Some(param.name)).count();
        assert_eq!(same, 1, "{}", param.name);
    }
}

#[test]
fn flags_are_read_as_redis_server_reads_them() {
    let c = config(&["--port", "0", "--save", "", "--maxmemory", "2gb", "--bind", "127.0.0.1", "::1"]);
    assert_eq!(c.settings.port, 0);
    assert!(c.settings.save_points.is_empty());
    assert_eq!(c.settings.maxmemory_bytes, 2 << 30);
    assert_eq!(c.settings.bind, ["127.0.0.1", "::1"]);
    assert!(config(&["--save", "--port", "1"]).settings.save_points.is_empty());
    let c = config(&["--save", "900 1", "--save", "60", "10", "--workers", "2"]);
    assert_eq!(c.settings.save_points.len(), 2);
    assert_eq!(c.settings.workers, 2);
    assert_eq!(config(&[]).settings.save_points.len(), 3);
}

#[test]
fn the_pool_backend_suits_the_rest_unless_it_is_said() {
    let backend = |flags: &[&str]| config(flags).settings.pool_backend().name();
    assert_eq!(backend(&[]), "vmcache");
    assert_eq!(backend(&["--maxmemory", "1gb"]), "array");
    assert_eq!(backend(&["--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"]), "vmcache");
    assert_eq!(backend(&["--snapshot-algorithm", "hourglass"]), "array");
    assert_eq!(backend(&["--maxmemory", "1gb", "--pool-backend", "vmcache"]), "vmcache");
    assert_eq!(backend(&["--pool-backend", "array"]), "array");
}

#[test]
fn files_include_files_and_flags_win() {
    let inner = temp_file("inner.conf", "# comment\n\nport 7000\nrequirepass \"a\\x20b\"\n");
    let outer = temp_file("outer.conf", &format!("include {inner}\r\nsave 10 1\nsave 20 2\nhz 20\n"));
    let c = config(&[&outer, "--hz", "30"]);
    assert_eq!((c.settings.port, c.settings.hz), (7000, 30));
    assert_eq!(c.settings.requirepass, b"a b");
    assert_eq!(c.settings.save_points.len(), 2);
    let own = temp_file("own.conf", "");
    std::fs::write(&own, format!("include {own}\n")).unwrap();
    assert!(error(&[&own]).contains("'include' nests more than 16 deep"));
}

#[test]
fn errors_name_file_line_and_text() {
    let file = temp_file("bad.conf", "port 1\n\nnosuch thing\n");
    let text = error(&[&file]);
    assert!(text.contains("*** FATAL CONFIG FILE ERROR"), "{text}");
    assert!(text.contains(&format!("Reading the configuration file {file}, at line 3\n>>> 'nosuch thing'\n")));
    assert!(text.ends_with("Bad directive or wrong number of arguments"));
    assert!(error(&["--port", "70000"]).ends_with("argument must be between 0 and 65535 inclusive"));
    let text = error(&["--hz", "5", "--port", "1", "a\"b c"]);
    assert!(text.ends_with(
        "Reading the configuration file, at line 3\n>>> 'port \"1\" \"a\\\"b c\"'\nwrong number of arguments"
    ));
    assert!(error(&["--shutdown-on-sigint"]).ends_with(
        "at line 2\n>>> 'shutdown-on-sigint'\nargument(s) must be one of the following: default, save, nosave, now, force"
    ));
    assert!(config(&["--bind"]).settings.bind.is_empty());
    assert!(
        error(&["--appendfsync", "sometimes"]).contains("must be one of the following: everysec, always, no")
    );
    assert!(error(&["--log-replay-limit", "10kb"]).contains("must be between"));
    assert!(error(&["--maxmemory-policy", "allkeys"]).contains("argument(s) must be one of the following: "));
    assert!(error(&["--rename-command", "FLUSHALL", "x"]).ends_with("commands cannot be renamed"));
    let file = temp_file("quotes.conf", "requirepass \"a\n");
    assert!(error(&[&file]).ends_with("Unbalanced quotes in configuration line"));
    assert!(error(&["/nonexistent/x.conf"]).contains("can't open config file '/nonexistent/x.conf'"));
    assert_eq!(config(&["--replicaof", "no", "one"]).ignored().count(), 0);
    assert_eq!(
        config(&["--set-max-listpack-value", "1"]).ignored().collect::<Vec<_>>(),
        ["The directive 'set-max-listpack-value' has no effect in this server."]
    );
}

#[test]
fn rewriting_keeps_the_file_and_reads_back() {
    let old = "# head\nport 7000\nsave 1 2\n# tail\nsave 3 4\nrequirepass old\n";
    let file = temp_file("rewrite.conf", old);
    let mut c = config(&[&file]);
    let id = |name: &str| ParamId::find(name.as_bytes()).unwrap();
    c.set_live(id("requirepass"), b"new \"one\"\n", true).unwrap();
    c.set_live(id("maxmemory"), b"1gb", true).unwrap();
    c.set_live(id("client-output-buffer-limit"), b"normal 1mb 2kb 3", true).unwrap();
    c.rewrite_file(Unnamed::Needed).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# head\nport 7000\nsave 1 2\nsave 3 4\n# tail\nrequirepass \"new"), "{text}");
    let again = config(&[&file]);
    assert_eq!(again.values, c.values);
    again.rewrite_file(Unnamed::Needed).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn live_changes_are_checked() {
    let mut c = Config::default();
    let id = |name: &str| ParamId::find(name.as_bytes()).unwrap();
    let mut set = |name: &str, value: &str| c.set_live(id(name), value.as_bytes(), false);
    assert_eq!(set("databases", "3").unwrap_err(), "can't set immutable config");
    assert_eq!(set("dbfilename", "x").unwrap_err(), "can't set protected config");
    assert_eq!(set("maxmemory", "-1").unwrap_err(), "argument must be a memory value");
    assert_eq!(set("maxclients", "0").unwrap_err(), "argument must be between 1 and 4294967295 inclusive");
    assert_eq!(set("save", "10").unwrap_err(), "Invalid save parameters");
    assert_eq!(set("save", ""), Ok(()));
    assert_eq!(set("save", "10 5 20 6"), Ok(()));
    assert_eq!(
        set("client-output-buffer-limit", "normal 1 2 -3").unwrap_err(),
        "Error in hard, soft or soft_seconds setting in buffer limit configuration."
    );
    assert_eq!(
        set("latency-tracking-info-percentiles", "101").unwrap_err(),
        "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
    );
    assert_eq!(c.settings.save_points.len(), 2);
}

/// The text of a parameter as `CONFIG GET` shows it.
fn shown(config: &Config, name: &str) -> String {
    String::from_utf8_lossy(config.value(ParamId::find(name.as_bytes()).unwrap())).into_owned()
}

#[test]
fn a_flag_may_carry_its_value_or_look_like_one() {
    let c = config(&["--maxmemory 700mb", "--maxclients 77", "--bind 127.0.0.1", "::1"]);
    assert_eq!((shown(&c, "maxmemory"), shown(&c, "maxclients")), ("734003200".into(), "77".into()));
    assert_eq!(c.settings.bind, ["127.0.0.1", "::1"]);
    let c = config(&["--proc-title-template", "--x {title}", "--requirepass", "--secret", "--save"]);
    assert_eq!(shown(&c, "proc-title-template"), "--x {title}");
    assert_eq!(c.settings.requirepass, b"--secret");
    assert!(c.settings.save_points.is_empty());
    assert!(error(&["--maxmemory 700mb --maxclients 66"]).ends_with("wrong number of arguments"));
    assert!(error(&["--timeout", "--port"]).ends_with("argument couldn't be parsed into an integer"));
    assert!(error(&["--timeout", "--port", "5"]).ends_with("wrong number of arguments"));
    assert!(
        error(&["--proc-title-template", "{bogus}"]).ends_with("is invalid or contains unknown variables")
    );
    assert!(error(&["--proc-title-template", ""]).ends_with("is invalid or contains unknown variables"));
}

#[test]
fn save_without_arguments_ends_the_default() {
    let saves = |text: &str| shown(&config(&[&temp_file("save.conf", text)]), "save");
    assert_eq!(saves("save\n"), "");
    assert_eq!(saves("save 10 2\nsave\n"), "10 2");
    assert_eq!(saves("save 10 2\nsave \"\"\nsave 6 6\n"), "6 6");
    assert_eq!(saves("save \"60 1000\"\n"), "60 1000");
    assert!(
        error(&[&temp_file("empty.conf", "timeout\n")]).ends_with(">>> 'timeout'\nwrong number of arguments")
    );
}

#[test]
fn includes_may_be_patterns() {
    let dir = std::env::temp_dir().join(format!("stillframe-config-{}-inc", std::process::id()));
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    for (name, text) in
        [("b.inc", "timeout 2\n"), ("a.inc", "timeout 1\nmaxclients 5\n"), (".c.inc", "timeout 3\n")]
    {
        std::fs::write(dir.join("sub").join(name), text).unwrap();
    }
    let included = |pattern: &str| {
        let file = temp_file("include.conf", &format!("include {}/{pattern}\n", dir.display()));
        let c = config(&[&file]);
        (shown(&c, "timeout"), shown(&c, "maxclients"))
    };
    let values = |timeout: &str, maxclients: &str| (timeout.to_owned(), maxclients.to_owned());
    assert_eq!(included("sub/*.inc"), values("2", "5"));
    assert_eq!(included("*/?.inc"), values("2", "5"));
    assert_eq!(included("sub/[!b].inc"), values("1", "5"));
    assert_eq!(included("sub/.*.inc"), values("3", "10000"));
    assert_eq!(included("sub/*.none"), values("0", "10000"));
    assert!(error(&[&temp_file("none.conf", "include /nonexistent/x\n")]).contains("can't open config file"));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn shutdown_flags_are_several() {
    let c = config(&["--shutdown-on-sigterm", "force now", "--shutdown-on-sigint", "nosave", "now"]);
    assert_eq!(
        (shown(&c, "shutdown-on-sigterm"), shown(&c, "shutdown-on-sigint")),
        ("now force".into(), "nosave now".into())
    );
    assert_eq!(c.settings.on_sigterm, ShutdownFlags { how: OnSignal::Default, even_if_failed: true });
    assert_eq!(c.settings.on_sigint, ShutdownFlags { how: OnSignal::NoSave, even_if_failed: false });
    assert_eq!(shown(&config(&["--shutdown-on-sigterm", "default now"]), "shutdown-on-sigterm"), "now");
    let refused = |value: &str| error(&["--shutdown-on-sigterm", value]);
    assert!(refused("save nosave").ends_with("shutdown options SAVE and NOSAVE can't be used simultaneously"));
    for value in ["", "bogus"] {
        let expected = "argument(s) must be one of the following: default, save, nosave, now, force";
        assert!(refused(value).ends_with(expected), "{}", refused(value));
    }
}

#[test]
fn what_would_promise_too_much_is_refused() {
    assert!(error(&["--min-replicas-to-write", "1"]).ends_with("replication is not available"));
    let mut c = Config::default();
    let id = |name: &str| ParamId::find(name.as_bytes()).unwrap();
    assert_eq!(
        c.set_live(id("min-slaves-to-write"), b"2", true).unwrap_err(),
        "replication is not available"
    );
    assert_eq!(c.set_live(id("min-replicas-to-write"), b"0", true), Ok(()));
    let mut set = |value: &str| {
        c.set_live(id("maxmemory-clients"), value.as_bytes(), true).map(|()| shown(&c, "maxmemory-clients"))
    };
    assert_eq!(set("10%").unwrap(), "10%");
    assert_eq!(set("0%").unwrap(), "0");
    assert_eq!(set("1gb").unwrap(), "1073741824");
    assert_eq!(set("101%").unwrap_err(), "percentage argument must be less or equal to 100");
    for value in ["abc", "-1", "%", "-1%"] {
        assert_eq!(set(value).unwrap_err(), "argument must be a memory or percent value", "{value}");
    }
    let c = config(&["--maxmemory", "1000", "--maxmemory-clients", "15%"]);
    assert_eq!(c.settings.max_client_bytes(), 150);
    for (given, shown_as) in [("0", "1"), ("1000", "500"), ("42", "42")] {
        assert_eq!(shown(&config(&["--hz", given]), "hz"), shown_as);
    }
}

#[test]
fn memory_is_read_as_redis_reads_it() {
    for (word, bytes) in [("", 0), ("kb", 0), ("1", 1), ("2KB", 2048), ("3m", 3_000_000), ("1gb", 1 << 30)] {
        assert_eq!(value::parse_memory(word.as_bytes()), Some(bytes), "{word}");
    }
    for word in ["99999999999999999999", "99999999999999gb"] {
        assert_eq!(value::parse_memory(word.as_bytes()), Some(u64::MAX), "{word}");
    }
    for word in ["-1", "1tb", "1 kb", "x"] {
        assert_eq!(value::parse_memory(word.as_bytes()), None, "{word}");
    }
}

/// Values of a parameter, each as the words of a directive.
fn samples(param: &Param) -> Vec<Vec<Vec<u8>>> {
    let each = |values: &[&str]| -> Vec<Vec<Vec<u8>>> {
        values.iter().map(|value| vec![value.as_bytes().to_vec()]).collect()
    };
    let lines = |values: &[&str]| -> Vec<Vec<Vec<u8>>> {
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        values.iter().map(|line| words(line)).collect()
    };
    let texts: [&[u8]; 8] = [
        b"",
        b"plain",
        b"two words",
        b"\"double\" 'single'",
        b"# no comment",
        b"\\",
        b"\t\n\r\x07\x08\0\xff \xc3\xa9",
        b"--flag",
    ];
    match param.kind {
        Kind::Bool => each(&["yes", "no"]),
        Kind::Int { min, max } => {
            each(&[&min.to_string(), &max.to_string(), &min.saturating_add(1).to_string()])
        }
        Kind::Memory { min, max } => {
            each(&[&min.to_string(), &max.min(i64::MAX as u64).to_string(), &(min + 12_345).to_string()])
        }
        Kind::MemoryOrPercent => each(&["0", "12%", "3gb"]),
        Kind::Hertz => each(&["1", "500", "33"]),
        Kind::Octal => each(&["0", "700", "0640"]),
        Kind::Choice(names) => each(names),
        Kind::Flags(names) => lines(names),
        Kind::Events => each(&["", "KEA", "nKE", "AKEnm", "g$xK"]),
        Kind::Title => each(&["{title} \"x\" 'y' # {port}", "plain"]),
        Kind::Text | Kind::Dir => texts.iter().map(|text| vec![text.to_vec()]).collect(),
        Kind::FileName => texts[1..].iter().map(|text| vec![text.to_vec()]).collect(),
        Kind::Words { min, max } => {
            let words = |count: usize| (0..count).map(|n| format!("{n}.\"#").into_bytes()).collect();
            let mut samples = vec![words(min.max(1)), words(max)];
            samples.extend((min == 0).then(|| vec![Vec::new()]));
            samples
        }
        Kind::SavePoints => lines(&["", "1 2", "60 1000 5 6"]),
        Kind::OutputLimits => lines(&["normal 1mb 2 3", "replica 1 2 3 pubsub 4 5 6", "pubsub 0 0 0"]),
        Kind::Percentiles => lines(&["", "50", "0 99.9 100"]),
    }
}

/// Whatever a setting is, and whatever the file and the files that it includes say: the rewritten file says it, and is the same
/// if it is rewritten again.
#[test]
fn every_setting_is_read_back_as_it_was_written() {
    let inner = temp_file("kept-inner.conf", "");
    let (mut count, mut left) = (0, Vec::new());
    for id in (0..PARAMS.len()).map(ParamId) {
        let param = id.param();
        let samples: Vec<_> = samples(param)
            .into_iter()
            .filter_map(|words| {
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                let mut config = Config::default();
                config.set_at_start(id, &words).ok().map(|()| config)
            })
            // A server that runs has a directory.
            .filter(|config: &Config| param.name != "dir" || !config.value(id).is_empty())
            .collect();
        if samples.len() < 2 {
            left.push(param.name);
        }
        for config in &samples {
            for other in &samples {
                let named = other.rewritten(b"# head\n\n# tail", Unnamed::All);
                std::fs::write(&inner, other.rewritten(b"", Unnamed::Needed)).unwrap();
                let included = [&named[..], format!("include {inner}\n").as_bytes()].concat();
                for old in [&b""[..], b"# head\nnosuch 'thing\n", &named, &included] {
                    let written = config.rewritten(old, Unnamed::Needed);
                    // What is no directive stays, and is refused by the next start.
                    let read =
                        written.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"nosuch"));
                    let read = Config::default().read_anew(&read.collect::<Vec<_>>().join(&b'\n')).unwrap();
                    let shown = String::from_utf8_lossy(&written);
                    assert_eq!(read.value(id), config.value(id), "{}: {shown}", param.name);
                    assert_eq!(read.values, config.values, "{}: {shown}", param.name);
                    let again = config.rewritten(&written, Unnamed::Needed);
                    assert_eq!(String::from_utf8_lossy(&again), shown, "{}", param.name);
                    count += 1;
                }
            }
        }
    }
    // Those of which only the default is taken.
    assert!(left.len() <= 12, "{left:?}");
    assert!(count > 2000, "{count}");
}
