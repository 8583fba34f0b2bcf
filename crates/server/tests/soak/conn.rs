//! A connection of a load, which takes no error for an answer but those that are promised.

use std::sync::atomic::Ordering;
use std::time::Duration;

use stillframe_testkit::{Client, Reply};

use crate::Soak;

/// A reply may wait for the disk of a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where errors are promised that depend on what others do.
const PROMISES: &str = include_str!("../../../../docs/guide/compatibility.md");

/// Whether the documentation promises an error for what the loads do.
fn is_promised(error: &str) -> bool {
    let (_, section) = PROMISES.split_once("## Errors under load").expect("the section is there");
    let (section, _) = section.split_once("\n## ").expect("another follows");
    section.contains(&format!("* `{error}`"))
}

pub struct Conn<'s> {
    run: &'s Soak,
    client: Client,
    load: &'static str,
}

/// A command, word by word.
pub type Words = Vec<Vec<u8>>;

pub fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// The words of a line, and one more.
pub fn with(line: &str, last: &[u8]) -> Words {
    let mut words = words(line);
    words.push(last.to_vec());
    words
}

/// Bytes that a seed stands for.
pub fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn shown(command: &[Vec<u8>]) -> String {
    let words = command.iter().take(8).map(|word| word[..word.len().min(40)].escape_ascii().to_string());
    words.collect::<Vec<_>>().join(" ")
}

impl<'s> Conn<'s> {
    pub fn new(run: &'s Soak, load: &'static str) -> Conn<'s> {
        let client = Client::connect(run.process.address(), PATIENCE);
        Conn { run, client: client.unwrap_or_else(|error| panic!("{load}: {error}")), load }
    }

    fn read(&mut self, command: &[Vec<u8>]) -> Reply {
        self.run.reply_count.fetch_add(1, Ordering::Relaxed);
        match self.client.try_read() {
            Ok(reply) => reply,
            Err(error) => panic!("{}: {}: {error}\n{}", self.load, shown(command), self.run.process.log()),
        }
    }

    /// Sends commands together; their replies, of which none is an error.
    pub fn run_all(&mut self, commands: &[Words]) -> Vec<Reply> {
        commands.iter().for_each(|command| self.client.queue(command));
        self.client.flush().unwrap_or_else(|error| panic!("{}: {error}", self.load));
        let mut replies = Vec::with_capacity(commands.len());
        for command in commands {
            let reply = self.read(command);
            assert!(!reply.is_error(), "{}: {}: {}", self.load, shown(command), reply.text());
            replies.push(reply);
        }
        replies
    }

    pub fn run(&mut self, command: Words) -> Reply {
        self.run_all(&[command]).remove(0)
    }

    pub fn run_line(&mut self, line: &str) -> Reply {
        self.run(words(line))
    }

    /// The reply, if it is none of the errors that are promised.
    pub fn try_line(&mut self, line: &str) -> Option<Reply> {
        self.client.queue_line(line);
        self.client.flush().unwrap_or_else(|error| panic!("{}: {line}: {error}", self.load));
        let reply = self.read(&words(line));
        if !reply.is_error() {
            return Some(reply);
        }
        assert!(is_promised(&reply.text()), "{}: {line}: {}", self.load, reply.text());
        None
    }

    /// The replies of a transaction; none if a key was watched that has changed.
    pub fn transaction(&mut self, commands: Vec<Words>) -> Option<Vec<Reply>> {
        let mut all = vec![words("MULTI")];
        all.extend(commands);
        all.push(words("EXEC"));
        let mut replies = self.run_all(&all);
        let results = replies.pop()?.try_items()?.to_vec();
        let error = results.iter().find(|reply| reply.is_error());
        assert!(error.is_none(), "{}: {}: {error:?}", self.load, shown(&all[1]));
        Some(results)
    }

    /// The next message of a subscriber.
    pub fn message(&mut self) -> Vec<String> {
        let message = self.read(&words("a message"));
        message.items().iter().map(Reply::text).collect()
    }

    pub fn send_line(&mut self, line: &str) {
        self.client.send(line);
    }

    pub fn info(&mut self, section: &str) -> std::collections::HashMap<String, String> {
        self.client.try_info(section).unwrap_or_else(|error| panic!("{}: INFO: {error}", self.load))
    }

    #[track_caller]
    pub fn expect(&mut self, line: &str, expected: Reply) {
        let reply = self.run_line(line);
        assert_eq!(reply, expected, "{}: {line}", self.load);
    }
}
