//! What `cjson`, `cmsgpack` and `struct` read comes from strangers: an error or values; what was read is written and read
//! again.

#![no_main]

use std::cell::RefCell;

use stillframe_scripting::{
    Called, Host, LogLevel, Options, Permission, Replication, Resp, Script, State,
};

struct Nothing;

impl Host for Nothing {
    fn call(&mut self, _: &[&[u8]], _: Resp, _: &mut Vec<u8>) -> Called {
        Called::GivenUp
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn may_run(&mut self, _: &[&[u8]]) -> Permission {
        Permission::Denied
    }

    fn set_replication(&mut self, _: Replication) {}
}

const SOURCE: &str = "
    local kind, a, b = ARGV[1], ARGV[2], ARGV[3]
    if kind == '0' then
        local ok, value = pcall(cjson.decode, a)
        if ok then cjson.decode_max_depth(2000) cjson.encode_sparse_array(true) pcall(cjson.encode, value) end
    elseif kind == '1' then
        local function again(ok, ...) if ok then pcall(cmsgpack.pack, ...) end end
        again(pcall(cmsgpack.unpack, a))
        again(pcall(cmsgpack.unpack_limit, a, 2, #b))
    elseif kind == '2' then
        pcall(struct.unpack, a, b)
        pcall(struct.size, a)
        pcall(struct.pack, a, b, #b, -#b, b)
    else
        pcall(string.find, a, b)
        pcall(string.gsub, a, b, '%0%1')
    end
    return 'sound'";

thread_local! {
    static STATE: RefCell<Option<(State, Script)>> = const { RefCell::new(None) };
}

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (kind, a, b) = input;
    STATE.with_borrow_mut(|made| {
        let (state, script) = made.get_or_insert_with(|| {
            let state = State::new(Options::default()).expect("a state");
            let script = state.compile(SOURCE.as_bytes(), "sha").expect("a script");
            (state, script)
        });
        let kind = [b'0' + kind % 4];
        let mut reply = Vec::new();
        let keys: [&[u8]; 0] = [];
        state.run(script, &keys, &[&kind[..], a, b], &mut Nothing, Resp::Two, &mut reply);
        // Or the run had too much memory.
        assert!(reply == b"$5\r\nsound\r\n" || reply.starts_with(b"-OOM"), "{}", reply.escape_ascii());
    });
});
