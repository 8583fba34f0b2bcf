//! Debian's redis-server, and scripts on both sides.

use std::io::{Read, Write};

use stillframe_scripting::{
    Called, Host, LibraryFunction, LogLevel, Options, Permission, Replication, Resp, State,
};
use stillframe_testkit::{encoded, Address, Launch, Process, Stream, TempDir};

/// A connection that gives replies as they come.
pub struct Raw {
    stream: Stream,
    unread: Vec<u8>,
}

impl Raw {
    pub fn connect(address: &Address) -> Raw {
        Raw { stream: address.connect().unwrap(), unread: Vec::new() }
    }

    pub fn run(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.stream.write_all(&encoded(words)).unwrap();
        loop {
            if let Some(len) = reply_len(&self.unread) {
                let rest = self.unread.split_off(len);
                return std::mem::replace(&mut self.unread, rest);
            }
            let mut chunk = [0; 16 << 10];
            let len = self.stream.read(&mut chunk).unwrap();
            assert!(len > 0, "redis-server has gone: {:?}", words[0].escape_ascii().to_string());
            self.unread.extend_from_slice(&chunk[..len]);
        }
    }
}

/// Bytes of the reply at the start, if it is there as a whole.
fn reply_len(bytes: &[u8]) -> Option<usize> {
    let line_len = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line_len - 2]).unwrap().parse::<i64>().unwrap();
    let items = |count: i64| (0..count).try_fold(line_len, |at, _| Some(at + reply_len(&bytes[at..])?));
    match bytes[0] {
        b'$' | b'=' if number() >= 0 => {
            let len = line_len + number() as usize + 2;
            (bytes.len() >= len).then_some(len)
        }
        b'*' | b'~' | b'>' => items(number()),
        b'%' => items(number() * 2),
        _ => Some(line_len),
    }
}

/// Runs the commands of scripts on the server as its own scripts would.
pub struct Forward {
    two: Raw,
    three: Raw,
}

impl Host for Forward {
    fn call(&mut self, words: &[&[u8]], resp: Resp, reply: &mut Vec<u8>) -> Called {
        let connection = match resp {
            Resp::Two => &mut self.two,
            Resp::Three => &mut self.three,
        };
        if ["eval", "subscribe", "debug"].iter().any(|name| words[0] == name.as_bytes()) {
            reply.extend_from_slice(b"-ERR This Redis command is not allowed from script\r\n");
            return Called::Replied;
        }
        let answer = connection.run(words);
        if answer.starts_with(b"-ERR unknown command") {
            reply.extend_from_slice(b"-ERR Unknown Redis command called from script\r\n");
        } else if answer.starts_with(b"-ERR wrong number of arguments") {
            reply.extend_from_slice(b"-ERR Wrong number of args calling Redis command from script\r\n");
        } else {
            reply.extend_from_slice(&answer);
        }
        Called::Replied
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn may_run(&mut self, words: &[&[u8]]) -> Permission {
        match words[0] {
            b"nosuch" => Permission::NoSuchCommand,
            _ => Permission::Allowed,
        }
    }

    fn set_replication(&mut self, _: Replication) {}
}

/// The server, and a state of this crate beside it.
pub struct Pair {
    _process: Process,
    _dir: TempDir,
    pub two: Raw,
    three: Raw,
    host: Forward,
    pub state: State,
}

impl Pair {
    pub fn start() -> Pair {
        let dir = TempDir::new("scripting");
        let mut launch = Launch::at_socket("redis-server", &dir);
        launch.is_mortal = true;
        let (process, _) = launch.start();
        let connect = || Raw::connect(process.address());
        let connect_three = || {
            let mut raw = connect();
            raw.run(&[b"HELLO", b"3"]);
            raw
        };
        let host = Forward { two: connect(), three: connect_three() };
        let (two, three) = (connect(), connect_three());
        let state = State::new(Options::default()).unwrap();
        Pair { two, three, host, state, _process: process, _dir: dir }
    }

    pub fn theirs(&mut self, source: &[u8], keys: &[&[u8]], args: &[&[u8]], resp: Resp) -> Vec<u8> {
        let key_count = keys.len().to_string();
        let mut words: Vec<&[u8]> = vec![b"EVAL", source, key_count.as_bytes()];
        words.extend_from_slice(keys);
        words.extend_from_slice(args);
        match resp {
            Resp::Two => self.two.run(&words),
            Resp::Three => self.three.run(&words),
        }
    }

    pub fn ours(&mut self, source: &[u8], keys: &[&[u8]], args: &[&[u8]], resp: Resp) -> Vec<u8> {
        let sha = sha1_hex(source);
        let mut reply = Vec::new();
        match self.state.compile(source, &sha) {
            Ok(script) => {
                self.state.run(&script, keys, args, &mut self.host, resp, &mut reply);
            }
            Err(error) => reply = [b"-", &error.reply()[..], b"\r\n"].concat(),
        }
        reply
    }

    pub fn ours_of_function(
        &mut self,
        function: &LibraryFunction,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Vec<u8> {
        let mut reply = Vec::new();
        self.state.call(function, keys, args, &mut self.host, Resp::Two, &mut reply);
        reply
    }

    /// What differs.
    pub fn compare(&mut self, source: &[u8], keys: &[&[u8]], args: &[&[u8]], resp: Resp) -> Option<String> {
        let theirs = self.theirs(source, keys, args, resp);
        let ours = self.ours(source, keys, args, resp);
        (ours != theirs).then(|| {
            let shown = |bytes: &[u8]| bytes[..bytes.len().min(600)].escape_ascii().to_string();
            let args: Vec<String> = args.iter().map(|arg| shown(arg)).collect();
            format!(
                "{}\n   {args:?}\n   redis: {}\n   ours:  {}",
                String::from_utf8_lossy(source),
                shown(&theirs),
                shown(&ours)
            )
        })
    }
}

pub fn sha1_hex(bytes: &[u8]) -> String {
    use sha1::{Digest, Sha1};
    Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
