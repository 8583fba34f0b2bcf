//! A blocking client.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use crate::address::{Address, Stream};
use crate::reply::{encode, Reply};
use crate::{eventually, PATIENCE};

/// A connection. Commands are given as words, or as a line whose words are separated by single blanks.
#[derive(Debug)]
pub struct Client {
    pub stream: Stream,
    reader: BufReader<Stream>,
    out: Vec<u8>,
}

/// What may fail.
impl Client {
    /// A client whose reads end after `timeout`.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(address: &Address, timeout: Duration) -> io::Result<Client> {
        let stream = address.connect()?;
        stream.set_read_timeout(Some(timeout))?;
        Ok(Client { reader: BufReader::new(stream.try_clone()?), stream, out: Vec::new() })
    }

    /// Adds a command to the next write.
    pub fn queue(&mut self, words: &[impl AsRef<[u8]>]) {
        encode(words, &mut self.out);
    }

    pub fn queue_line(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        encode(&words, &mut self.out);
    }

    /// Writes what is queued. The peer may be blocked on sending replies that nobody reads yet, so keep pipelines
    /// under the socket buffers' size.
    ///
    /// # Errors
    /// The connection's.
    pub fn flush(&mut self) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        self.stream.write_all(&out)
    }

    /// # Errors
    /// The connection's, or what comes is no reply.
    pub fn try_read(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.reader)
    }

    /// # Errors
    /// The connection's; a reply that is an error is none.
    pub fn try_run(&mut self, line: &str) -> io::Result<Reply> {
        self.queue_line(line);
        self.flush()?;
        self.try_read()
    }

    /// # Errors
    /// The connection's; a reply that is an error is none.
    pub fn try_run_words(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.queue(words);
        self.flush()?;
        self.try_read()
    }

    /// The fields of a section of `INFO` by name.
    ///
    /// # Errors
    /// The connection's, or the server does not answer with text.
    pub fn try_info(&mut self, section: &str) -> io::Result<HashMap<String, String>> {
        let reply = self.try_run_words(&["INFO", section])?;
        let (Reply::Bulk(text) | Reply::Verbatim(text)) = &reply else {
            return Err(io::Error::other(format!("INFO {section} is answered by {reply:?}")));
        };
        let text = String::from_utf8_lossy(text);
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    /// One of them.
    ///
    /// # Errors
    /// As above.
    ///
    /// # Panics
    /// If the section has no such field.
    pub fn try_info_field(&mut self, section: &str, name: &str) -> io::Result<String> {
        let mut fields = self.try_info(section)?;
        Ok(fields.remove(name).unwrap_or_else(|| panic!("no {name} in {fields:?}")))
    }

    /// Waits for the save that was started and returns whether it succeeded.
    ///
    /// # Errors
    /// As above.
    pub fn try_wait_for_save(&mut self) -> io::Result<bool> {
        while self.try_info_field("persistence", "rdb_bgsave_in_progress")? == "1" {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(self.try_info_field("persistence", "rdb_last_bgsave_status")? == "ok")
    }
}

/// To a server that is known to be there; panics if it is not.
#[allow(clippy::missing_panics_doc)]
impl Client {
    pub fn new(stream: impl Into<Stream>) -> Client {
        let stream = stream.into();
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        if let Stream::Tcp(stream) = &stream {
            stream.set_nodelay(true).expect("an option of the socket");
        }
        Client {
            reader: BufReader::new(stream.try_clone().expect("a second handle")),
            stream,
            out: Vec::new(),
        }
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("send");
    }

    pub fn send(&mut self, line: &str) {
        self.queue_line(line);
        self.flush().unwrap_or_else(|error| panic!("send {line}: {error}"));
    }

    pub fn read(&mut self) -> Reply {
        self.try_read().expect("a reply")
    }

    pub fn run(&mut self, line: &str) -> Reply {
        self.try_run(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    pub fn run_bytes(&mut self, words: &[&[u8]]) -> Reply {
        self.try_run_words(words).expect("a reply")
    }

    /// A line with the quoting of `redis-cli`.
    pub fn run_inline(&mut self, line: &str) -> Reply {
        self.send_raw(format!("{line}\r\n").as_bytes());
        self.read()
    }

    pub fn ok(&mut self, line: &str) {
        assert_eq!(self.run(line), Reply::ok(), "{line}");
    }

    /// Everything up to the end of the connection.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset instead of an orderly end is an end, too.
        let _ = self.reader.read_to_end(&mut bytes);
        bytes
    }

    /// Whether nothing comes for a moment.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(60))).expect("a timeout");
        let is_silent = self.reader.fill_buf().is_err();
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        is_silent
    }

    /// A field of `INFO`; empty if there is none of that name.
    pub fn info(&mut self, name: &str) -> String {
        self.try_info("everything").expect("INFO").remove(name).unwrap_or_default()
    }

    /// Waits until the data is there.
    pub fn wait_until_loaded(&mut self) {
        eventually("it is loaded", || self.info("loading") == "0");
    }

    /// Starts a save and waits for its end. Returns whether it succeeded.
    pub fn save_in_background(&mut self, command: &str) -> bool {
        let reply = self.run(command);
        let has_succeeded = self.try_wait_for_save().expect("INFO");
        // What fails before the cut is answered with the error; INFO says the same.
        assert!(!(reply.is_error() && has_succeeded), "{command}: {reply:?}");
        has_succeeded
    }
}
