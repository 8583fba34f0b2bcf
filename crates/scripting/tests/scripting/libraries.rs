//! Function libraries, beside redis-server.

use stillframe_scripting::{Options, Resp, State};

use crate::runner::{Echo, NO_WORDS};
use crate::server::Pair;

/// What `FUNCTION LOAD` answers to each.
const SOURCES: &[&str] = &[
    "#!lua name=a\nredis.call('x')",
    "#!lua name=a\nredis.register_function()",
    "#!lua name=a\nredis.register_function('a')",
    "#!lua name=a\nredis.register_function('a b',function() end)",
    "#!lua name=a\nredis.register_function('a',1)",
    "#!lua name=a\nredis.register_function(1,function() end)",
    "#!lua name=a\nredis.register_function({},function() end)",
    "#!lua name=a\nredis.register_function('a',function() end,3)",
    "#!lua name=a\nredis.register_function{function_name='a'}",
    "#!lua name=a\nredis.register_function{callback=function() end}",
    "#!lua name=a\nredis.register_function{x=1}",
    "#!lua name=a\nredis.register_function{[1]=1}",
    "#!lua name=a\nredis.register_function{[{}]=1}",
    "#!lua name=a\nredis.register_function{function_name={}}",
    "#!lua name=a\nredis.register_function{description={}}",
    "#!lua name=a\nredis.register_function{callback=1}",
    "#!lua name=a\nredis.register_function{flags=1}",
    "#!lua name=a\nredis.register_function{flags={1}}",
    "#!lua name=a\nredis.register_function{flags={{}}}",
    "#!lua name=a\nredis.register_function{function_name='f',callback=function() end,flags={'zz'}}",
    "#!lua name=a\nx=",
    "#!lua name=a\nreturn 1",
    "#!lua name=a\nreturn redis.foo",
    "#!lua name=a\nreturn foo",
    "#!lua name=a\nfoo=1",
    "#!lua name=a\nredis.x=1",
    "#!lua name=a\nmath.random()",
    "#!lua name=a\nerror('x')",
    "#!lua name=a\nlocal x = nil + 1",
    "#!lua name=a\nreturn pcall",
    "#!lua name=a\nreturn string.rep('x',2)",
    "#!lua name=a\nlocal s = ('x'):rep('y')",
    "#!lua name=a\nredis.log()",
    "#!lua name=a\nreturn KEYS",
    "#!lua name=a\nreturn _G",
    "#!lua name=a\nredis.register_function('f',function() end) redis.register_function('f',function() end)",
    "#!lua",
    "#!lua name=",
    "#!lua\n",
    "#!lua name=\n",
    "#!lua name=a b\n",
    "#!lua name=a name=b\n",
    "#!lua foo=1\n",
    "#!lu name=a\n",
    "#!LUA name=a\nx=",
    "x",
    "",
    "#!lua name=\"a b\"\n",
    "#!lua name=a-b\nreturn 1",
    "#!",
    "#!\n",
    "#! lua\n",
    "#! lua name=a\n",
    "#!lua NAME=a\nx=",
    "#!lua \"name=a\n",
    "#!lua name=a\n\n\nx x",
    "#!lua name=a\nlocal function f() return f() end f()",
    "#!lua name=a\nwhile true do end",
];

#[test]
fn loading_answers_as_redis_does() {
    let mut pair = Pair::start();
    let mut different = Vec::new();
    for source in SOURCES {
        pair.two.run(&[b"FUNCTION", b"FLUSH"]);
        let theirs =
            String::from_utf8_lossy(&pair.two.run(&[b"FUNCTION", b"LOAD", source.as_bytes()])).into_owned();
        let ours = match pair.state.load_library(source.as_bytes()) {
            Ok(library) => format!("${}\r\n{}\r\n", library.name.len(), library.name),
            Err(error) => format!("-{error}\r\n"),
        };
        if theirs != ours {
            different.push(format!("{source}\n   redis: {theirs:?}\n   ours:  {ours:?}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

const LIBRARY: &str = "#!lua name=lib1
local count = 0
redis.register_function('good', function(k, a) return {#k, #a, k[1], a[1]} end)
redis.register_function('bad', function(k, a) error('oops') end)
redis.register_function('bad_table', function(k, a) error({err='OWN oops'}) end)
redis.register_function('keys', function() return KEYS end)
redis.register_function('register', function() return redis.register_function('x', function() end) end)
redis.register_function('unknown', function() return redis.call('nosuch') end)
redis.register_function('echo', function(k) return redis.call('echo', k[1]) end)
redis.register_function('counts', function() count = count + 1 return count end)
redis.register_function('globals', function() return foo end)
redis.register_function('writes', function() foo = 1 end)
redis.register_function('chunk', function() return loadstring('return KEYS')() end)
redis.register_function('lists', function() local t = {} for k in pairs(redis) do t[#t + 1] = k end table.sort(t) return t end)
redis.register_function('random', function() math.randomseed(3) return math.random(1000) end)
redis.register_function{function_name='named', description='says', callback=function() return 1 end, flags={'no-writes'}}
";

#[test]
fn functions_answer_as_in_redis() {
    let mut pair = Pair::start();
    pair.two.run(&[b"FUNCTION", b"LOAD", LIBRARY.as_bytes()]);
    let library = pair.state.load_library(LIBRARY.as_bytes()).unwrap();
    let mut different = Vec::new();
    for function in &library.functions {
        let theirs = pair.two.run(&[b"FCALL", function.name.as_bytes(), b"1", b"k1", b"a1"]);
        let ours = pair.ours_of_function(function, &[b"k1"], &[b"a1"]);
        if theirs != ours {
            different.push(format!(
                "{}\n   redis: {}\n   ours:  {}",
                function.name,
                theirs.escape_ascii(),
                ours.escape_ascii()
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    let named = library.functions.last().unwrap();
    assert_eq!(named.description.as_deref(), Some(&b"says"[..]));
    assert!(named.flags.no_writes);
}

#[test]
fn scripts_and_libraries_see_different_globals() {
    let state = State::new(Options::default()).unwrap();
    let library = state.load_library(LIBRARY.as_bytes()).unwrap();
    let script = state.compile(b"return loadstring('return #KEYS')()", "sha").unwrap();
    let mut host = Echo::default();
    let run = |host: &mut Echo| {
        let mut reply = Vec::new();
        state.run(&script, &["k"], &["a"], host, Resp::Two, &mut reply);
        reply
    };
    assert_eq!(run(&mut host), b":1\r\n");
    let mut reply = Vec::new();
    state.call(&library.functions[0], &NO_WORDS, &NO_WORDS, &mut host, Resp::Two, &mut reply);
    assert_eq!(reply, b"*2\r\n:0\r\n:0\r\n");
    assert_eq!(run(&mut host), b":1\r\n");
}
