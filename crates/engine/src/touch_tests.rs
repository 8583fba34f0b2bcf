//! Rows that say something else of their commands than these do: debug builds stop at the first call that shows it.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::LazyLock;

use stillframe_store::{Deadline, NewValue};
use stillframe_testkit::TempDir;

use crate::command::{flag, key_flag, CmdResult, Group, KeySpec, Touch};
use crate::commands::registry_with;
use crate::dispatch::ctx::{Command, Ctx, Handler, Registry};
use crate::dispatch::waiting::{take_or_wait, Blocking};
use crate::harness::Harness;
use crate::protocol::args::Args;

const READ: u32 = flag::READONLY;
const WRITE: u32 = flag::WRITE;
const ALL: &[KeySpec] = &[KeySpec::range(1, -1, 1, key_flag::RW)];

const fn row(name: &'static str, flags: u32, touch: Touch, run: Handler) -> Command {
    Command::new(name, -1, flags, touch, run).doc(Group::String, "1.0.0", "", "").keys(ALL)
}

const COMMANDS: &[Command] = &[
    row("nothing.looks", 0, Touch::Nothing, look),
    row("counters.looks", READ, Touch::Counters, look),
    row("flush.looks", WRITE, Touch::Flush, look),
    row("read.writes", READ, Touch::Steps, write),
    row("walk.writes", READ, Touch::Walk, write),
    row("read.replaces", READ, Touch::Steps, make_way),
    row("one.looks_twice", READ, Touch::OneOperation, look_twice),
    row("one.writes_twice", WRITE, Touch::OneOperation, write_twice),
    row("one.replaces", WRITE, Touch::OneOperation, replace),
    row("one.looks_back", WRITE, Touch::OneOperation, write_then_look),
    row("of.looks_twice", READ, Touch::Of(|_| Touch::OneOperation), look_twice),
    row("each.looks_twice", READ, Touch::EachKey, look_twice),
    row("each.writes_twice", WRITE, Touch::EachKey, write_twice),
    row("each.looks_back", WRITE, Touch::EachKey, write_then_look),
    row("waiting.writes_twice", WRITE | flag::BLOCKING, Touch::OneOperation, wait_and_write_twice),
    // These say what is so.
    row("one.looks", READ, Touch::OneOperation, look),
    row("one.looks_anew", READ, Touch::OneOperation, look_anew),
    row("one.writes", WRITE, Touch::OneOperation, look_then_write),
    row("each.looks", READ, Touch::EachKey, look_at_each),
    row("steps.look", READ, Touch::Steps, look_twice),
    row("steps.write", WRITE, Touch::Steps, write_twice),
    row("steps.replace", WRITE, Touch::Steps, replace),
    row("read.may_write", READ | flag::MAY_REPLICATE, Touch::OneOperation, write),
    row("alone.writes", 0, Touch::Alone, write_twice),
];

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| registry_with(COMMANDS));

fn look(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    ctx.worker.entry(ctx.client.db, &key)?;
    ctx.reply.ok();
    Ok(())
}

fn look_twice(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    ctx.worker.get(ctx.client.db, &key, |_| ())?;
    look(ctx, args)
}

fn look_anew(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    ctx.worker.get(ctx.client.db, &key, |_| ())?;
    ctx.worker.counting().look_anew();
    look(ctx, args)
}

fn look_at_each(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    for index in 1..args.len() {
        let key = ctx.key(args, index);
        ctx.worker.entry(ctx.client.db, &key)?;
    }
    ctx.reply.ok();
    Ok(())
}

fn write(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    ctx.worker.set(db, &key, NewValue::Int(1), Deadline::Clear)?;
    ctx.reply.ok();
    Ok(())
}

fn write_twice(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    ctx.worker.set(db, &key, NewValue::Int(0), Deadline::Clear)?;
    write(ctx, args)
}

fn look_then_write(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    ctx.worker.entry(ctx.client.db, &key)?;
    write(ctx, args)
}

fn write_then_look(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    ctx.worker.set(db, &key, NewValue::Int(1), Deadline::Clear)?;
    look(ctx, args)
}

/// What it removes is not told, and not counted as a change.
fn make_way(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    ctx.worker.make_way(db, &key, [1].into_iter())?;
    ctx.reply.ok();
    Ok(())
}

fn replace(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    ctx.worker.make_way(db, &key, [1].into_iter())?;
    ctx.worker.set_at(db, &key).add(&[&b"m"[..]])?;
    ctx.reply.ok();
    Ok(())
}

/// Waits for a string, and changes its key twice.
fn wait_and_write_twice(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let wants = stillframe_store::ValueType::String;
    let blocking =
        Blocking { keys: 1..2, timeout: None, wants, minds_end: false, nothing: |reply| reply.null() };
    take_or_wait(ctx, args, &blocking, |ctx, index| {
        let (db, key) = (ctx.db(), ctx.key(args, index));
        let is_there = ctx.worker.entry(db, &key)?.is_some();
        if is_there {
            write_twice(ctx, args)?;
        }
        Ok(is_there)
    })
}

/// Runs lines; what a debug build says of the row of the last one.
fn complaint(lines: &[&str]) -> Option<String> {
    let dir = TempDir::new("touch");
    let mut harness = Harness::with_commands(dir.path(), &REGISTRY).unwrap();
    let (last, before) = lines.split_last().unwrap();
    let mut run = |line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let reply = String::from_utf8(harness.run(&words)).unwrap();
        assert!(!reply.contains('-'), "{line}: {reply}");
    };
    before.iter().for_each(|line| run(line));
    let stopped = catch_unwind(AssertUnwindSafe(|| run(last))).err()?;
    Some(stopped.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[test]
fn a_call_that_does_more_than_its_row_says_is_stopped() {
    for (name, why) in [
        ("nothing.looks", "has run an operation on keys"),
        ("counters.looks", "has run an operation on keys"),
        ("flush.looks", "has run an operation on keys"),
        ("read.writes", "has changed something"),
        ("walk.writes", "has changed something"),
        ("read.replaces", "has changed something"),
        ("one.looks_twice", "it reads in more operations"),
        ("one.writes_twice", "it changes things in more operations"),
        ("one.replaces", "it changes things in more operations"),
        ("one.looks_back", "an operation comes after its change"),
        ("of.looks_twice", "it reads in more operations"),
        ("each.looks_twice", "it reads in more operations"),
        ("each.writes_twice", "it changes things in more operations"),
        ("each.looks_back", "an operation comes after its change"),
    ] {
        let call = format!("{name} k");
        let queued: &[&str] = &["multi", "set other 1", &call, "exec"];
        for lines in [&["set k 0", &call][..], queued] {
            let said = complaint(lines).unwrap_or_else(|| panic!("{lines:?} went through"));
            assert!(said.contains(&format!("the row of '{name}' is wrong")), "{said}");
            assert!(said.contains(why), "{said}");
        }
    }
}

#[test]
fn what_is_done_for_a_client_that_waits_is_held_against_its_own_row() {
    assert_eq!(complaint(&["waiting.writes_twice k"]), None);
    let said = complaint(&["waiting.writes_twice k", "set k 0"]).expect("it was served");
    assert!(said.contains("the row of 'waiting.writes_twice' is wrong"), "{said}");
}

#[test]
fn a_call_that_does_what_its_row_says_goes_through() {
    let names = [
        "one.looks",
        "one.looks_anew",
        "one.writes",
        "each.looks",
        "steps.look",
        "steps.write",
        "steps.replace",
        "read.may_write",
        "alone.writes",
    ];
    for name in names {
        let call = format!("{name} k");
        assert_eq!(complaint(&["set k 0", &call]), None, "{name}");
        assert_eq!(complaint(&["multi", "set k 0", &call, &call, "exec"]), None, "{name}");
    }
    assert_eq!(complaint(&["set k 0", "each.looks k l m"]), None);
}

/// Commands whose rows have not always said so.
#[test]
fn commands_of_several_operations_say_so() {
    for line in [
        "sunion s",
        "sinter s",
        "sdiff s",
        "sintercard 1 s",
        "zunion 1 z",
        "zinter 1 z",
        "zdiff 1 z",
        "zintercard 1 z",
        "sort_ro l",
        "sort l",
        "sort l store l",
        "sort l by w* store l",
        "srandmember s 2",
        "hrandfield h 2",
        "ltrim l 1 1",
        "ltrim l 2 9",
        "pfmerge p",
    ] {
        let before =
            ["sadd s 1 2", "zadd z 1 a 2 b", "hset h f v", "rpush l 2 1 3", "pfadd p x", "pfcount p"];
        assert_eq!(complaint(&[&before[..], &[line]].concat()), None, "{line}");
    }
    let dir = TempDir::new("touch-several");
    let mut harness = Harness::with_commands(dir.path(), &REGISTRY).unwrap();
    for (make, is_string) in [(&[&b"set"[..], b"k", b"v"], true), (&[&b"rpush"[..], b"k", b"v"], false)] {
        harness.run(&[b"del", b"k"]);
        harness.run(make);
        let dumped = harness.run(&[b"dump", b"k"]);
        let from = dumped.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let payload = &dumped[from..dumped.len() - 2];
        assert_eq!(payload[0] == 0, is_string);
        assert_eq!(harness.run(&[b"restore", b"k", b"99999999", payload, b"replace"]), b"+OK\r\n");
    }
    assert_eq!(harness.run(&[b"srandmember", b"s", b"-2"]), b"*0\r\n");
    harness.run(&[b"sadd", b"s", b"m"]);
    assert_eq!(harness.run(&[b"srandmember", b"s", b"-2"]), b"*2\r\n$1\r\nm\r\n$1\r\nm\r\n");
    harness.run(&[b"hset", b"h", b"f", b"v"]);
    assert_eq!(harness.run(&[b"hrandfield", b"h", b"-1"]), b"*1\r\n$1\r\nf\r\n");
}

/// A key whose time is over goes when a read looks at it.
#[test]
fn an_expiry_is_no_change() {
    let dir = TempDir::new("touch-expiry");
    let mut harness = Harness::with_commands(dir.path(), &REGISTRY).unwrap();
    assert_eq!(harness.run(&[b"psetex", b"k", b"1", b"0"]), b"+OK\r\n");
    harness.worker.set_now(1_000);
    assert_eq!(harness.run(&[b"one.looks", b"k"]), b"+OK\r\n");
    assert_eq!(harness.worker.expired_counts().0, 1);
}
