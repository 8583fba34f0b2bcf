//! A `redis-server` of its own for a test.

use std::path::PathBuf;

use stillframe_testkit::{Client, Launch, Process, Reply, TempDir};

pub fn temp_dir() -> TempDir {
    TempDir::new("rdb")
}

pub struct Redis {
    client: Client,
    _process: Process,
    dir: TempDir,
}

impl Redis {
    /// Starts a server in `dir`; it loads the `dump.rdb` there, if any.
    pub fn start(dir: TempDir, extra_args: &[&str]) -> Redis {
        Redis::start_program("redis-server", dir, extra_args)
    }

    /// Another server that takes the same flags.
    pub fn start_program(program: &str, dir: TempDir, extra_args: &[&str]) -> Redis {
        let (process, _) = Launch::at_socket(program, &dir).with(extra_args).start();
        Redis { client: process.client(), _process: process, dir }
    }

    pub fn command(&mut self, words: &[&[u8]]) -> Reply {
        self.client.run_bytes(words)
    }

    /// A command in text, split at blanks; an error reply is a failure.
    pub fn run(&mut self, line: &str) -> Reply {
        match self.client.run(line) {
            Reply::Error(error) => panic!("{line}: {}", error.escape_ascii()),
            reply => reply,
        }
    }

    /// A line as one would type it to `redis-cli`, with its quoting.
    pub fn inline(&mut self, line: &str) -> Reply {
        self.client.run_inline(line)
    }

    /// Sends all commands, then takes all replies.
    pub fn pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        let mut replies = Vec::with_capacity(commands.len());
        for batch in commands.chunks(64) {
            batch.iter().for_each(|command| self.client.queue(command));
            self.client.flush().expect("send the commands");
            replies.extend(batch.iter().map(|_| self.client.read()));
        }
        replies
    }

    pub fn dump_path(&self) -> PathBuf {
        self.dir.join("dump.rdb")
    }

    /// `SAVE`, and the bytes of the file.
    pub fn save(&mut self) -> Vec<u8> {
        self.run("SAVE");
        std::fs::read(self.dump_path()).expect("read dump.rdb")
    }
}
