//! Listening sockets: TCP addresses and the unix socket; accepting connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{self, sockopt, AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType};

use crate::config::Settings;
use crate::state::clients::{ClientInfo, Clients};
use crate::state::stats::ServerStats;

/// Connections accepted in one go, so that a flood of them does not keep the clients waiting.
const ACCEPTS_AT_ONCE: usize = 1000;

pub const PROTECTED_MODE: &str = "-DENIED Redis is running in protected mode because protected mode is enabled \
    and no password is set for the default user. In this mode connections are only accepted from the loopback \
    interface. If you want to connect from external computers to Redis you may adopt one of the following \
    solutions: 1) Just disable protected mode sending the command 'CONFIG SET protected-mode no' from the loopback \
    interface by connecting to Redis from the same host the server is running, however MAKE SURE Redis is not \
    publicly accessible from internet if you do so. Use CONFIG REWRITE to make this change permanent. 2) \
    Alternatively you can just disable the protected mode by editing the Redis configuration file, and setting \
    the protected mode option to 'no', and then restarting the server. 3) If you started the server manually just \
    for testing, restart it with the '--protected-mode no' option. 4) Setup a an authentication password for the \
    default user. NOTE: You only need to do one of the above things in order for the server to start accepting \
    connections from the outside.\r\n";

/// Why the server cannot listen where it should.
#[derive(thiserror::Error, Debug)]
pub enum ListenError {
    #[error("Could not create server TCP listening socket {addr}:{port}: {reason}. Is another server running there? Stop it, or choose another 'port' or 'bind'")]
    Tcp { addr: String, port: u16, reason: std::io::Error },
    #[error("'bind {0}' is not an IP address")]
    NotAnAddress(String),
    #[error("Failed opening Unix socket {path}: {reason}. Check that its directory exists and may be written, or choose another 'unixsocket'")]
    Unix { path: PathBuf, reason: std::io::Error },
    #[error("Configured to not listen anywhere, exiting. Set 'port' or 'unixsocket'")]
    Nowhere,
}

pub struct Listener {
    fd: OwnedFd,
    /// Path of a unix socket, for the address of its clients.
    unix_path: Option<String>,
}

impl Listener {
    /// The TCP port that it listens on.
    fn tcp_port(&self) -> Option<u16> {
        let addr = net::getsockname(&self.fd).ok()?;
        SocketAddr::try_from(addr).ok().map(|a| a.port())
    }
}

/// Opens all sockets of the configuration.
///
/// # Errors
/// The first address that cannot be listened on; those marked with `-` may be missing.
pub fn open(settings: &Settings) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = open_all_tcp(settings)?;
    if let Some(path) = &settings.unixsocket {
        let listener =
            open_unix(path, settings).map_err(|reason| ListenError::Unix { path: path.clone(), reason })?;
        listeners.push(listener);
    }
    if listeners.is_empty() {
        return Err(ListenError::Nowhere);
    }
    Ok(listeners)
}

/// The sockets of `bind` and `port`.
fn open_all_tcp(settings: &Settings) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = Vec::new();
    let mut port = settings.port;
    if !has_tcp(settings) {
        return Ok(listeners);
    }
    for bind in &settings.bind {
        let (is_optional, text) = bind.strip_prefix('-').map_or((false, bind.as_str()), |rest| (true, rest));
        let ip = match text {
            "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            "::*" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => text.parse().map_err(|_| ListenError::NotAnAddress(text.into()))?,
        };
        match open_tcp(SocketAddr::new(ip, port), settings.tcp_backlog) {
            Ok(listener) => {
                // With the port chosen by the system, further addresses take the same one.
                port = listener.tcp_port().unwrap_or(port);
                listeners.push(listener);
            }
            Err(_) if is_optional => {}
            Err(reason) => {
                return Err(ListenError::Tcp { addr: text.to_owned(), port, reason: reason.into() })
            }
        }
    }
    Ok(listeners)
}

/// `port 0` switches TCP off, as in Redis.
fn has_tcp(settings: &Settings) -> bool {
    settings.port != 0
}

const LISTEN_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn open_tcp(addr: SocketAddr, backlog: i32) -> Result<Listener, Errno> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = net::socket_with(family, SocketType::STREAM, LISTEN_FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if addr.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    net::bind(&fd, &addr)?;
    net::listen(&fd, backlog)?;
    Ok(Listener { fd, unix_path: None })
}

fn open_unix(path: &Path, settings: &Settings) -> std::io::Result<Listener> {
    // A socket left over from a former run; anything else stays where it is.
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, LISTEN_FLAGS, None)?;
    net::bind(&fd, &SocketAddrUnix::new(path)?)?;
    net::listen(&fd, settings.tcp_backlog)?;
    if let Some(mode) = settings.unixsocketperm {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(Listener { fd, unix_path: Some(path.display().to_string()) })
}

/// All sockets that are listened on, behind one descriptor: any thread may exchange them while the first worker waits
/// for connections. These go to the workers in turn.
pub struct Listeners {
    epoll: OwnedFd,
    sockets: Mutex<Vec<Listener>>,
    next_worker: AtomicUsize,
}

impl Listeners {
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(sockets: Vec<Listener>) -> std::io::Result<Listeners> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        sockets.iter().try_for_each(|socket| watch(&epoll, socket))?;
        Ok(Listeners { epoll, sockets: Mutex::new(sockets), next_worker: AtomicUsize::new(0) })
    }

    /// Readable when somebody wants to connect.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// The TCP port in use; 0 without TCP.
    pub fn tcp_port(&self) -> u16 {
        self.sockets.lock().iter().find_map(Listener::tcp_port).unwrap_or(0)
    }

    /// Accepts who is waiting. Those that may not connect are told so and closed.
    pub fn accept(&self, door: &Door<'_>) -> Vec<(OwnedFd, Arc<ClientInfo>)> {
        let mut accepted = Vec::new();
        for socket in self.sockets.lock().iter() {
            self.accept_from(socket, door, &mut accepted);
        }
        accepted
    }

    fn accept_from(
        &self,
        listener: &Listener,
        door: &Door<'_>,
        accepted: &mut Vec<(OwnedFd, Arc<ClientInfo>)>,
    ) {
        while accepted.len() < ACCEPTS_AT_ONCE {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match net::acceptfrom_with(&listener.fd, flags) {
                Ok((fd, peer)) => {
                    let worker = self.next_worker.load(Relaxed);
                    if let Some(info) = door.admit(listener, &fd, peer, worker) {
                        self.next_worker.store((worker + 1) % door.worker_count, Relaxed);
                        accepted.push((fd, info));
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => {
                    // The queue stays: without a pause this would be a busy loop.
                    crate::log::warning(format!("Accepting client connection: {error}"));
                    std::thread::sleep(Duration::from_millis(1));
                    break;
                }
            }
        }
    }

    /// Listens where `new` says instead of where `old` said; connections stay. The old sockets are closed first, since
    /// the new ones may overlap with them, and opened again if that fails.
    ///
    /// # Errors
    /// The first address that cannot be listened on.
    pub fn rebind(&self, old: &Settings, new: &Settings) -> Result<(), ListenError> {
        let mut sockets = self.sockets.lock();
        // A closed socket is out of epoll.
        sockets.retain(|socket| socket.unix_path.is_some());
        let opened = open_all_tcp(new);
        let (opened, result) = match opened {
            Ok(opened) => (opened, Ok(())),
            Err(error) => (open_all_tcp(old).unwrap_or_default(), Err(error)),
        };
        for socket in opened {
            match watch(&self.epoll, &socket) {
                Ok(()) => sockets.push(socket),
                Err(error) => crate::log::warning(format!("Can't wait for connections: {error}")),
            }
        }
        result
    }
}

fn watch(epoll: &OwnedFd, socket: &Listener) -> std::io::Result<()> {
    Ok(epoll::add(epoll, &socket.fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
}

/// Who may come in, and where they are counted.
pub struct Door<'a> {
    pub settings: &'a Settings,
    pub clients: &'a Clients,
    pub stats: &'a ServerStats,
    pub worker_count: usize,
}

impl Door<'_> {
    fn admit(
        &self,
        listener: &Listener,
        fd: &OwnedFd,
        peer: Option<SocketAddrAny>,
        worker: usize,
    ) -> Option<Arc<ClientInfo>> {
        let Door { settings, clients, stats, .. } = self;
        let (addr, laddr) = match &listener.unix_path {
            Some(path) => (format!("{path}:0"), format!("{path}:0")),
            None => {
                let text = |any: Option<SocketAddrAny>| {
                    any.and_then(|a| SocketAddr::try_from(a).ok()).map_or("?:0".to_owned(), |a| a.to_string())
                };
                (text(peer), text(net::getsockname(fd).ok()))
            }
        };
        let refuse = |text: &str| {
            // Best effort: the connection is closed in any case.
            let _ = rustix::io::write(fd, text.as_bytes());
            stats.connections_rejected.fetch_add(1, Relaxed);
            None
        };
        if clients.count() >= settings.maxclients {
            return refuse("-ERR max number of clients reached\r\n");
        }
        let info = ClientInfo::new(clients.new_id(), addr, laddr, fd.as_raw_fd(), worker);
        if settings.protected_mode && settings.requirepass.is_empty() && !info.is_local {
            return refuse(PROTECTED_MODE);
        }
        if !info.is_unix_socket {
            set_tcp_options(fd, settings.tcp_keepalive);
        }
        stats.connections_received.fetch_add(1, Relaxed);
        let info = Arc::new(info);
        clients.add(info.clone());
        Some(info)
    }
}

/// Without them the connection works, too; so failures are of no consequence.
fn set_tcp_options(fd: &OwnedFd, keepalive: Duration) {
    let _ = sockopt::set_tcp_nodelay(fd, true);
    if !keepalive.is_zero() {
        let _ = sockopt::set_socket_keepalive(fd, true);
        let _ = sockopt::set_tcp_keepidle(fd, keepalive);
        let _ = sockopt::set_tcp_keepintvl(fd, (keepalive / 3).max(Duration::from_secs(1)));
        let _ = sockopt::set_tcp_keepcnt(fd, 3);
    }
}
