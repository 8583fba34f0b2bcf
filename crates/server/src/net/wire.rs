//! The bytes of a connection, in and out. This file alone reads from the socket of a connection, and writes to it.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::io::{readv, retry_on_intr, Errno};
use rustix::net::{recv, send, sendmsg, RecvFlags, SendAncillaryBuffer, SendFlags};
use stillframe_engine::state::door::DoorKind;

/// How the bytes of a connection travel. No operation blocks.
#[derive(Debug)]
pub enum Wire {
    /// As they are, over a TCP or a unix socket.
    Plain(OwnedFd),
}

/// Why a wire moves no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// Not now: epoll tells when the socket has more, or takes more.
    WouldBlock,
    /// Never again: the peer has ended its side, or the socket has failed.
    Closed,
}

impl Wire {
    /// Of a connection that has come in by a door of this kind.
    pub fn new(door: DoorKind, socket: OwnedFd) -> Wire {
        match door {
            DoorKind::Tcp | DoorKind::Unix | DoorKind::Program => Wire::Plain(socket),
        }
    }

    /// Appends bytes that have come to `into`, without giving that more capacity. Returns how many.
    ///
    /// # Errors
    /// There are none.
    pub fn recv(&mut self, into: &mut Vec<u8>) -> Result<usize, WireError> {
        match self {
            Wire::Plain(socket) => {
                let read = || recv(&*socket, spare_capacity(into), RecvFlags::empty());
                received(retry_on_intr(read).map(|(count, _)| count))
            }
        }
    }

    /// Fills `room` with bytes that have come, from its start. Returns how many.
    ///
    /// # Errors
    /// There are none.
    pub fn recv_parts(&mut self, room: &mut [IoSliceMut<'_>]) -> Result<usize, WireError> {
        match self {
            Wire::Plain(socket) => received(retry_on_intr(|| readv(&*socket, room))),
        }
    }

    /// Whether bytes have been taken from the socket that `recv` has not given yet: epoll does not know of them, so that the
    /// event loop has to ask.
    pub fn has_pending(&self) -> bool {
        match self {
            Wire::Plain(_) => false,
        }
    }

    /// Sends bytes, as many as are taken now. Returns how many.
    ///
    /// # Errors
    /// None were taken.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, WireError> {
        match self {
            Wire::Plain(socket) => sent(retry_on_intr(|| send(&*socket, bytes, SendFlags::NOSIGNAL))),
        }
    }

    /// Sends the bytes of all parts in their order, as many as are taken now. Returns how many.
    ///
    /// # Errors
    /// None were taken.
    pub fn send_parts(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, WireError> {
        match self {
            Wire::Plain(socket) => {
                let mut control = SendAncillaryBuffer::default();
                sent(retry_on_intr(|| sendmsg(&*socket, parts, &mut control, SendFlags::NOSIGNAL)))
            }
        }
    }

    /// Ends the connection: the peer is told, and the descriptor is out of epoll.
    pub fn close(self) {
        match self {
            Wire::Plain(socket) => drop(socket),
        }
    }
}

/// The descriptor that epoll watches.
impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Wire::Plain(socket) => socket.as_fd(),
        }
    }
}

fn received(count: Result<usize, Errno>) -> Result<usize, WireError> {
    match count {
        Ok(0) => Err(WireError::Closed),
        count => sent(count),
    }
}

fn sent(count: Result<usize, Errno>) -> Result<usize, WireError> {
    count.map_err(|errno| if errno == Errno::AGAIN { WireError::WouldBlock } else { WireError::Closed })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A wire, and the other end of it.
    fn wire() -> (Wire, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Wire::new(DoorKind::Unix, ours.into()), theirs)
    }

    #[test]
    fn gives_what_has_come_and_then_says_whether_more_may_come() {
        let (mut wire, mut peer) = wire();
        let mut bytes = Vec::with_capacity(4);
        assert_eq!(wire.recv(&mut bytes), Err(WireError::WouldBlock));
        peer.write_all(b"PING\r\n").unwrap();
        assert_eq!((wire.recv(&mut bytes), &bytes[..]), (Ok(4), &b"PING"[..]));
        assert_eq!(bytes.capacity(), 4);
        assert!(!wire.has_pending());
        drop(peer);
        bytes.clear();
        assert_eq!((wire.recv(&mut bytes), &bytes[..]), (Ok(2), &b"\r\n"[..]));
        assert_eq!(wire.recv(&mut bytes), Err(WireError::Closed));
    }

    #[test]
    fn fills_parts_from_their_start() {
        let (mut wire, mut peer) = wire();
        let (mut first, mut second) = ([0; 3], [0; 3]);
        let mut room = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(wire.recv_parts(&mut room), Err(WireError::WouldBlock));
        peer.write_all(b"value").unwrap();
        assert_eq!(wire.recv_parts(&mut room), Ok(5));
        assert_eq!((&first, &second), (b"val", b"ue\0"));
        drop(peer);
        let mut room = [IoSliceMut::new(&mut first)];
        assert_eq!(wire.recv_parts(&mut room), Err(WireError::Closed));
    }

    #[test]
    fn sends_in_order_until_the_peer_takes_no_more() {
        let (mut wire, mut peer) = wire();
        assert_eq!(wire.send(b"+OK\r\n"), Ok(5));
        assert_eq!(wire.send_parts(&[IoSlice::new(b"$2\r\n"), IoSlice::new(b"ab\r\n")]), Ok(8));
        let part = [7; 1 << 16];
        let mut count = 0;
        let end = loop {
            match wire.send(&part) {
                Ok(sent) => count += sent,
                Err(end) => break end,
            }
        };
        assert_eq!(end, WireError::WouldBlock);
        assert_eq!(wire.send_parts(&[IoSlice::new(&part)]), Err(WireError::WouldBlock));
        wire.close();
        let mut taken = Vec::new();
        peer.read_to_end(&mut taken).unwrap();
        assert!(taken.starts_with(b"+OK\r\n$2\r\nab\r\n"));
        assert_eq!(taken.len(), 13 + count);
    }

    #[test]
    fn a_peer_that_has_gone_takes_nothing_and_no_signal_comes() {
        let (mut wire, peer) = wire();
        drop(peer);
        assert_eq!(wire.send(b"+OK\r\n"), Err(WireError::Closed));
        assert_eq!(wire.send_parts(&[IoSlice::new(b"+OK\r\n")]), Err(WireError::Closed));
    }
}
