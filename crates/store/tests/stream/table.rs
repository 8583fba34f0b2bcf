//! Each effect in the commands of the table in docs/internals/decisions.md.

use std::sync::Arc;

use stillframe_store::stream::Encoder;
use stillframe_store::{
    DbId, Deadline, End, FieldMode, ListAt, NewValue, OpError, RangeLimit, ScoreRule, ScoredRange, Store,
    Worker,
};
use stillframe_testkit::TempDir;

use crate::bytes::shown;
use crate::memory::Memory;
use crate::open;

const NOW: i64 = 1_000_000;
const DB: DbId = DbId(0);

/// What a store's operations become.
struct Told {
    worker: Worker,
    encoder: Arc<Encoder<Memory>>,
    _store: Store,
    _dir: TempDir,
}

impl Told {
    fn new() -> Told {
        let dir = TempDir::new("stream-table");
        let store = open(&dir);
        let encoder = Arc::new(Encoder::new(Memory::default()));
        assert!(store.listen(vec![encoder.clone()]));
        encoder.start();
        let mut worker = store.worker();
        worker.set_now(NOW);
        Told { worker, encoder, _store: store, _dir: dir }
    }

    /// The units of what `f` does, without SELECT in front.
    fn by(&mut self, f: impl FnOnce(&mut Worker)) -> Vec<String> {
        self.encoder.consumer().take();
        f(&mut self.worker);
        self.encoder.consumer().take_without_selects().iter().map(|unit| shown(unit)).collect()
    }

    fn set(&mut self, db: DbId, name: &str, value: &str, deadline: Deadline) {
        let key = self.worker.key(name.as_bytes());
        let value = NewValue::Bytes { bytes: value.as_bytes(), raw: false };
        self.worker.set(db, &key, value, deadline).unwrap();
    }
}

#[test]
fn strings_and_deadlines() {
    let mut told = Told::new();
    let set = |worker: &mut Worker, value, deadline| {
        let key = worker.key(b"k");
        worker.set(DB, &key, value, deadline).unwrap();
    };
    let text = NewValue::Bytes { bytes: b"v", raw: false };
    assert_eq!(told.by(|worker| set(worker, text, Deadline::Keep)), ["SET k v"]);
    assert_eq!(told.by(|worker| set(worker, text, Deadline::Keep)), ["SET k v KEEPTTL"]);
    assert_eq!(told.by(|worker| set(worker, NewValue::Int(-5), Deadline::Clear)), ["SET k -5"]);
    assert_eq!(told.by(|worker| set(worker, text, Deadline::At(NOW + 9))), ["SET k v PXAT 1000009"]);
    assert_eq!(told.by(|worker| set(worker, text, Deadline::At(NOW))), ["DEL k"]);
    let write = |offset, bytes: &'static [u8]| {
        move |worker: &mut Worker| {
            let key = worker.key(b"w");
            worker.string_at(DB, &key).write_range(offset, bytes).unwrap();
        }
    };
    assert_eq!(told.by(write(0, b"")), ["SET w ''"]);
    assert_eq!(told.by(write(3, b"abc")), ["SETRANGE w 3 abc"]);
    let deadline = |deadline| {
        move |worker: &mut Worker| {
            let key = worker.key(b"w");
            worker.set_deadline(DB, &key, deadline).unwrap();
        }
    };
    assert_eq!(told.by(deadline(Some(NOW + 5))), ["PEXPIREAT w 1000005"]);
    assert_eq!(told.by(deadline(None)), ["PERSIST w"]);
}

/// What has expired is removed where that is noticed, unless a SET without KEEPTTL does so.
#[test]
fn expired_keys() {
    let mut told = Told::new();
    let expired = |told: &mut Told| {
        told.worker.set_now(NOW);
        told.set(DB, "k", "7", Deadline::At(NOW + 1));
        told.worker.set_now(NOW + 1);
    };
    expired(&mut told);
    let get = |worker: &mut Worker| {
        let key = worker.key(b"k");
        worker.get(DB, &key, |_| ()).unwrap();
    };
    assert_eq!(told.by(get), ["DEL k"]);
    expired(&mut told);
    let increment = |worker: &mut Worker| {
        let key = worker.key(b"k");
        worker.set(DB, &key, NewValue::Int(1), Deadline::Keep).unwrap();
    };
    assert_eq!(told.by(increment), ["SET k 1"]);
    expired(&mut told);
    let push = |worker: &mut Worker| {
        let key = worker.key(b"k");
        worker.list_at(DB, &key).push(End::Left, &[b"a"], false).unwrap();
    };
    assert_eq!(told.by(push), ["MULTI | DEL k | LPUSH k a | EXEC"]);
}

#[test]
fn whole_keys_and_databases() {
    let mut told = Told::new();
    told.set(DB, "a", "1", Deadline::Clear);
    let rename = |from: (DbId, &'static str), to: (DbId, &'static str)| {
        move |worker: &mut Worker| {
            let keys = (worker.key(from.1.as_bytes()), worker.key(to.1.as_bytes()));
            assert!(worker.rename((from.0, &keys.0), (to.0, &keys.1)).unwrap());
        }
    };
    let other = DbId(1);
    assert_eq!(told.by(rename((DB, "a"), (DB, "b"))), ["RENAME a b"]);
    assert_eq!(told.by(rename((DB, "b"), (other, "b"))), ["MOVE b 1"]);
    told.set(DB, "b", "2", Deadline::Clear);
    let over = told.by(rename((DB, "b"), (other, "b")));
    assert_eq!(over, ["MULTI | DEL b | SELECT 0 | MOVE b 1 | EXEC"]);
    let renamed = told.by(rename((other, "b"), (DB, "c")));
    assert_eq!(renamed, ["MULTI | COPY b c DB 0 REPLACE | DEL b | EXEC"]);
    let copy = |worker: &mut Worker| {
        let keys = (worker.key(b"c"), worker.key(b"d"));
        assert!(worker.copy((DB, &keys.0), (other, &keys.1)).unwrap());
    };
    assert_eq!(told.by(copy), ["COPY c d DB 1 REPLACE"]);
    assert_eq!(told.by(|worker| worker.database(other).flush().unwrap()), ["FLUSHDB"]);
    assert_eq!(told.by(|worker| worker.database(other).swap_with(DB).unwrap()), ["SWAPDB 1 0"]);
}

#[test]
fn lists() {
    let mut told = Told::new();
    let list = |f: fn(ListAt<'_, '_>) -> Result<(), OpError>| {
        move |worker: &mut Worker| {
            let key = worker.key(b"l");
            f(worker.list_at(DB, &key)).unwrap();
        }
    };
    let push = list(|mut list| list.push(End::Right, &["a", "b", "b", "c", "d", "e"], false).map(drop));
    assert_eq!(told.by(push), ["RPUSH l a b b c d e"]);
    let left = list(|mut list| list.push(End::Left, &["x"], false).map(drop));
    assert_eq!(told.by(left), ["LPUSH l x"]);
    let pop = list(|mut list| list.pop(End::Left, 1, |_| (), |_| ()).map(drop));
    assert_eq!(told.by(pop), ["LPOP l"]);
    let pops = list(|mut list| list.pop(End::Right, 2, |_| (), |_| ()).map(drop));
    assert_eq!(told.by(pops), ["LTRIM l 0 -3"]);
    assert_eq!(told.by(list(|mut list| list.remove(-1, "b").map(drop))), ["LREM l -1 b"]);
    assert_eq!(told.by(list(|mut list| list.insert(false, "b", "z").map(drop))), ["LINSERT l AFTER b z"]);
    assert_eq!(told.by(list(|mut list| list.insert(true, "b", "y").map(drop))), ["LINSERT l BEFORE b y"]);
    assert_eq!(told.by(list(|mut list| list.set(-1, "w").map(drop))), ["LSET l 4 w"]);
    let trim = list(|mut list| list.trim(2, -2).map(drop));
    assert_eq!(told.by(trim), ["MULTI | RPOP l | LTRIM l 2 -1 | EXEC"]);
    let rest = list(|mut list| list.pop(End::Left, 9, |_| (), |_| ()).map(drop));
    assert_eq!(told.by(rest), ["MULTI | LTRIM l 2 -1 | DEL l | EXEC"]);
}

#[test]
fn fields() {
    let mut told = Told::new();
    let set = |deadline| {
        move |worker: &mut Worker| {
            let key = worker.key(b"h");
            worker.hash_at(DB, &key).set(&[("f", "1"), ("g", "2")], FieldMode::All, deadline).unwrap();
        }
    };
    assert_eq!(told.by(set(Deadline::Clear)), ["HSET h f 1 g 2"]);
    let timed = "MULTI | HSET h f 1 g 2 | HPEXPIREAT h 1000007 FIELDS 2 f g | EXEC";
    assert_eq!(told.by(set(Deadline::At(NOW + 7))), [timed]);
    assert_eq!(told.by(set(Deadline::Keep)), [timed]);
    let deadline = |fields: &'static [&'static [u8]], deadline| {
        move |worker: &mut Worker| {
            let key = worker.key(b"h");
            worker.hash_at(DB, &key).set_deadline(fields, deadline).unwrap();
        }
    };
    assert_eq!(told.by(deadline(&[b"f"], Some(NOW + 9))), ["HPEXPIREAT h 1000009 FIELDS 1 f"]);
    assert_eq!(told.by(deadline(&[b"f", b"g"], None)), ["HPERSIST h FIELDS 2 f g"]);
    let remove = |fields: &'static [&'static str]| {
        move |worker: &mut Worker| {
            let key = worker.key(b"h");
            worker.hash_at(DB, &key).remove(fields).unwrap();
        }
    };
    assert_eq!(told.by(remove(&["f"])), ["HDEL h f"]);
    assert_eq!(told.by(remove(&["g"])), ["DEL h"]);
}

#[test]
fn members() {
    let mut told = Told::new();
    let add = |worker: &mut Worker| {
        let key = worker.key(b"s");
        worker.set_at(DB, &key).add(&["a", "b", "a"]).unwrap();
        worker.set_at(DB, &key).remove(&["b", "c"]).unwrap();
        worker.set_at(DB, &key).replace(&[b"x", b"y"], None).unwrap();
    };
    let units = ["SADD s a b", "SREM s b", "MULTI | DEL s | SADD s x y | EXEC"];
    assert_eq!(told.by(add), units);
    let scored = |worker: &mut Worker| {
        let key = worker.key(b"z");
        let scored = [(1.0, "a"), (0.1, "b"), (f64::NEG_INFINITY, "c"), (1e22, "d")];
        worker.sorted_set_at(DB, &key).put(&scored, &ScoreRule::default()).unwrap();
        let range = ScoredRange::Ranks { first: 0, last: 1 };
        worker.sorted_set_at(DB, &key).remove_range(&range, false, RangeLimit::NONE, |_, _| ()).unwrap();
    };
    let units = ["ZADD z 1 a 0.10000000000000001 b -inf c 1e+22 d", "ZREM z c b"];
    assert_eq!(told.by(scored), units);
}

/// One command has at most 1,000 words, or 64 KB.
#[test]
fn many_elements_are_several_commands() {
    let mut told = Told::new();
    let members: Vec<String> = (0..2_500).map(|number| number.to_string()).collect();
    let add = |worker: &mut Worker| {
        let key = worker.key(b"s");
        worker.set_at(DB, &key).add(&members.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    };
    let units = told.by(add);
    let [unit] = &units[..] else { panic!("{} units", units.len()) };
    let counts: Vec<usize> = unit.split(" | ").map(|command| command.split(' ').count()).collect();
    assert_eq!(counts, [1, 1_002, 1_002, 502, 1]);
    let long = vec!["x".repeat(3_000); 50];
    let push = |worker: &mut Worker| {
        let key = worker.key(b"l");
        worker
            .list_at(DB, &key)
            .push(End::Left, &long.iter().map(String::as_str).collect::<Vec<_>>(), false)
            .unwrap();
    };
    assert_eq!(told.by(push)[0].split(" | ").count(), 1 + 3 + 1);
}

/// A transaction is one unit, and says where it changes the database.
#[test]
fn a_step_of_several_operations_is_one_unit() {
    let mut told = Told::new();
    let step = |worker: &mut Worker| {
        let alone = worker.stop_others().unwrap();
        worker.steps().begin();
        for db in [0, 2, 2] {
            let key = worker.key(b"k");
            worker.list_at(DbId(db), &key).push(End::Right, &["a"], false).unwrap();
        }
        worker.database(DbId(1)).flush().unwrap();
        worker.steps().end();
        drop(alone);
    };
    let unit = "MULTI | RPUSH k a | SELECT 2 | RPUSH k a a | SELECT 1 | FLUSHDB | EXEC";
    assert_eq!(told.by(step), [unit]);
}
