//! A client of the program's own.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

use crate::embedded::desk::{Closed, Desk, Given, Request};
use crate::state::clients::ClientInfo;

/// A client of an [`Engine`](crate::Engine): a session, to which bytes go and from which bytes come, as on a connection to a
/// server. It may go from thread to thread. When it is dropped its session ends.
pub struct Client {
    info: Arc<ClientInfo>,
    desk: Arc<Desk>,
    given: Receiver<Given>,
}

impl Client {
    pub(super) fn new(info: Arc<ClientInfo>, desk: Arc<Desk>, given: Receiver<Given>) -> Client {
        Client { info, desk, given }
    }

    /// As `CLIENT ID` says.
    pub fn id(&self) -> u64 {
        self.info.id
    }

    /// Runs commands, as they would be sent to a server, and returns their replies, as they would be received. What came before
    /// and has not been taken ([`Client::wait`]) stands before them. A command that is not complete goes on with the next call.
    ///
    /// A command that waits for a key (`BLPOP`) is not waited for: its reply, and those of commands behind it, come later.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn execute(&mut self, request: &[u8]) -> Result<Vec<u8>, Closed> {
        self.desk.ask(Request::Execute(self.info.token(), request.to_vec()))?;
        let mut replies = Vec::new();
        loop {
            match self.given.recv().map_err(|_| Closed)? {
                Given::Later(bytes) => replies.extend(bytes),
                Given::Answer(bytes) => {
                    replies.extend(bytes);
                    return Ok(replies);
                }
            }
        }
    }

    /// The same for one command, by its words.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn call(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Vec<u8>, Closed> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.execute(&request)
    }

    /// Waits for what comes without a call: messages of channels, and the reply of a command that waits for a key. None: nothing
    /// has come in that time. What is not taken is kept, without a bound.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn wait(&mut self, time: Duration) -> Result<Option<Vec<u8>>, Closed> {
        match self.given.recv_timeout(time) {
            Ok(Given::Later(bytes) | Given::Answer(bytes)) => Ok(Some(bytes)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Closed),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Of an engine that has ended there is nothing to leave.
        let _ = self.desk.ask(Request::Leave(self.info.token()));
    }
}
