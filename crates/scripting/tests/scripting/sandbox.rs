//! What a script leaves behind: `KEYS` and `ARGV`, and nothing else.

use stillframe_scripting::{Flags, LogLevel, Replication, Resp};

use crate::runner::{reply, run_on, state, Echo, NO_WORDS};

/// Each first script tries to change what the second sees.
#[test]
fn a_run_changes_nothing_for_the_next() {
    for (first, second, expected) in [
        ("x = 1", "return rawget(_G, 'x')", "$-1\r\n"),
        ("rawset(_G, 'x', 1)", "return rawget(_G, 'x')", "$-1\r\n"),
        ("table.insert(_G, 1)", "return _G[1] == nil and 1 or 2", "-ERR"),
        ("table.insert(redis, 1)", "return redis[1]", "$-1\r\n"),
        ("rawset(redis, 'call', print)", "return redis.call('echo', 'x')", "$1\r\nx\r\n"),
        ("getmetatable('').__index = nil", "return ('x'):rep(2)", "$2\r\nxx\r\n"),
        ("rawset(getmetatable(''), '__index', {})", "return ('x'):rep(2)", "$2\r\nxx\r\n"),
        ("setmetatable(getmetatable(''), {__index = 1})", "return ('x'):rep(2)", "$2\r\nxx\r\n"),
        ("getmetatable(_G).__index = nil", "return x", "-ERR user_script:1: Script attempted"),
        ("rawset(getmetatable(_G), '__index', nil)", "return x", "-ERR user_script:1: Script attempted"),
        ("setmetatable(_G, nil)", "return x", "-ERR user_script:1: Script attempted"),
        ("local n = pairs({}) local k, v = n(redis) v()", "return redis.call('echo', 'x')", "$1\r\nx\r\n"),
        ("collectgarbage('stop')", "return collectgarbage('setpause')", ":200\r\n"),
        ("cjson.encode_max_depth(1)", "return cjson.encode({{}})", "$4\r\n[{}]\r\n"),
        ("redis.setresp(3)", "return true", ":1\r\n"),
        ("KEYS[1] = 'evil'", "return #KEYS", ":0\r\n"),
        ("string.rep = nil", "return ('x'):rep(2)", "$2\r\nxx\r\n"),
        ("for k, v in pairs(string) do string[k] = nil end", "return ('x'):rep(2)", "$2\r\nxx\r\n"),
        ("for k in pairs(_G) do _G[k] = nil end", "return tostring(1)", "$1\r\n1\r\n"),
    ] {
        let state = state();
        run_on(&state, first, &mut Echo::default());
        let (_, reply) = run_on(&state, second, &mut Echo::default());
        assert!(reply.starts_with(expected), "{first}; {second}: {reply}");
        // The same from inside one script that goes on.
        let both = format!("pcall(function() {first} end) return tostring(redis.call('echo', 'on'))");
        assert_eq!(run_on(&state, &both, &mut Echo::default()).1, "$2\r\non\r\n", "{first}");
    }
}

#[test]
fn there_is_no_way_out() {
    for name in [
        "print", "dofile", "loadfile", "require", "module", "newproxy", "getfenv", "setfenv", "debug", "os",
        "io", "package",
    ] {
        assert!(reply(&format!("return {name}")).contains("nonexistent global variable"), "{name}");
    }
    // Nothing that is reached from the globals is a table that can be written, or a function of another kind.
    let walk = "
        local seen, written = {}, {}
        local function walk(t, path)
            if seen[t] then return end
            seen[t] = true
            for _, key in ipairs({'x', 1}) do
                if pcall(function() t[key] = 1 end) or pcall(rawset, t, key, 1) then written[#written + 1] = path end
            end
            for k, v in pairs(t) do
                if type(v) == 'table' and t ~= v and k ~= 'KEYS' and k ~= 'ARGV' then walk(v, path .. '.' .. tostring(k)) end
            end
            local m = getmetatable(t)
            if type(m) == 'table' then walk(m, path .. '#') end
        end
        walk(_G, '_G')
        local m = getmetatable('')
        walk(m, 'string#')
        return table.concat(written, ' ')";
    assert_eq!(reply(walk), "$0\r\n\r\n");
}

#[test]
fn a_host_hears_what_a_script_says() {
    let mut host = Echo::default();
    let state = state();
    run_on(
        &state,
        "redis.log(redis.LOG_WARNING, 'a', 1, {}, 'b\\0') redis.set_repl(redis.REPL_AOF)",
        &mut host,
    );
    assert_eq!(host.log, [(LogLevel::Warning, b"a 1 b\0".to_vec())]);
    assert_eq!(host.replications, [Replication { to_log: true, to_replicas: false }]);
    run_on(&state, "redis.call('x', 1, 1.5, 'a\\0b', 2^60)", &mut host);
    let words: Vec<&[u8]> = host.calls[0].iter().map(Vec::as_slice).collect();
    assert_eq!(words, [&b"x"[..], b"1", b"1.5", b"a\0b", b"1.152921504606847e+18"]);
}

#[test]
fn newer_replies_become_tables() {
    for (raw, source, expected) in [
        (
            "%1\\r\\n+a\\r\\n:1\\r\\n",
            "local n for k, v in pairs(r.map) do n = k.ok .. v end return n",
            "$2\r\na1\r\n",
        ),
        ("~1\\r\\n$1\\r\\nm\\r\\n", "return r.set.m", ":1\r\n"),
        (",1.5\\r\\n", "return tostring(r.double)", "$3\r\n1.5\r\n"),
        ("(123\\r\\n", "return r.big_number", "$3\r\n123\r\n"),
        (
            "=7\\r\\ntxt:abc\\r\\n",
            "return r.verbatim_string.string .. r.verbatim_string.format",
            "$6\r\nabctxt\r\n",
        ),
        ("_\\r\\n", "return tostring(r)", "$3\r\nnil\r\n"),
        ("#t\\r\\n", "return tostring(r)", "$4\r\ntrue\r\n"),
        ("|1\\r\\n+a\\r\\n+b\\r\\n:7\\r\\n", "return r", ":7\r\n"),
        ("*-1\\r\\n", "return tostring(r)", "$5\r\nfalse\r\n"),
    ] {
        assert_eq!(reply(&format!("local r = redis.call('raw', '{raw}') {source}")), expected, "{raw}");
    }
}

#[test]
fn flags_are_told() {
    let state = state();
    assert_eq!(state.compile(b"return 1", "sha").unwrap().flags, None);
    let script = state.compile(b"#!lua flags=no-writes,allow-oom\nreturn KEYS[1]", "sha").unwrap();
    assert_eq!(script.flags, Some(Flags { no_writes: true, allow_oom: true, ..Flags::default() }));
    assert_eq!(script.flags.unwrap().names().collect::<Vec<_>>(), ["no-writes", "allow-oom"]);
    let mut reply = Vec::new();
    state.run(
        &script,
        &["k"],
        &NO_WORDS[..].iter().take(0).collect::<Vec<_>>(),
        &mut Echo::default(),
        Resp::Two,
        &mut reply,
    );
    assert_eq!(reply, b"$1\r\nk\r\n");
}
