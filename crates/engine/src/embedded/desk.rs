//! What the program asks of a worker's thread, and what comes back.

use std::sync::mpsc::Sender;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::state::clients::ClientInfo;
use crate::state::mailbox::{Mailbox, Message};
use crate::state::token::Token;

/// The client is closed: by `QUIT`, `CLIENT KILL` or what is no request, or a command or the drop of the engine has ended that.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("the client is closed, or the engine has ended: connect again, or open the engine again")]
pub struct Closed;

pub enum Request {
    /// There is a new client. What comes for the client goes to this sender.
    Connect(Arc<ClientInfo>, Sender<Given>),
    /// Bytes of commands have come.
    Execute(Token, Vec<u8>),
    /// The client has gone.
    Leave(Token),
}

/// What a client is given.
pub enum Given {
    /// The replies to what it has sent, once. What waits for a key is not among them.
    Answer(Vec<u8>),
    /// What has come since: messages, and replies of commands that have waited.
    Later(Vec<u8>),
}

/// Requests to one worker, in their order.
///
/// ```text
///   Open ── the thread ends ──▶ Closed, for good: what was asked is dropped, and clients with it
/// ```
pub struct Desk {
    /// None: closed.
    requests: Mutex<Option<Vec<Request>>>,
    mailbox: Arc<Mailbox>,
}

impl Desk {
    pub fn new(mailbox: Arc<Mailbox>) -> Desk {
        Desk { requests: Mutex::new(Some(Vec::new())), mailbox }
    }

    /// # Errors
    /// The thread has ended.
    pub fn ask(&self, request: Request) -> Result<(), Closed> {
        let mut requests = self.requests.lock();
        let requests = requests.as_mut().ok_or(Closed)?;
        requests.push(request);
        if requests.len() == 1 {
            self.mailbox.send(Message::Arrived);
        }
        Ok(())
    }

    /// Takes all requests.
    pub fn take(&self) -> Vec<Request> {
        self.requests.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn close(&self) {
        *self.requests.lock() = None;
    }
}
