//! Runs that are ended: no `pcall` catches it, in whichever coroutine they are.

use std::time::{Duration, Instant};

use stillframe_scripting::{Halt, Options, Resp, State};

use crate::runner::{halted, run_on, state, Echo, NO_WORDS};

/// Runs a script that another thread kills.
fn killed(source: &str) -> (Option<Halt>, String) {
    let state = state();
    let interrupt = state.interrupt();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        interrupt.set(Halt::Killed);
    });
    let begin = Instant::now();
    let (outcome, reply) = run_on(&state, source, &mut Echo::default());
    killer.join().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(20), "{source} was killed after {:?}", begin.elapsed());
    (halted(outcome), reply)
}

#[test]
fn a_kill_ends_whatever_a_script_does() {
    for source in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function(e) return e end) end",
        "xpcall(function() while true do end end, function(e) while true do end end) while true do end",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "while true do pcall(coroutine.wrap(function() while true do end end)) end",
        "while true do coroutine.wrap(function() for i = 1, 20000 do end end)() end",
        "while true do local c = coroutine.wrap(function() while true do for i = 1, 20000 do end coroutine.yield() end end) for i = 1, 1000 do c() end end",
        "local function f() pcall(f) while true do end end f()",
        "local t = setmetatable({}, {__index = function() while true do end end}) while true do pcall(function() return t.x end) end",
        "while true do pcall(redis.call, 'ping') end",
        "while true do collectgarbage() end",
        "while true do pcall(string.gsub, 'abc', '.', function() while true do end end) end",
        "while true do pcall(table.sort, {3, 2, 1}, function() while true do end end) end",
        "while true do pcall(load, function() while true do end end) end",
        "return string.find(string.rep('a', 100000), string.rep('.-', 20) .. 'b')",
        "while true do pcall(error) end",
    ] {
        let (halt, reply) = killed(source);
        assert_eq!(halt, Some(Halt::Killed), "{source}: {reply}");
        assert!(reply.starts_with("-ERR Script killed by user with SCRIPT KILL..."), "{source}: {reply}");
    }
}

#[test]
fn nothing_is_called_after_a_run_was_given_up() {
    for source in [
        "redis.call('ping') redis.call('ping') redis.call('ping') return 1",
        "for i = 1, 10 do pcall(redis.call, 'ping') end return 1",
        "for i = 1, 10 do redis.pcall('ping') end return 1",
        "for i = 1, 10 do coroutine.resume(coroutine.create(function() redis.call('ping') end)) end return 1",
        "for i = 1, 10 do pcall(coroutine.wrap(function() redis.call('ping') end)) end return 1",
        "for i = 1, 10 do xpcall(function() redis.call('ping') end, function(e) redis.call('ping') end) end return 1",
        "while true do pcall(redis.call, 'ping') end",
    ] {
        let mut host = Echo { gives_up_at: 2, ..Echo::default() };
        let state = state();
        let (outcome, reply) = run_on(&state, source, &mut host);
        assert_eq!(halted(outcome), Some(Halt::GivenUp), "{source}");
        assert_eq!((host.calls.len(), reply.as_str()), (2, ""), "{source}");
        // The next run knows nothing of it.
        let (_, reply) = run_on(&state, "return redis.call('echo', 'x')", &mut Echo::default());
        assert_eq!(reply, "$1\r\nx\r\n");
    }
}

#[test]
fn memory_is_bounded() {
    let options = Options { memory_bytes_max: 8 << 20, ..Options::default() };
    for source in [
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = {} end",
        "local t = {} while true do pcall(function() for i = 1, 1000 do t[#t + 1] = string.rep('x', 1000) .. #t end end) end",
        "return string.rep('x', 1e9)",
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 1000 do t[i] = s end return table.concat(t)",
        "local s = string.rep('x', 1e6) return s:gsub('.', string.rep('y', 1000))",
        "local s = string.rep('x', 1e6) return string.format(string.rep('%s', 100), s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s)",
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 1000 do t[i] = s end return cjson.encode(t)",
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 1000 do t[i] = s end return cmsgpack.pack(t)",
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 1000 do t[i] = s end return t",
        "local t = {} t[1] = t t[2] = t return t",
        "local t = {} t.map = {a = t, b = t} return t",
        "return cjson.decode('[' .. string.rep('[],', 1000000) .. '[]]')",
        "return cmsgpack.unpack('\\221\\0\\15\\66\\64' .. string.rep('\\144', 1000000))",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local function f(...) return f(1, ...) end return f()",
    ] {
        let state = State::new(options).unwrap();
        let (outcome, reply) = run_on(&state, source, &mut Echo::default());
        assert!(reply.len() < 600, "{source}: {outcome:?}");
        assert!(reply.starts_with('-'), "{source}: {reply}");
        state.collect_garbage();
        state.collect_garbage();
        assert!(state.used_bytes() < 4 << 20, "{source}: {} bytes are left", state.used_bytes());
    }
}

#[test]
fn a_seed_is_put_back() {
    let state = state();
    let before = state.random();
    let run = || run_on(&state, "return tostring(math.random())", &mut Echo::default()).1;
    let first = run();
    assert_ne!(run(), first);
    state.set_random(before);
    assert_eq!(run(), first);
}

#[test]
fn an_interrupt_of_before_is_no_interrupt_of_this_run() {
    let state = state();
    state.interrupt().set(Halt::Killed);
    assert_eq!(run_on(&state, "return 1", &mut Echo::default()).1, ":1\r\n");
    let script = state.compile(b"return 2", "sha").unwrap();
    let mut reply = Vec::new();
    state.run(&script, &NO_WORDS, &NO_WORDS, &mut Echo::default(), Resp::Three, &mut reply);
    assert_eq!(reply, b":2\r\n");
}
