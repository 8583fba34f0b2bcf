//! What epoll is asked to tell of a connection.

use std::os::fd::OwnedFd;

use rustix::event::epoll;
use stillframe_engine::state::token::Token;

use crate::net::conn::{Conn, Interest};

/// What epoll is asked for. Edge-triggered: the kernel need not look again at sockets that have been drained.
fn flags_of(interest: Interest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::ET | epoll::EventFlags::RDHUP;
    flags.set(epoll::EventFlags::IN, interest.read);
    flags.set(epoll::EventFlags::OUT, interest.write);
    flags
}

/// Lets epoll watch a new connection; false if it cannot.
pub fn watch(epoll: &OwnedFd, conn: &Conn, token: Token) -> bool {
    let data = epoll::EventData::new_u64(token.0);
    epoll::add(epoll, &conn.wire, data, flags_of(conn.interest)).is_ok()
}

/// Tells epoll what the connection waits for, if that has changed. Whether bytes are there of which epoll does not know.
pub fn update(epoll: &OwnedFd, conn: &mut Conn, token: Token) -> bool {
    let wanted = Interest { read: conn.wants_input(), write: conn.output.awaits_socket() };
    if wanted == conn.interest {
        return false;
    }
    let reads_again = wanted.read && !conn.interest.read;
    if epoll::modify(epoll, &conn.wire, epoll::EventData::new_u64(token.0), flags_of(wanted)).is_ok() {
        conn.interest = wanted;
    }
    reads_again && conn.wire.has_pending()
}
