//! What Lua as it is lets a script do to the process. Each test shows the hole in a child process without the guard, if
//! it ends a process, and that it is closed here.

use std::process::Command;
use std::thread;

use crate::runner::{reply, run};

/// Names a script that a child process is to run in Lua as it is.
const CHILD: &str = "STILLFRAME_SCRIPT_WITHOUT_GUARD";

/// Stacks of threads are not larger by default.
const STACK_BYTES: usize = 2 << 20;

fn on_an_ordinary_stack<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap().join().unwrap()
}

/// Runs the script that the variable names, if it is there: this process is the child.
#[test]
fn child() {
    let Ok(source) = std::env::var(CHILD) else { return };
    on_an_ordinary_stack(move || {
        let lua = mlua::Lua::new();
        let _ = lua.load(&source).exec();
    });
}

/// Whether Lua as it is ends the process.
fn crashes_without_guard(source: &str) -> bool {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holes::child", "--nocapture"])
        .env(CHILD, source)
        .output()
        .unwrap();
    output.status.code().is_none()
}

fn guarded(source: &'static str) -> String {
    on_an_ordinary_stack(move || reply(source))
}

#[test]
fn unpack_does_not_overflow() {
    const SOURCE: &str = "return unpack({}, 0, 2147483647)";
    assert!(crashes_without_guard(SOURCE));
    assert!(guarded(SOURCE).contains("too many results to unpack"));
    for range in [
        "-2147483648, 2147483647",
        "2147483647, 2147483647",
        "2147483646, 2147483647",
        "-1e300, 1e300",
        "0/0, 1",
    ] {
        let source = format!("return unpack({{}}, {range})");
        assert!(
            reply(&source).starts_with('-') || reply(&source) == "$-1\r\n",
            "{range}: {}",
            reply(&source)
        );
    }
}

#[test]
fn patterns_do_not_overflow_the_stack() {
    const SOURCE: &str = "return string.find(string.rep('a', 300000), string.rep('a?', 300000))";
    assert!(crashes_without_guard(SOURCE));
    assert!(guarded(SOURCE).contains("pattern too complex"));
    for function in ["find", "match", "gsub"] {
        for pattern in
            ["('a?'):rep(100000)", "('a*'):rep(100000)", "('a-'):rep(100000)..'b'", "('.-'):rep(5000)"]
        {
            let source = format!("return string.{function}(('a'):rep(200000), {pattern}, '')");
            on_an_ordinary_stack(move || run(&source));
        }
    }
}

#[test]
fn bytecode_is_not_loaded() {
    // Its header is that of 5.1, its body ends in the middle: the undumper reads what the script says.
    let crafted = "local f = string.dump(function() return 1 end) return loadstring(f)()";
    assert!(reply(crafted).contains("unable to dump"));
    for source in [
        "return tostring(loadstring('\\27Lua\\81\\0\\1\\4\\8\\4\\8\\0'))",
        "return tostring(loadstring('\\27Lua\\81\\0\\1\\4\\8\\4\\8\\0', '=x'))",
        "local done return tostring(load(function() if not done then done = true return '\\27Lua\\81\\0\\1\\4\\8\\4\\8\\0' end end))",
        "local i = 0 return tostring(load(function() i = i + 1 return ('\\27Lua\\81'):sub(i, i) end))",
    ] {
        assert_eq!(reply(source), "$3\r\nnil\r\n", "{source}");
    }
    // Lua as it is does load it.
    let lua = mlua::Lua::new();
    let loads: bool =
        lua.load("return loadstring(string.dump(function() return 1 end))() == 1").eval().unwrap();
    assert!(loads);
}

/// The parser of Lua as it is calls the script for each piece, with the name of the chunk in nobody's hands.
#[test]
fn a_reader_is_not_called_while_its_chunk_is_parsed() {
    for source in [
        "local i = 0 local f = load(function() i = i + 1 collectgarbage() if i < 100 then return 'local a' .. i .. ' = 1 ' end end) return type(f)",
        "local i = 0 local f = load(function() i = i + 1 collectgarbage() if i < 100 then return 'local a' .. i .. ' = 1 ' end end, '=a\\0' .. math.random()) return type(f)",
    ] {
        assert_eq!(reply(source), "$8\r\nfunction\r\n");
    }
    let endless = "return select(2, load(function() return string.rep('x ', 100000) end))";
    assert_eq!(reply(endless), "$15\r\nchunk too large\r\n");
}

#[test]
fn long_brackets_are_bounded_by_the_size_of_a_source() {
    let source = "local s = string.rep('=', 8000000) return tostring(loadstring('return [' .. s .. '[x]' .. s .. ']'))";
    assert!(!reply(source).is_empty());
    assert!(reply("return select(2, loadstring(string.rep(' ', 17000000)))").contains("too large"));
    let state = crate::runner::state();
    assert!(state.compile(&vec![b' '; 17 << 20], "sha").is_err());
}

/// Recursion in C is bounded by Lua's 200 nested calls, here with what this crate adds to each.
#[test]
fn deep_recursion_fits_an_ordinary_stack() {
    for source in [
        "local function f() return pcall(f) end return tostring(f())",
        "local function f(n) return (string.gsub('x', '.', function() return f(n + 1) end)) end return f(1)",
        "local function f() table.sort({2, 1}, function() f() end) end f()",
        "local t = {} t = setmetatable(t, {__index = function(t, k) return t[k + 1] end}) return t[1]",
        "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
        "local function f() return coroutine.wrap(f)() end return f()",
        "local function f() return select(2, coroutine.resume(coroutine.create(f))) end return tostring(f())",
        "local function f() return xpcall(f, f) end return tostring(f())",
        "local function f() return load(f) end return tostring(f())",
        "return loadstring('return ' .. string.rep('(', 100000) .. '1' .. string.rep(')', 100000))",
        "return loadstring('return ' .. string.rep('{', 100000) .. string.rep('}', 100000))",
        "return loadstring(string.rep('if x then ', 100000))",
        "return loadstring('return ' .. string.rep('-', 100000) .. '1')",
        "return loadstring('return ' .. string.rep('1 .. ', 100000) .. '1')",
        "return loadstring('return ' .. string.rep('a.b', 100000))",
        "return loadstring(string.rep('function f() ', 100000))",
        "return cjson.decode(string.rep('[', 100000))",
        "cjson.decode_max_depth(100000) return cjson.decode(string.rep('[', 100000))",
        "cjson.encode_max_depth(100000) local t = {} for i = 1, 50000 do t = {t} end return cjson.encode(t)",
        "cjson.encode_max_depth(100000) local t = {} for i = 1, 50000 do t = {a = t} end return cjson.encode(t)",
        "cjson.encode_max_depth(100000) local t = {} for i = 1, 1900 do t = {a = t} end return cjson.encode(t)",
        "local t = {} for i = 1, 900 do t = {a = t} end return cjson.encode(cjson.decode(cjson.encode(t)))",
        "cjson.decode_max_depth(100000) return cjson.decode(string.rep('{\"a\":', 100000))",
        "return cmsgpack.unpack(string.rep('\\145', 100000))",
        "return cmsgpack.unpack(string.rep('\\129\\1', 100000))",
        "local t = {} for i = 1, 50000 do t = {t} end return t",
        "local t = {} t[1] = t return t",
        "local t = {} t.map = t return t",
        "return string.format('%99999d', 1)",
        "return string.rep('x', 100, 'y'):find(('('):rep(30) .. ('.'):rep(1000))",
        "table.sort({1,2,3,4,5,6,7,8,9,10}, function() return true end)",
        "local t = {} for i = 1, 10000 do t[i] = i end table.sort(t, function(a, b) return math.random() < 0.5 end)",
    ] {
        on_an_ordinary_stack(move || {
            reply(source);
            // The state is sound after it.
            let state = crate::runner::state();
            crate::runner::run_on(&state, source, &mut crate::runner::Echo::default());
            let (_, after) = crate::runner::run_on(&state, "return 1", &mut crate::runner::Echo::default());
            assert_eq!(after, ":1\r\n", "{source}");
        });
    }
}

#[test]
fn replies_of_a_host_that_are_none_are_errors() {
    for raw in [
        "",
        "$5\\r\\nab\\r\\n",
        "*2\\r\\n:1\\r\\n",
        "?\\r\\n",
        "$x\\r\\n",
        "%1\\r\\n",
        "=3\\r\\nab",
        ":99999999999999999999\\r\\n",
    ] {
        let reply = reply(&format!("return redis.call('raw', '{raw}')"));
        assert!(reply.starts_with("-ERR"), "{raw}: {reply}");
    }
    let deep = reply("return redis.call('raw', string.rep('*1\\r\\n', 100000))");
    assert!(deep.starts_with("-ERR"), "{deep}");
    let long = reply("return redis.call('raw', '*2147483647\\r\\n:1\\r\\n')");
    assert!(long.starts_with("-ERR"), "{long}");
}
