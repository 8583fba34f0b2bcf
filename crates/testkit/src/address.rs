//! Where a server listens, and the way there.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{self, sockopt, AddressFamily, SocketFlags, SocketType};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Address {
    #[must_use]
    pub fn local(port: u16) -> Address {
        Address::Tcp { host: Ipv4Addr::LOCALHOST.to_string(), port }
    }

    /// # Errors
    /// Nobody listens there.
    pub fn connect(&self) -> io::Result<Stream> {
        match self {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Address::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path)?)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A TCP port of this machine that no other test gets as long as this is held, whether a server listens there or not.
///
/// Its socket is bound and does not listen. A server that shares addresses (`SO_REUSEADDR`, as Redis and Stillframe do)
/// may listen on the port nevertheless; the kernel gives it neither to who asks for any port nor to a connection.
#[derive(Clone, Debug)]
pub struct Port {
    number: u16,
    _held: Arc<OwnedFd>,
}

impl Port {
    /// # Errors
    /// No port is left.
    pub fn reserve() -> io::Result<Port> {
        let fd = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        net::bind(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let address = SocketAddr::try_from(net::getsockname(&fd)?)?;
        Ok(Port { number: address.port(), _held: Arc::new(fd) })
    }

    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

/// A connection of either kind.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// # Errors
    /// Those of the system.
    pub fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
        })
    }

    /// # Errors
    /// Those of the system.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// # Errors
    /// Those of the system.
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(is_nonblocking),
            Stream::Unix(stream) => stream.set_nonblocking(is_nonblocking),
        }
    }

    /// # Errors
    /// Those of the system.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        }
    }

    /// The own end of a TCP connection.
    ///
    /// # Errors
    /// It is of the other kind.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.local_addr(),
            Stream::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buf),
            Stream::Unix(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(buf),
            Stream::Unix(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream::Tcp(stream)
    }
}

impl From<Stream> for OwnedFd {
    fn from(stream: Stream) -> OwnedFd {
        match stream {
            Stream::Tcp(stream) => stream.into(),
            Stream::Unix(stream) => stream.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    use super::*;

    /// Nobody gets it by chance; who means it (a server, which shares addresses as the standard library's listener
    /// does) may listen there, also for a second time.
    #[test]
    fn a_port_is_for_who_was_given_it() {
        let port = Port::reserve().unwrap();
        let others: BTreeSet<u16> = (0..2_000)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port())
            .collect();
        assert!(!others.contains(&port.number()));
        for _ in 0..2 {
            assert!(Address::local(port.number()).connect().is_err(), "nobody listens yet");
            let listener = TcpListener::bind(("127.0.0.1", port.number())).unwrap();
            Address::local(port.number()).connect().unwrap();
            listener.accept().unwrap();
        }
        let held: BTreeSet<u16> = (0..500).map(|_| Port::reserve().unwrap()).map(|p| p.number()).collect();
        assert!(!held.contains(&port.number()));
    }
}
