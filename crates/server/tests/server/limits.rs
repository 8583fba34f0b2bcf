//! Too many clients, idle clients, strangers.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

use crate::harness::*;

#[test]
fn too_many_clients_are_told_so() {
    let server = TestServer::start(&["--maxclients", "3"]);
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.run("PING").text(), "PONG");
    }
    assert_eq!(server.connect().read_to_end(), b"-ERR max number of clients reached\r\n");
    assert_eq!(clients[0].info("rejected_connections"), "1");
    clients.pop();
    eventually("there is room again", || end_after_ping(server.connect()) == "+PONG\r\n+OK\r\n");
}

fn end_after_ping(mut client: Client) -> String {
    let _ = client.stream.write_all(b"PING\r\nQUIT\r\n");
    String::from_utf8_lossy(&client.read_to_end()).into_owned()
}

#[test]
fn ten_thousand_idle_clients() {
    let wanted = 12_000;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|c| c < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).expect("ulimit -n 12000");
    }
    let server = TestServer::start(&["--workers", "2", "--maxclients", "10010"]);
    let connect = |_| TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let mut clients: Vec<TcpStream> = (0..10_000).map(connect).collect();
    let mut one = server.connect();
    eventually("all are connected", || one.info("connected_clients") == "10001");
    for client in clients.iter_mut().step_by(97) {
        client.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    }
    assert_eq!(one.run("CLIENT LIST").text().lines().count(), 10_001);
    let before = server.resident_bytes();
    assert!(before < 256 << 20, "{before} bytes");
    drop(clients);
    eventually("all are gone", || one.info("connected_clients") == "1");
}

#[test]
fn idle_clients_are_closed_after_the_timeout() {
    // Some of them are visited in each round: neither their number nor that of the slots is a multiple of the rounds.
    let server = TestServer::start(&["--timeout", "1", "--workers", "1"]);
    let mut clients: Vec<Client> = (0..25).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.run("PING").text(), "PONG"));
    clients.remove(3);
    clients.iter_mut().for_each(|client| assert!(client.read_to_end().is_empty()));
}

/// An address of this machine that is not the loopback interface's.
fn outer_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn protected_mode_keeps_strangers_out() {
    let Some(outer) = outer_address() else {
        println!("this machine has only a loopback interface: nothing to protect from");
        return;
    };
    let server = TestServer::start(&["--bind", "*"]);
    let mut stranger = Client::new(TcpStream::connect((outer, server.port)).unwrap());
    let text = String::from_utf8_lossy(&stranger.read_to_end()).into_owned();
    assert!(text.starts_with("-DENIED Redis is running in protected mode because"), "{text}");
    assert!(text.ends_with("accepting connections from the outside.\r\n"));
    server.connect().ok("CONFIG SET protected-mode no");
    let mut guest = Client::new(TcpStream::connect((outer, server.port)).unwrap());
    assert_eq!(guest.run("PING").text(), "PONG");
}

#[test]
fn unix_sockets_work() {
    let dir = temp_dir();
    let path = dir.join("socket");
    let server =
        TestServer::start_in(&dir, &["--unixsocket", path.to_str().unwrap(), "--unixsocketperm", "700"]);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"CLIENT INFO\r\nQUIT\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let addr = format!("addr={}:0 laddr={}:0", path.display(), path.display());
    assert!(text.contains(&addr) && text.contains("flags=U"), "{text}");
    drop(server);
}

/// More than any system allows: the limit of open files cannot follow, whoever runs the test.
const TOO_MANY: &str = "4000000000";

#[test]
fn maxclients_is_held_against_the_limit_of_open_files() {
    let server = TestServer::start_limited("-Sn 100; ulimit -Hn 200", &["--maxclients", "50"]);
    let mut c = server.connect();
    let show = |c: &mut Client, name: &str| c.run(&format!("CONFIG GET {name}")).items()[1].text();
    assert_eq!(server.file_limit(), 100);
    c.ok("CONFIG SET maxclients 150");
    assert_eq!(server.file_limit(), 182);
    let refusal = "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able \
                   to handle the specified number of clients, try with 168";
    assert_eq!(c.run(&format!("CONFIG SET maxclients {TOO_MANY}")), Reply::Error(refusal.into()));
    let both = format!("CONFIG SET timeout 7 maxclients {TOO_MANY}");
    assert_eq!(c.run(&both), Reply::Error(refusal.into()));
    assert_eq!((show(&mut c, "maxclients"), show(&mut c, "timeout")), ("150".into(), "0".into()));
    assert_eq!(server.file_limit(), 182, "a refusal changes nothing");
    let other = format!("CONFIG SET maxclients {TOO_MANY} timeout abc");
    assert!(
        c.run(&other).text().contains("argument 'timeout'"),
        "texts are read before limits are looked at"
    );
    c.ok("CONFIG SET maxclients 168");
    c.ok("CONFIG SET maxclients 3");
    let log = server.log();
    for line in [
        "Increased maximum number of open files to 182 (it was originally set to 100).",
        "You requested maxclients of 4000000000 requiring at least 4000000032 max file descriptors.",
        "Server can't set maximum open files to 4000000032 because of OS error: Operation not permitted.",
        "Current maximum open files is 200. maxclients has been reduced to 168 to compensate for low ulimit. If you \
         need higher maxclients increase 'ulimit -n'.",
        "Failed applying new configuration. Possibly related to new maxclients setting. Restoring previous settings.",
    ] {
        assert!(log.contains(line), "{line}\n{log}");
    }
}

#[test]
fn maxclients_is_reduced_at_the_start() {
    let server = TestServer::start_limited("-Sn 100; ulimit -Hn 200", &["--maxclients", TOO_MANY]);
    let mut c = server.connect();
    assert_eq!(c.run("CONFIG GET maxclients").items()[1].text(), "168");
    assert_eq!(server.file_limit(), 200);
    assert!(server.log().contains("Current maximum open files is 200. maxclients has been reduced to 168"));
    // As many as it promises it does serve.
    let mut others: Vec<Client> = (0..167).map(|_| server.connect()).collect();
    for client in &mut others {
        assert_eq!(client.run("PING").text(), "PONG");
    }
    c.ok("SET a 1");
    c.ok("SAVE");
    c.ok("BACKUP TO a.rdb");
    assert_eq!(server.connect().read_to_end(), b"-ERR max number of clients reached\r\n");
}

#[test]
fn a_limit_without_room_for_a_client_is_an_error() {
    let dir = temp_dir();
    let port = Port::reserve().unwrap();
    let output = binary_limited("-n 30")
        .args(["--port", &port.to_string(), "--maxclients", TOO_MANY, "--dir"])
        .arg(&dir)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = "Your current 'ulimit -n' of 30 is not enough for the server to start. Please increase your open file \
                    limit to at least 4000000032. Exiting.";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn the_largest_clients_go_when_all_together_hold_too_much() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers, "--maxmemory-clients", "9mb"]);
        let mut c = server.connect();
        let mut greedy: Vec<Client> = (0..4).map(|_| server.connect()).collect();
        assert_eq!(greedy[3].run("CLIENT NO-EVICT ON"), Reply::ok());
        let mut input = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4000000\r\n".to_vec();
        let head_bytes = input.len();
        input.resize(3 << 20, b'x');
        for client in &mut greedy {
            let _ = client.stream.write_all(&input);
        }
        eventually("enough are gone", || {
            c.info("evicted_clients") == "2" && c.info("connected_clients") == "3"
        });
        assert!(c.info("mem_clients_normal").parse::<u64>().unwrap() <= 9 << 20);
        assert!(server.log().contains("Evicting client: id="), "{}", server.log());
        // The one that must not go is still there.
        greedy[3].send_raw(&vec![b'x'; 4_000_000 + head_bytes - input.len()]);
        greedy[3].send_raw(b"\r\n");
        assert_eq!(greedy[3].read(), Reply::ok());
        assert_eq!(c.run("PING").text(), "PONG");
    }
}
