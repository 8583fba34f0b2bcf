//! The engine of commands that wait, with commands on strings: `TAKE key.. timeout` and `SHIFT from to timeout`.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use stillframe_store::{Deadline, NewValue, ValueType};
use stillframe_testkit::TempDir;

use crate::command::operand::timeout;
use crate::command::{flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::commands::registry_with;
use crate::dispatch::ctx::{Command, Ctx, Registry};
use crate::dispatch::waiting::{take_or_wait, Blocking};
use crate::harness::{arrival, Harness};
use crate::protocol::args::Args;
use crate::protocol::reply::Replies;
use crate::state::clients::ClientInfo;
use crate::state::session::Session;
use crate::state::token::Token;

const COMMANDS: &[Command] = &[
    Command::new("take", -3, flag::WRITE | flag::BLOCKING, Touch::OneOperation, take)
        .doc(Group::String, "1.0.0", "", "")
        .keys(&[KeySpec::range(1, -2, 1, key_flag::RW)]),
    Command::new("shift", 4, flag::WRITE | flag::BLOCKING, Touch::Steps, shift)
        .doc(Group::String, "1.0.0", "", "")
        .keys(&[KeySpec::range(1, 1, 1, key_flag::RW)]),
];

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| registry_with(COMMANDS));

fn blocking(args: &Args<'_>, key_count: usize) -> Result<Blocking, CmdError> {
    Ok(Blocking {
        keys: 1..1 + key_count,
        timeout: timeout(args.at(args.len() - 1))?,
        wants: ValueType::String,
        minds_end: false,
        nothing: |reply| reply.null(),
    })
}

fn take_value(ctx: &mut Ctx<'_>, args: &Args<'_>, index: usize) -> Result<Option<Vec<u8>>, CmdError> {
    let (db, key) = (ctx.db(), ctx.key(args, index));
    let value = ctx.worker.get(db, &key, |value| value.to_vec())?;
    if value.is_some() {
        ctx.worker.remove(db, &key)?;
    }
    Ok(value)
}

fn take(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    take_or_wait(ctx, args, &blocking(args, args.len() - 2)?, |ctx, index| {
        let Some(value) = take_value(ctx, args, index)? else { return Ok(false) };
        ctx.reply.array(2);
        ctx.reply.bulk(args.at(index));
        ctx.reply.bulk(&value);
        Ok(true)
    })
}

fn shift(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    take_or_wait(ctx, args, &blocking(args, 1)?, |ctx, index| {
        let Some(value) = take_value(ctx, args, index)? else { return Ok(false) };
        let (db, to) = (ctx.db(), ctx.key(args, 2));
        ctx.worker.set(db, &to, NewValue::Bytes { bytes: &value, raw: false }, Deadline::Clear)?;
        ctx.reply.bulk(&value);
        Ok(true)
    })
}

/// Several clients of one worker; by turns they are that of the harness.
struct Clients {
    harness: Harness,
    others: Vec<(Session, Arc<ClientInfo>)>,
}

impl Clients {
    fn new(dir: &Path, count: usize) -> Clients {
        let harness = Harness::with_commands(dir, &REGISTRY).unwrap();
        let new = |number: usize| {
            let id = harness.server.clients.new_id();
            let info = ClientInfo::new(id, arrival("127.0.0.1:2"), 0);
            info.set_token(Token(number as u64));
            (Session::new(id, true), Arc::new(info))
        };
        let others = (0..count).map(new).collect();
        Clients { harness, others }
    }

    fn run(&mut self, client: usize, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let exchange = |clients: &mut Clients| {
            std::mem::swap(&mut clients.harness.client, &mut clients.others[client].0);
            std::mem::swap(&mut clients.harness.info, &mut clients.others[client].1);
        };
        exchange(self);
        let reply = self.harness.run(&words);
        exchange(self);
        String::from_utf8(reply).unwrap().replace("\r\n", " ").trim_end().to_owned()
    }

    fn id(&self, client: usize) -> u64 {
        self.others[client].1.id
    }

    /// What has been served since: client and reply.
    fn served(&mut self) -> Vec<(u64, String)> {
        let deliveries = std::mem::take(&mut self.harness.local.deliveries);
        let text = |replies: Replies| {
            String::from_utf8(replies.bytes().to_vec()).unwrap().replace("\r\n", " ").trim_end().to_owned()
        };
        let served: Vec<_> = deliveries
            .into_iter()
            .map(|delivery| {
                let client = delivery.token.0 as usize;
                let session = &mut self.others[client].0;
                let bytes =
                    session.late.take(delivery.reply, delivery.bytes).expect("it waits for one reply");
                self.harness.server.waiters.forget(self.others[client].1.id).expect("it waits");
                (client as u64, text(bytes))
            })
            .collect();
        served
    }
}

#[test]
fn the_first_to_come_is_served_first() {
    let dir = TempDir::new("waiting");
    let mut clients = Clients::new(dir.path(), 4);
    for client in 0..3 {
        assert_eq!(clients.run(client, "take a b 0"), "");
    }
    assert_eq!(clients.served(), []);
    assert_eq!(clients.run(3, "set c 1"), "+OK");
    assert_eq!(clients.served(), []);
    assert_eq!(clients.run(3, "set b 2"), "+OK");
    assert_eq!(clients.served(), [(0, "*2 $1 b $1 2".to_owned())]);
    assert_eq!(clients.run(3, "mset a 3 b 4"), "+OK");
    assert_eq!(clients.served(), [(1, "*2 $1 a $1 3".to_owned()), (2, "*2 $1 b $1 4".to_owned())]);
    assert!(clients.harness.server.waiters.is_empty());
    assert_eq!(clients.run(3, "set a 5"), "+OK");
    assert_eq!(clients.run(0, "take b a 0"), "*2 $1 a $1 5");
    assert_eq!(clients.run(3, "exists a b"), ":0");
}

#[test]
fn whatever_brings_a_key_there_wakes() {
    let dir = TempDir::new("waiting-bring");
    let mut clients = Clients::new(dir.path(), 2);
    let cases: [(&[&str], &[&str]); 6] = [
        (&["set x 1"], &["rename x k"]),
        (&["set x 1"], &["copy x k"]),
        (&["select 1", "set k 1"], &["move k 0", "select 0"]),
        (&["select 1", "set k 1", "select 0"], &["swapdb 0 1"]),
        (&["multi", "set k 0", "del k", "set k 1"], &["exec"]),
        (&[], &["append k 1"]),
    ];
    for (before, bring) in cases {
        clients.run(1, "flushall");
        assert_eq!(clients.run(0, "take j k 0"), "");
        before.iter().for_each(|line| assert!(!clients.run(1, line).starts_with('-'), "{line}"));
        assert_eq!(clients.served(), [], "{before:?}");
        bring.iter().for_each(|line| assert!(!clients.run(1, line).starts_with('-'), "{line}"));
        assert_eq!(clients.served(), [(0, "*2 $1 k $1 1".to_owned())], "{bring:?}");
    }
    // Gone again in the same step.
    assert_eq!(clients.run(0, "take k 0"), "");
    for line in ["multi", "set k 1", "del k", "exec"] {
        clients.run(1, line);
    }
    assert_eq!(clients.served(), []);
    assert_eq!(clients.run(1, "set k 2"), "+OK");
    assert_eq!(clients.served(), [(0, "*2 $1 k $1 2".to_owned())]);
}

#[test]
fn who_is_served_may_serve_others() {
    let dir = TempDir::new("waiting-chain");
    let mut clients = Clients::new(dir.path(), 4);
    assert_eq!(clients.run(0, "take c 0"), "");
    assert_eq!(clients.run(1, "shift b c 0"), "");
    assert_eq!(clients.run(2, "shift a b 0"), "");
    assert!(clients.harness.server.waiters.have_targets());
    let key = clients.harness.worker.key(b"a");
    let reach =
        clients.harness.server.waiters.reach_of([(clients.others[0].0.db, key.hash, key.bytes)].into_iter());
    assert_eq!(reach.iter().map(|place| &*place.key).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    assert_eq!(clients.run(3, "set a 1"), "+OK");
    let expected = [(2, "$1 1".to_owned()), (1, "$1 1".to_owned()), (0, "*2 $1 c $1 1".to_owned())];
    assert_eq!(clients.served(), expected);
    assert_eq!(clients.run(3, "dbsize"), ":0");
    assert!(!clients.harness.server.waiters.have_targets());
}

#[test]
fn a_transaction_waits_for_nothing() {
    let dir = TempDir::new("waiting-exec");
    let mut clients = Clients::new(dir.path(), 1);
    for (line, reply) in
        [("multi", "+OK"), ("take k 0", "+QUEUED"), ("set k 1", "+QUEUED"), ("take k 0", "+QUEUED")]
    {
        assert_eq!(clients.run(0, line), reply);
    }
    assert_eq!(clients.run(0, "exec"), "*3 $-1 +OK *2 $1 k $1 1");
    assert!(clients.harness.server.waiters.is_empty());
}

#[test]
fn a_wait_can_be_ended_by_others() {
    let dir = TempDir::new("waiting-end");
    let mut clients = Clients::new(dir.path(), 2);
    let id = clients.id(0);
    assert_eq!(clients.run(1, &format!("client unblock {id}")), ":0");
    for (reason, reply) in
        [("", "*-1"), (" timeout", "*-1"), (" error", "-UNBLOCKED client unblocked via CLIENT UNBLOCK")]
    {
        assert_eq!(clients.run(0, "take k 0"), "");
        assert_eq!(clients.run(1, &format!("client unblock {id}{reason}")), ":1");
        assert_eq!(clients.run(1, &format!("client unblock {id}{reason}")), ":0");
        assert_eq!(clients.served(), [(0, reply.to_owned())]);
        assert_eq!(clients.run(1, "getdel k"), "$-1");
        assert_eq!(clients.run(1, "set k 1"), "+OK");
        assert_eq!(clients.served(), [], "it waits no longer");
        assert_eq!(clients.run(1, "getdel k"), "$1 1");
    }
    let stats = clients.run(1, "info commandstats");
    let (_, take) = stats.split_once("cmdstat_take:").expect("the command was called");
    assert!(take.split(' ').next().is_some_and(|line| line.ends_with("failed_calls=3")), "{take}");
}

#[test]
fn deadlines_are_in_order() {
    let dir = TempDir::new("waiting-time");
    let mut clients = Clients::new(dir.path(), 3);
    assert_eq!(clients.harness.local.time_to_deadline(), Duration::MAX);
    let before = Instant::now();
    assert_eq!(clients.run(0, "take k 100"), "");
    assert_eq!(clients.run(1, "take k 0.5"), "");
    assert_eq!(clients.run(2, "take k 0"), "");
    let deadlines: Vec<_> = clients.harness.local.deadlines.keys().map(|(at, _)| *at - before).collect();
    let within = |time: Duration, seconds: f64| (seconds..seconds + 10.0).contains(&time.as_secs_f64());
    assert!(matches!(deadlines[..], [a, b] if within(a, 0.5) && within(b, 100.0)), "{deadlines:?}");
    assert!(clients.harness.local.time_to_deadline() <= Duration::from_millis(500));
    assert_eq!(clients.harness.server.waiters.with_deadline_count(), 2);
    assert!(clients.run(0, "take k x").starts_with("-ERR timeout is not a float"));
}
