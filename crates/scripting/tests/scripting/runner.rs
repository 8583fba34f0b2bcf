//! A state with a host for tests.

use stillframe_scripting::{
    Called, Halt, Host, LogLevel, Options, Outcome, Permission, Replication, Resp, State,
};

/// Answers a few commands by itself.
#[derive(Default)]
pub struct Echo {
    pub calls: Vec<Vec<Vec<u8>>>,
    pub log: Vec<(LogLevel, Vec<u8>)>,
    pub replications: Vec<Replication>,
    /// The command with this number, from 1, gives the run up.
    pub gives_up_at: usize,
}

impl Host for Echo {
    fn call(&mut self, words: &[&[u8]], _: Resp, reply: &mut Vec<u8>) -> Called {
        self.calls.push(words.iter().map(|word| word.to_vec()).collect());
        if self.calls.len() == self.gives_up_at {
            return Called::GivenUp;
        }
        match words[0].to_ascii_lowercase().as_slice() {
            b"ping" => reply.extend_from_slice(b"+PONG\r\n"),
            b"echo" => {
                reply.extend_from_slice(format!("${}\r\n", words[1].len()).as_bytes());
                reply.extend_from_slice(words[1]);
                reply.extend_from_slice(b"\r\n");
            }
            // What the test wants to be answered.
            b"raw" => reply.extend_from_slice(words[1]),
            _ => reply.extend_from_slice(b"-ERR Unknown Redis command called from script\r\n"),
        }
        Called::Replied
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        self.log.push((level, text.to_vec()));
    }

    fn may_run(&mut self, _: &[&[u8]]) -> Permission {
        Permission::Allowed
    }

    fn set_replication(&mut self, replication: Replication) {
        self.replications.push(replication);
    }
}

pub const NO_WORDS: [&str; 0] = [];

pub fn state() -> State {
    State::new(Options::default()).unwrap()
}

/// The outcome of a script and its reply, lossily as text.
pub fn run_on(state: &State, source: &str, host: &mut dyn Host) -> (Outcome, String) {
    let script = state.compile(source.as_bytes(), "sha").unwrap();
    let mut reply = Vec::new();
    let outcome = state.run(&script, &NO_WORDS, &NO_WORDS, host, Resp::Two, &mut reply);
    (outcome, String::from_utf8_lossy(&reply).into_owned())
}

pub fn run(source: &str) -> (Outcome, String) {
    run_on(&state(), source, &mut Echo::default())
}

pub fn reply(source: &str) -> String {
    run(source).1
}

pub fn halted(outcome: Outcome) -> Option<Halt> {
    match outcome {
        Outcome::Halted(halt) => Some(halt),
        _ => None,
    }
}
