//! The doors of a server: its listening sockets, TCP addresses and the unix socket. Clients are admitted here.

use std::error::Error;
use std::fmt;
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
use stillframe_engine::config::Settings;
use stillframe_engine::log;
use stillframe_engine::sockets::{Sockets, TooManyClients};
use stillframe_engine::state::clients::{Arrival, ClientInfo, Clients};
use stillframe_engine::state::door::DoorKind;
use stillframe_engine::state::stats::ServerStats;

use crate::net::descriptors;
use crate::net::wire::Wire;

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
    Tcp {
        addr: String,
        port: u16,
        #[source]
        reason: std::io::Error,
    },
    #[error("'bind {0}' is not an IP address")]
    NotAnAddress(String),
    #[error("Failed opening Unix socket {path}: {reason}. Check that its directory exists and may be written, or choose another 'unixsocket'")]
    Unix {
        path: PathBuf,
        #[source]
        reason: std::io::Error,
    },
    #[error("Configured to not listen anywhere, exiting. Set 'port' or 'unixsocket'")]
    Nowhere,
}

/// A listening socket.
pub struct Door {
    kind: DoorKind,
    socket: OwnedFd,
    addr: DoorAddr,
}

/// Where a door is.
enum DoorAddr {
    Ip(SocketAddr),
    Path(PathBuf),
}

impl fmt::Display for DoorAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DoorAddr::Ip(addr) => write!(f, "{addr}"),
            DoorAddr::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Door {
    /// What is known of a client that has come in here.
    fn arrival(&self, socket: &OwnedFd, peer: Option<SocketAddrAny>) -> Arrival {
        let (addr, laddr, is_local) = match &self.addr {
            DoorAddr::Path(_) => (format!("{}:0", self.addr), format!("{}:0", self.addr), true),
            DoorAddr::Ip(_) => {
                let peer = peer.and_then(ip_addr);
                let own = net::getsockname(socket).ok().and_then(ip_addr);
                let text = |addr: Option<SocketAddr>| addr.map_or("?:0".to_owned(), |addr| addr.to_string());
                (text(peer), text(own), peer.is_some_and(|addr| addr.ip().is_loopback()))
            }
        };
        Arrival { door: self.kind, addr, laddr, is_local, fd: socket.as_raw_fd() }
    }
}

fn ip_addr(any: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(any).ok()
}

/// Opens all doors of the configuration.
///
/// # Errors
/// The first address that cannot be listened on; those marked with `-` may be missing.
pub fn open(settings: &Settings) -> Result<Vec<Door>, ListenError> {
    let mut doors = open_all_tcp(settings)?;
    if let Some(path) = &settings.unixsocket {
        let door =
            open_unix(path, settings).map_err(|reason| ListenError::Unix { path: path.clone(), reason })?;
        doors.push(door);
    }
    if doors.is_empty() {
        return Err(ListenError::Nowhere);
    }
    Ok(doors)
}

/// The doors of `bind` and `port`.
fn open_all_tcp(settings: &Settings) -> Result<Vec<Door>, ListenError> {
    let (mut doors, port) = (Vec::new(), settings.port);
    if !has_tcp(settings) {
        return Ok(doors);
    }
    for bind in &settings.bind {
        let (is_optional, text) = bind.strip_prefix('-').map_or((false, bind.as_str()), |rest| (true, rest));
        let ip = match text {
            "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            "::*" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => text.parse().map_err(|_| ListenError::NotAnAddress(text.into()))?,
        };
        match open_tcp(SocketAddr::new(ip, port), settings.tcp_backlog) {
            Ok(door) => doors.push(door),
            Err(_) if is_optional => {}
            Err(reason) => {
                return Err(ListenError::Tcp { addr: text.to_owned(), port, reason: reason.into() })
            }
        }
    }
    Ok(doors)
}

/// `port 0` switches TCP off, as in Redis.
fn has_tcp(settings: &Settings) -> bool {
    settings.port != 0
}

const LISTEN_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn open_tcp(addr: SocketAddr, backlog: i32) -> Result<Door, Errno> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, LISTEN_FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if addr.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    net::bind(&socket, &addr)?;
    net::listen(&socket, backlog)?;
    let addr = SocketAddr::try_from(net::getsockname(&socket)?)?;
    Ok(Door { kind: DoorKind::Tcp, socket, addr: DoorAddr::Ip(addr) })
}

fn open_unix(path: &Path, settings: &Settings) -> std::io::Result<Door> {
    // A socket left over from a former run; anything else stays where it is.
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, LISTEN_FLAGS, None)?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, settings.tcp_backlog)?;
    if let Some(mode) = settings.unixsocketperm {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(Door { kind: DoorKind::Unix, socket, addr: DoorAddr::Path(path.to_owned()) })
}

/// All doors, behind one descriptor: any thread may exchange them while the first worker waits for connections. These go
/// to the workers in turn.
pub struct Doors {
    epoll: OwnedFd,
    open: Mutex<Vec<Door>>,
    next_worker: AtomicUsize,
    /// Clients that have been accepted by a worker and are another's, which has not taken them yet.
    handed_over: Mutex<Vec<(OwnedFd, Arc<ClientInfo>)>>,
}

impl Doors {
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(open: Vec<Door>) -> std::io::Result<Doors> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        open.iter().try_for_each(|door| watch(&epoll, door))?;
        Ok(Doors {
            epoll,
            open: Mutex::new(open),
            next_worker: AtomicUsize::new(0),
            handed_over: Mutex::default(),
        })
    }

    /// Readable when somebody wants to connect.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Keeps a client for its worker, which is to be told.
    pub fn hand_over(&self, socket: OwnedFd, client: Arc<ClientInfo>) {
        self.handed_over.lock().push((socket, client));
    }

    /// The clients that are kept for a worker.
    pub fn take(&self, worker: usize) -> Vec<(OwnedFd, Arc<ClientInfo>)> {
        let mut handed_over = self.handed_over.lock();
        let all = std::mem::take(&mut *handed_over);
        let (own, others) = all.into_iter().partition(|(_, client)| client.worker == worker);
        *handed_over = others;
        own
    }

    /// Accepts who is waiting. Those that may not connect are told so and closed.
    pub fn accept(&self, admission: &Admission<'_>) -> Vec<(OwnedFd, Arc<ClientInfo>)> {
        let mut accepted = Vec::new();
        for door in self.open.lock().iter() {
            self.accept_at(door, admission, &mut accepted);
        }
        accepted
    }

    fn accept_at(
        &self,
        door: &Door,
        admission: &Admission<'_>,
        accepted: &mut Vec<(OwnedFd, Arc<ClientInfo>)>,
    ) {
        while accepted.len() < ACCEPTS_AT_ONCE {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match net::acceptfrom_with(&door.socket, flags) {
                Ok((socket, peer)) => {
                    let worker = self.next_worker.load(Relaxed);
                    let arrival = door.arrival(&socket, peer);
                    if let Some(client) = admission.admit(arrival, socket, worker) {
                        self.next_worker.store((worker + 1) % admission.worker_count, Relaxed);
                        accepted.push(client);
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => {
                    // The queue stays: without a pause this would be a busy loop.
                    log::warning(format!("Accepting client connection: {error}"));
                    std::thread::sleep(Duration::from_millis(1));
                    break;
                }
            }
        }
    }
}

impl Sockets for Doors {
    fn tcp_port(&self) -> u16 {
        let port = |door: &Door| match (door.kind, &door.addr) {
            (DoorKind::Tcp, DoorAddr::Ip(addr)) => Some(addr.port()),
            _ => None,
        };
        self.open.lock().iter().find_map(port).unwrap_or(0)
    }

    /// The old doors are closed first, since the new ones may overlap with them, and opened again if that fails; other doors
    /// stay.
    fn rebind(&self, old: &Settings, new: &Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut doors = self.open.lock();
        // A closed socket is out of epoll.
        doors.retain(|door| door.kind != DoorKind::Tcp);
        let opened = open_all_tcp(new);
        let (opened, result) = match opened {
            Ok(opened) => (opened, Ok(())),
            Err(error) => (open_all_tcp(old).unwrap_or_default(), Err(error.into())),
        };
        for door in opened {
            match watch(&self.epoll, &door) {
                Ok(()) => doors.push(door),
                Err(error) => {
                    log::warning(format!("Can't wait for connections at {}: {error}", door.addr));
                }
            }
        }
        result
    }

    fn make_room(&self, maxclients: usize, worker_count: usize) -> Result<(), TooManyClients> {
        descriptors::make_room(maxclients, worker_count).map_err(|too_few| {
            too_few.log();
            TooManyClients { allowed_count: too_few.allowed_clients().unwrap_or(0) }
        })
    }
}

fn watch(epoll: &OwnedFd, door: &Door) -> std::io::Result<()> {
    Ok(epoll::add(epoll, &door.socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
}

/// Which clients may come in, and where they are counted.
pub struct Admission<'a> {
    pub settings: &'a Settings,
    pub clients: &'a Clients,
    pub stats: &'a ServerStats,
    pub worker_count: usize,
}

impl Admission<'_> {
    fn admit(&self, arrival: Arrival, socket: OwnedFd, worker: usize) -> Option<(OwnedFd, Arc<ClientInfo>)> {
        let Admission { settings, clients, stats, .. } = self;
        let has_no_password = settings.requirepass.is_empty();
        let refusal = if clients.count() >= settings.maxclients {
            Some("-ERR max number of clients reached\r\n")
        } else if settings.protected_mode && has_no_password && !arrival.is_local {
            Some(PROTECTED_MODE)
        } else {
            None
        };
        if let Some(text) = refusal {
            let mut wire = Wire::new(arrival.door, socket);
            // The connection is closed, whether the client can be told why or not.
            let _ = wire.send(text.as_bytes());
            wire.close();
            stats.connections_rejected.fetch_add(1, Relaxed);
            return None;
        }
        match arrival.door {
            DoorKind::Tcp => set_tcp_options(&socket, settings.tcp_keepalive),
            DoorKind::Unix | DoorKind::Program => {}
        }
        stats.connections_received.fetch_add(1, Relaxed);
        let info = Arc::new(ClientInfo::new(clients.new_id(), arrival, worker));
        clients.add(info.clone());
        Some((socket, info))
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

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind, Read};
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    use stillframe_testkit::TempDir;

    use super::*;
    use stillframe_engine::config::Config;

    /// Lets in whoever waits at the doors.
    fn admitted(doors: &Doors, settings: &Settings) -> Vec<Arc<ClientInfo>> {
        let (clients, stats) = (Clients::default(), ServerStats::default());
        let admission = Admission { settings, clients: &clients, stats: &stats, worker_count: 1 };
        doors.accept(&admission).into_iter().map(|(_, info)| info).collect()
    }

    #[test]
    fn a_client_knows_its_door() {
        let dir = TempDir::new("doors");
        let path = dir.path().join("socket");
        let settings = Config::default().settings;
        let tcp = open_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
        let doors = Doors::new(vec![tcp, open_unix(&path, &settings).unwrap()]).unwrap();
        let by_tcp = TcpStream::connect(("127.0.0.1", doors.tcp_port())).unwrap();
        let _by_path = UnixStream::connect(&path).unwrap();
        let clients = admitted(&doors, &settings);
        let [tcp, unix] = &clients[..] else { panic!("{clients:?}") };
        assert_eq!((tcp.door, tcp.is_local), (DoorKind::Tcp, true));
        assert_eq!(tcp.addr, by_tcp.local_addr().unwrap().to_string());
        assert_eq!(tcp.laddr, by_tcp.peer_addr().unwrap().to_string());
        assert_eq!((unix.door, unix.is_local), (DoorKind::Unix, true));
        assert_eq!((&unix.addr, &unix.laddr), (&format!("{}:0", path.display()), &unix.addr));
    }

    #[test]
    fn a_client_of_unknown_address_is_not_local() {
        let door = open_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
        let (socket, _peer) = UnixStream::pair().unwrap();
        let arrival = door.arrival(&socket.into(), None);
        assert_eq!((&arrival.addr[..], arrival.is_local, arrival.door), ("?:0", false, DoorKind::Tcp));
    }

    #[test]
    fn a_refused_client_is_told_why_and_closed() {
        let dir = TempDir::new("doors");
        let path = dir.path().join("socket");
        let settings = Settings { maxclients: 0, ..Config::default().settings };
        let doors = Doors::new(vec![open_unix(&path, &settings).unwrap()]).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        assert!(admitted(&doors, &settings).is_empty());
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        assert_eq!(told, "-ERR max number of clients reached\r\n");
    }

    #[test]
    fn what_cannot_be_listened_on_keeps_the_reason_of_the_system() {
        let dir = TempDir::new("doors");
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let settings = Settings { bind: vec!["127.0.0.1".into()], port, ..Config::default().settings };
        let path = dir.path().join("none/socket");
        let unix = Settings { port: 0, unixsocket: Some(path), ..Config::default().settings };
        for (settings, kind) in [(settings, ErrorKind::AddrInUse), (unix, ErrorKind::NotFound)] {
            let error = open(&settings).err().unwrap();
            let reason = error.source().and_then(|reason| reason.downcast_ref::<io::Error>());
            assert_eq!(reason.map(io::Error::kind), Some(kind), "{error:?}");
        }
    }

    #[test]
    fn another_port_moves_the_doors_of_tcp_alone() {
        let dir = TempDir::new("doors");
        let path = dir.path().join("socket");
        let old = Settings { bind: vec!["127.0.0.1".into()], port: 0, ..Config::default().settings };
        let tcp = open_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
        let doors = Doors::new(vec![tcp, open_unix(&path, &old).unwrap()]).unwrap();
        let port = doors.tcp_port();
        doors.rebind(&Settings { port, ..old.clone() }, &old).unwrap();
        assert_eq!(doors.tcp_port(), 0);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        let _client = UnixStream::connect(&path).unwrap();
        assert_eq!(admitted(&doors, &old).len(), 1);
    }
}
