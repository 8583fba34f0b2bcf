//! Messages to a worker from other threads.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};

use crate::protocol::need::Need;
use crate::protocol::reply::Replies;
use crate::state::session::LateReply;
use crate::state::token::Token;
use crate::state::waiting::ReadyKey;

/// A part of a reply that is too large to be held as a whole.
pub struct Part {
    pub bytes: Vec<u8>,
    /// What has to be durable before they leave.
    pub need: Need,
    /// Told when the bytes have gone to the socket; dropped if the client has gone.
    pub written: Sender<()>,
}

pub enum Message {
    /// New clients wait for this worker where they come in.
    Arrived,
    /// The pages that a command waited for are in memory.
    PagesLoaded(Token),
    /// There is room for more of a value that comes.
    InputLoaded(Token),
    /// Pages of a value that is being sent are in memory.
    ValueLoaded(Token),
    /// A reply that came later than its command.
    Reply(Token, LateReply, Replies),
    /// A part of such a reply, the last of which comes as that.
    Part(Token, Part),
    /// The pages are in memory that it takes to serve those who wait for a key.
    KeyReady(ReadyKey),
    /// Something has come into the inboxes of these connections.
    Heard(Vec<Token>),
    /// Close the connection.
    Kill(Token),
    /// `CLIENT PAUSE` has ended or changed.
    PauseChanged,
    /// More of the log is durable, or output is held no longer, or never leaves.
    Durable,
    /// Leave the loop.
    Stop,
}

/// The inbox of one worker, with a descriptor that wakes its loop.
pub struct Mailbox {
    messages: Mutex<Vec<Message>>,
    wake: OwnedFd,
}

impl Mailbox {
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> std::io::Result<Mailbox> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Mailbox { messages: Mutex::default(), wake })
    }

    pub fn send(&self, message: Message) {
        let mut messages = self.messages.lock();
        messages.push(message);
        if messages.len() == 1 {
            // The counter cannot overflow: the worker takes it back to zero.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Moves all messages to `into`, which is empty.
    pub fn take(&self, into: &mut Vec<Message>) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
        std::mem::swap(&mut *self.messages.lock(), into);
    }

    /// Waits until there are messages, not longer than that.
    pub fn wait(&self, time: Duration) {
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        // A wait that fails is a short one: the caller looks for messages in any case.
        let _ = poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], Some(&time));
    }

    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
