//! Commands without a server: from the bytes of a request to those of its reply, and no socket anywhere.

use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stillframe_engine::config::{from_args, Settings, Start};
use stillframe_engine::sockets::{Sockets, TooManyClients};
use stillframe_engine::{Client, Closed, Config, Engine};
use stillframe_testkit::{eventually, TempDir};

/// Long enough for whatever is going to come.
const LONG: Duration = Duration::from_secs(30);

fn config(args: &[&str]) -> Config {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    match from_args(&args) {
        Ok(Start::Serve(config)) => *config,
        other => panic!("{other:?}"),
    }
}

fn open(dir: &Path, args: &[&str]) -> Engine {
    Engine::open(dir, config(&[&["--save", ""], args].concat())).unwrap()
}

/// Runs commands of plain words, one a line.
fn run(client: &mut Client, lines: &str) -> String {
    String::from_utf8(client.execute(format!("{lines}\r\n").as_bytes()).unwrap()).unwrap()
}

/// What comes without a call, up to `end`.
fn heard(client: &mut Client, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let bytes = client.wait(LONG).unwrap().unwrap_or_else(|| panic!("nothing more comes after {text:?}"));
        text += &String::from_utf8(bytes).unwrap();
    }
    text
}

#[test]
fn requests_are_answered_in_their_order() {
    let dir = TempDir::new("embedded");
    let engine = open(&dir, &[]);
    let mut client = engine.connect().unwrap();
    let request = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\na\r\n\r\nGET k\r\n*1\r\n$4\r\nPING\r\n";
    assert_eq!(client.execute(request).unwrap(), b"+OK\r\n$3\r\na\r\n\r\n+PONG\r\n");
    // A command may come in pieces.
    assert_eq!(client.execute(b"*2\r\n$3\r\nGET\r\n$1").unwrap(), b"");
    assert_eq!(client.execute(b"\r\nk\r\n").unwrap(), b"$3\r\na\r\n\r\n");
    assert_eq!(client.call(&["STRLEN", "k"]).unwrap(), b":3\r\n");
    assert_eq!(run(&mut client, "nope"), "-ERR unknown command 'nope', with args beginning with: \r\n");
    assert_eq!(run(&mut client, "HELLO 3").lines().next(), Some("%7"));
    assert_eq!(run(&mut client, "GET none"), "_\r\n");
    // Another client has a session of its own.
    let mut other = engine.connect().unwrap();
    assert_eq!(run(&mut other, "SELECT 1\r\nGET k"), "+OK\r\n$-1\r\n");
    assert!(client.id() != other.id() && run(&mut client, "CLIENT LIST").contains(" addr=program:"));
}

#[test]
fn a_transaction_is_one_step() {
    let dir = TempDir::new("embedded");
    let engine = open(&dir, &["--workers", "2"]);
    let [mut one, mut other] = [(); 2].map(|()| engine.connect().unwrap());
    assert_eq!(run(&mut one, "MULTI\r\nINCR n\r\nRPUSH l a b"), "+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    assert_eq!(run(&mut other, "GET n"), "$-1\r\n");
    assert_eq!(run(&mut one, "EXEC"), "*2\r\n:1\r\n:2\r\n");
    assert_eq!(run(&mut one, "WATCH n\r\nMULTI\r\nINCR n"), "+OK\r\n+OK\r\n+QUEUED\r\n");
    assert_eq!(run(&mut other, "SET n 7"), "+OK\r\n");
    assert_eq!(run(&mut one, "EXEC\r\nGET n"), "*-1\r\n$1\r\n7\r\n");
}

#[test]
fn a_client_waits_for_a_key_and_another_serves_it() {
    let dir = TempDir::new("embedded");
    for workers in ["1", "2"] {
        let engine = open(&dir, &["--workers", workers]);
        let [mut waiting, mut pushing] = [(); 2].map(|()| engine.connect().unwrap());
        // What stands behind the command is executed once it has been answered.
        assert_eq!(run(&mut waiting, "BLPOP a b 0\r\nPING"), "");
        assert_eq!(waiting.wait(Duration::from_millis(20)), Ok(None));
        assert_eq!(run(&mut pushing, "RPUSH b 1 2"), ":2\r\n");
        assert_eq!(heard(&mut waiting, "PONG\r\n"), "*2\r\n$1\r\nb\r\n$1\r\n1\r\n+PONG\r\n");
        assert_eq!(run(&mut pushing, "LPOP b\r\nEXISTS b"), "$1\r\n2\r\n:0\r\n");
        // In vain, and ended by another.
        assert_eq!(run(&mut waiting, "BLPOP a 0.01"), "");
        assert_eq!(heard(&mut waiting, "\r\n"), "*-1\r\n");
        assert_eq!(run(&mut waiting, "BLPOP a 0"), "");
        let unblock = format!("CLIENT UNBLOCK {} ERROR", waiting.id());
        assert_eq!(run(&mut pushing, &unblock), ":1\r\n");
        assert!(heard(&mut waiting, "\r\n").starts_with("-UNBLOCKED"));
        // One that has gone takes nothing.
        assert_eq!(run(&mut waiting, "BLPOP a 0"), "");
        drop(waiting);
        eventually("the client is gone", || !run(&mut pushing, "CLIENT LIST").contains("cmd=blpop"));
        assert_eq!(run(&mut pushing, "RPUSH a 1\r\nLLEN a\r\nDEL a"), ":1\r\n:1\r\n:1\r\n");
    }
}

#[test]
fn a_subscriber_is_told() {
    let dir = TempDir::new("embedded");
    let engine = open(&dir, &["--workers", "2", "--notify-keyspace-events", "K$"]);
    let [mut listening, mut telling] = [(); 2].map(|()| engine.connect().unwrap());
    let subscribed = run(&mut listening, "SUBSCRIBE news\r\nPSUBSCRIBE __keyspace*");
    assert_eq!(
        subscribed,
        "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n*3\r\n$10\r\npsubscribe\r\n$11\r\n__keyspace*\r\n:2\r\n"
    );
    assert_eq!(run(&mut telling, "PUBLISH news one\r\nPUBLISH none two\r\nSET k v"), ":1\r\n:0\r\n+OK\r\n");
    let told = heard(&mut listening, "set\r\n");
    let message = "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\none\r\n";
    assert!(told.starts_with(message) && told.contains("__keyspace@0__:k"), "{told:?}");
    // A message that somebody knows of comes before the reply to whatever is asked next.
    assert_eq!(run(&mut telling, "PUBLISH news three"), ":1\r\n");
    assert_eq!(
        run(&mut listening, "PING"),
        "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nthree\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n"
    );
    drop(listening);
    eventually("the subscriber is gone", || run(&mut telling, "PUBLISH news four") == ":0\r\n");
}

#[test]
fn large_replies_are_whole() {
    let dir = TempDir::new("embedded");
    let engine = open(&dir, &[]);
    let [mut one, mut other] = [(); 2].map(|()| engine.connect().unwrap());
    let value = "x".repeat(1 << 20);
    let bulk = format!("${}\r\n{value}\r\n", value.len());
    assert_eq!(one.call(&["SET", "large", &value]).unwrap(), b"+OK\r\n");
    assert_eq!(run(&mut one, "GET large"), bulk);
    // It comes by reference to the client that waits.
    assert_eq!(run(&mut one, "BLPOP l 0"), "");
    assert_eq!(other.call(&["RPUSH", "l", &value]).unwrap(), b":1\r\n");
    assert_eq!(heard(&mut one, "x\r\n"), format!("*2\r\n$1\r\nl\r\n{bulk}"));
    // Of many elements, written by a thread; drawn at random, part by part.
    let members: Vec<String> = (0..20_000).map(|number| format!("member:{number}")).collect();
    let words: Vec<&str> = ["SADD", "s"].into_iter().chain(members.iter().map(String::as_str)).collect();
    assert_eq!(one.call(&words).unwrap(), b":20000\r\n");
    let all = run(&mut one, "SMEMBERS s\r\nPING");
    assert!(all.starts_with("*20000\r\n") && all.ends_with("+PONG\r\n"), "{} bytes", all.len());
    assert_eq!(all.lines().count(), 1 + 2 * 20_000 + 1);
    let drawn = run(&mut one, "SRANDMEMBER s -100000\r\nPING");
    assert!(drawn.starts_with("*100000\r\n") && drawn.ends_with("+PONG\r\n"), "{} bytes", drawn.len());
    assert_eq!(drawn.lines().count(), 1 + 2 * 100_000 + 1);
}

#[test]
fn what_is_saved_is_there_again() {
    let dir = TempDir::new("embedded");
    for format in ["pages", "rdb"] {
        let args = ["--snapshot-format", format];
        let engine = open(&dir, &args);
        let mut client = engine.connect().unwrap();
        assert_eq!(run(&mut client, "SET kept 1\r\nSAVE\r\nSET lost 1"), "+OK\r\n+OK\r\n+OK\r\n");
        drop((client, engine));
        let engine = open(&dir, &args);
        let mut client = engine.connect().unwrap();
        assert_eq!(run(&mut client, "EXISTS kept\r\nEXISTS lost\r\nFLUSHALL"), ":1\r\n:0\r\n+OK\r\n");
    }
}

#[test]
fn keys_expire_by_themselves() {
    let dir = TempDir::new("embedded");
    let engine = open(&dir, &[]);
    let mut client = engine.connect().unwrap();
    assert_eq!(run(&mut client, "SET k v PX 10"), "+OK\r\n");
    eventually("the key is gone", || run(&mut client, "DBSIZE") == ":0\r\n");
}

#[test]
fn an_end_is_an_error() {
    let dir = TempDir::new("embedded");
    let engine = open(&dir, &[]);
    let mut clients = [(); 4].map(|()| engine.connect().unwrap());
    let [quitting, killed, wrong, last] = &mut clients;
    assert_eq!(run(quitting, "QUIT"), "+OK\r\n");
    assert_eq!(quitting.execute(b"PING\r\n"), Err(Closed));
    let kill = format!("CLIENT KILL ID {}", killed.id());
    assert_eq!(run(last, &kill), ":1\r\n");
    assert_eq!(killed.wait(LONG), Err(Closed));
    assert!(run(wrong, "*1\r\n!").starts_with("-ERR Protocol error: expected '$', got '!'"));
    assert_eq!(wrong.call(&["PING"]), Err(Closed));
    assert_eq!(run(last, "CLIENT LIST").matches("program:").count(), 2, "addr and laddr");
    assert_eq!(last.call(&["SHUTDOWN", "NOSAVE"]), Err(Closed));
    assert!(matches!(engine.connect().map(drop), Err(Closed)));
}

/// Where it is listened, as far as commands know.
#[derive(Default)]
struct Listed {
    ports: Mutex<Vec<u16>>,
}

impl Sockets for Listed {
    fn tcp_port(&self) -> u16 {
        self.ports.lock().unwrap().last().copied().unwrap_or(0)
    }

    fn rebind(&self, _old: &Settings, new: &Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
        if new.port == 666 {
            return Err("not there".into());
        }
        self.ports.lock().unwrap().push(new.port);
        Ok(())
    }

    fn make_room(&self, maxclients: usize, worker_count: usize) -> Result<(), TooManyClients> {
        assert_eq!(worker_count, 1);
        if maxclients > 100 {
            return Err(TooManyClients { allowed_count: 100 });
        }
        Ok(())
    }
}

#[test]
fn commands_see_sockets_by_their_trait() {
    let dir = TempDir::new("embedded");
    let sockets = Arc::new(Listed::default());
    let engine = Engine::open_with(&dir, config(&["--save", ""]), sockets.clone()).unwrap();
    let mut client = engine.connect().unwrap();
    assert_eq!(run(&mut client, "CONFIG SET port 7001\r\nCONFIG SET maxclients 100"), "+OK\r\n+OK\r\n");
    assert!(run(&mut client, "INFO server").contains("\r\ntcp_port:7001\r\n"));
    assert_eq!(
        run(&mut client, "CONFIG SET maxclients 101"),
        "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able to handle the \
         specified number of clients, try with 100\r\n"
    );
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check server \
                   logs.\r\n";
    assert_eq!(run(&mut client, "CONFIG SET port 666"), refused);
    let present = run(&mut client, "CONFIG GET port\r\nCONFIG GET maxclients");
    assert_eq!(present, "*2\r\n$4\r\nport\r\n$4\r\n7001\r\n*2\r\n$10\r\nmaxclients\r\n$3\r\n100\r\n");
    assert_eq!(*sockets.ports.lock().unwrap(), [7001]);
}

#[test]
fn without_sockets_it_listens_nowhere() {
    let dir = TempDir::new("embedded");
    let engine = open(&dir, &[]);
    let mut client = engine.connect().unwrap();
    assert!(run(&mut client, "INFO server").contains("\r\ntcp_port:0\r\n"));
    assert!(run(&mut client, "CONFIG SET port 7001").starts_with("-ERR CONFIG SET failed"));
    assert_eq!(run(&mut client, "CONFIG SET maxclients 1000000"), "+OK\r\n");
}

/// A script that never ends is ended from another thread.
#[test]
fn an_endless_script_can_be_ended() {
    let dir = TempDir::new("embedded");
    let engine = open(dir.path(), &["--busy-reply-threshold", "20"]);
    assert!(engine.kill_script().is_err());
    let mut client = engine.connect().unwrap();
    std::thread::scope(|scope| {
        let runner = scope.spawn(move || client.call(&["EVAL", "while true do end", "0"]).unwrap());
        while engine.kill_script().is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(runner.join().unwrap().starts_with(b"-ERR Script killed by user with SCRIPT KILL"));
    });
}
