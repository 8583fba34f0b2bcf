//! What an embedder may give by mistake: an error says so, and the data is what it was.

use std::ops::ControlFlow;

use stillframe_store::{
    Bytes, DbId, Deadline, FieldMode, Incoming, LexBound, OpError, Options, RangeLimit, ScoreBound,
    ScoreRule, ScoredRange, Store, Worker,
};
use stillframe_testkit::TempDir;

use crate::{check, open};

const DB: DbId = DbId(0);
/// Members of a sorted set that is packed, and of one that has trees.
const COUNTS: [u32; 2] = [10, 3_000];

fn is_no_number<R: std::fmt::Debug>(result: Result<R, OpError>) {
    assert!(matches!(result, Err(OpError::NotANumber)), "{result:?}");
}

/// Scores in ascending order, as a walk gives them.
fn scores(store: &Store, name: &str) -> Vec<f64> {
    let found = std::cell::RefCell::new(Vec::new());
    let each = |_: &[u8], score| {
        found.borrow_mut().push(score);
        ControlFlow::Continue(())
    };
    store.sorted_set(name).for_each(&ScoredRange::ALL, false, || found.borrow_mut().clear(), each).unwrap();
    found.into_inner()
}

#[test]
fn a_score_that_is_no_number_is_refused() {
    let dir = TempDir::new("input");
    let store = open(&dir, Options::default());
    for count in COUNTS {
        let name = format!("board:{count}");
        let board = store.sorted_set(&name);
        for nan in [f64::NAN, -f64::NAN, f64::from_bits(u64::MAX), f64::from_bits(0x7ff0_0000_0000_0001)] {
            is_no_number(board.insert("first", nan));
            is_no_number(board.add("first", nan));
        }
        assert!(board.is_empty().unwrap(), "nothing is made");
        for number in 0..count {
            board
                .insert(format!("m{number}"), f64::from(number.wrapping_mul(2_654_435_761) % 1_000))
                .unwrap();
            is_no_number(board.insert(format!("nan{number}"), f64::NAN));
            is_no_number(board.insert(format!("m{number}"), f64::NAN));
        }
        is_no_number(board.put_all(&[(1.0, b"good"), (f64::NAN, b"bad")], &ScoreRule::default()));
        assert_eq!((board.len().unwrap(), board.score("good").unwrap()), (u64::from(count), None));
        board.insert("endless", f64::INFINITY).unwrap();
        assert_eq!(board.add("endless", f64::NEG_INFINITY).unwrap(), None, "a sum that is no number");
        let found = scores(&store, &name);
        assert!(found.len() as u32 == count + 1 && found.is_sorted(), "{found:?}");
        for bounds in [[f64::NAN, 1.0], [0.0, f64::from_bits(u64::MAX >> 1)], [f64::from_bits(u64::MAX), 0.0]]
        {
            for bound in [ScoreBound::Included, ScoreBound::Excluded] {
                let range = ScoredRange::Scores { min: bound(bounds[0]), max: bound(bounds[1]) };
                is_no_number(board.for_each(&range, false, || (), |_, _| ControlFlow::Continue(())));
            }
        }
        assert!((0..count).all(|number| board.remove(format!("m{number}")).unwrap()));
    }
    let mut worker = store.worker();
    let range = ScoredRange::Scores { min: ScoreBound::Excluded(f64::NAN), max: ScoreBound::Included(1.0) };
    let key = worker.key(b"board:10");
    is_no_number(worker.sorted_set_at(DB, &key).count(&range));
    is_no_number(worker.sorted_set_at(DB, &key).remove_range(&range, false, RangeLimit::NONE, |_, _| ()));
    is_no_number(
        worker.sorted_set_at(DB, &key).replace(&mut [(b"a".to_vec(), 1.0), (b"b".to_vec(), f64::NAN)]),
    );
    assert_eq!(worker.sorted_set_at(DB, &key).len().unwrap(), 1);
    let names = ScoredRange::Lex { min: LexBound::Max, max: LexBound::Min };
    assert_eq!(worker.sorted_set_at(DB, &key).count(&names).unwrap(), Some(0));
    check(&store, &mut worker);
    worker.idle(|| store.checkpoint()).unwrap();
}

/// No collection is without elements: what would make one leaves the key alone, or takes it away.
#[test]
fn nothing_is_made_of_nothing() {
    let dir = TempDir::new("input");
    let store = open(&dir, Options::default());
    let none: [&[u8]; 0] = [];
    assert_eq!(store.hash("h").set_all(&[]).unwrap(), 0);
    assert_eq!(store.set("s").add_all(&none).unwrap(), 0);
    assert_eq!(store.list("l").push_all(stillframe_store::End::Left, &none).unwrap(), 0);
    assert_eq!(store.sorted_set("z").put_all(&[], &ScoreRule::default()).unwrap().added, 0);
    let mut worker = store.worker();
    let (set, sorted) = (worker.key(b"whole"), worker.key(b"sorted"));
    worker.set_at(DB, &set).replace(&[], None).unwrap();
    worker.sorted_set_at(DB, &sorted).replace(&mut []).unwrap();
    assert_eq!(store.db_stats(DB).key_count, 0);
    worker.set_at(DB, &set).add(&[&b"m"[..]]).unwrap();
    worker.set_at(DB, &set).replace(&[], None).unwrap();
    assert_eq!(store.db_stats(DB).key_count, 0);
    worker.hash_at(DB, &set).set(&[(&b"f"[..], &b"v"[..])], FieldMode::All, Deadline::Clear).unwrap();
    assert!(matches!(
        worker.list_at(DB, &set).push(stillframe_store::End::Left, &none, false),
        Err(OpError::WrongType)
    ));
    check(&store, &mut worker);
}

/// Whole sets, packed and with trees, of which a member is given twice.
#[test]
fn a_member_that_is_given_twice_is_refused() {
    let dir = TempDir::new("input");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    let key = worker.key(b"set");
    for (prefix, count) in [("", 20), ("member", 20), ("member", 3_000)] {
        let mut names: Vec<String> = (0..count).map(|number| format!("{prefix}{number}")).collect();
        names.push(names[count / 2].clone());
        let members: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let twice = worker.set_at(DB, &key).replace(&members, None);
        assert!(matches!(twice, Err(OpError::Twice)), "{twice:?}");
        let mut scored: Vec<(Vec<u8>, f64)> =
            members.iter().zip(0..).map(|(member, score)| (member.to_vec(), f64::from(score))).collect();
        let twice = worker.sorted_set_at(DB, &key).replace(&mut scored);
        assert!(matches!(twice, Err(OpError::Twice)), "{twice:?}");
        assert!(worker.entry(DB, &key).unwrap().is_none());
        worker.set_at(DB, &key).replace(&members[..count], None).unwrap();
        assert_eq!(worker.set_at(DB, &key).len().unwrap(), count as u64);
        worker.remove(DB, &key).unwrap();
    }
    check(&store, &mut worker);
}

const LONG: u64 = 300_000;

fn come(worker: &mut Worker, fill: u8, len_bytes: u64) -> Incoming {
    let mut incoming = worker.begin_incoming(LONG).unwrap();
    incoming.append(&vec![fill; len_bytes as usize]).unwrap();
    incoming
}

/// Elements that have come in parts: not whole, used, given twice, of another store. None of the elements beside them is stored.
#[test]
fn what_has_not_come_is_not_stored() {
    let (dir, other_dir) = (TempDir::new("input"), TempDir::new("input"));
    let (store, other) = (open(&dir, Options::default()), open(&other_dir, Options::default()));
    let (mut worker, mut stranger) = (store.worker(), other.worker());
    let (half, used, whole) =
        (come(&mut worker, 1, LONG / 2), come(&mut worker, 2, LONG), come(&mut worker, 3, LONG));
    let foreign = come(&mut stranger, 4, LONG);
    let (hash, set, list, sorted) = (worker.key(b"h"), worker.key(b"s"), worker.key(b"l"), worker.key(b"z"));
    let good = Bytes::Here(b"good");
    let pairs = [(good, Bytes::Incoming(&used))];
    worker.hash_at(DB, &hash).set(&pairs, FieldMode::All, Deadline::Clear).unwrap();
    let cases = [vec![&half], vec![&used], vec![&foreign], vec![&whole, &whole]];
    for (number, case) in cases.iter().enumerate() {
        let given: Vec<Bytes<'_>> =
            [good].into_iter().chain(case.iter().map(|came| Bytes::Incoming(came))).collect();
        let pairs: Vec<_> = given.iter().map(|bytes| (Bytes::Here(b"field"), *bytes)).collect();
        let scored: Vec<_> = given.iter().map(|bytes| (1.0, *bytes)).collect();
        let errors = [
            worker.hash_at(DB, &hash).set(&pairs, FieldMode::All, Deadline::Clear).map(drop),
            worker.set_at(DB, &set).add(&given).map(drop),
            worker.list_at(DB, &list).push(stillframe_store::End::Left, &given, false).map(drop),
            worker.sorted_set_at(DB, &sorted).put(&scored, &ScoreRule::default()).map(drop),
        ];
        for error in errors {
            let is_said = match (number, &error) {
                (0, Err(OpError::Incomplete { filled_bytes, len_bytes })) => {
                    (*filled_bytes, *len_bytes) == (LONG / 2, LONG)
                }
                (2, Err(OpError::OtherStore)) => true,
                (_, Err(OpError::Used)) => number != 2,
                _ => false,
            };
            assert!(is_said, "case {number}: {error:?}");
        }
    }
    assert_eq!(store.db_stats(DB).key_count, 1, "nothing has been made");
    assert_eq!(worker.hash_at(DB, &hash).len().unwrap(), 1);
    worker.set_at(DB, &set).add(&[Bytes::Incoming(&whole)]).unwrap();
    drop((half, used, whole, foreign));
    check(&store, &mut worker);
    worker.idle(|| store.checkpoint()).unwrap();
}

/// A value that is being read in parts is given as an element: it is copied, and each has its own.
#[test]
fn what_is_read_in_parts_is_copied() {
    let dir = TempDir::new("input");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    let (source, hash, set) = (worker.key(b"source"), worker.key(b"h"), worker.key(b"s"));
    let value = vec![b'v'; LONG as usize];
    let new = stillframe_store::NewValue::Bytes { bytes: &value, raw: true };
    worker.set(DB, &source, new, Deadline::Clear).unwrap();
    assert!(worker.string_at(DB, &source).begin_sending(|_| u64::MAX - 1..u64::MAX).unwrap().is_none());
    let sending = worker.string_at(DB, &source).begin_sending(|len| 0..len).unwrap().expect("it is long");
    assert_eq!(sending.with_parts(u64::MAX, 10, |parts| parts.len()).unwrap(), 0);
    assert_eq!(sending.with_copies(u64::MAX, 10, |_| ()).unwrap(), 0);
    assert!(sending.ahead(u64::MAX).is_none());
    for field in [&b"a"[..], b"b"] {
        let pair = [(Bytes::Here(field), Bytes::Stored(&sending))];
        worker.hash_at(DB, &hash).set(&pair, FieldMode::All, Deadline::Clear).unwrap();
    }
    worker.set_at(DB, &set).add(&[Bytes::Stored(&sending)]).unwrap();
    drop(sending);
    worker.remove(DB, &source).unwrap();
    worker.hash_at(DB, &hash).remove(&[&b"a"[..]]).unwrap();
    check(&store, &mut worker);
    let mut found = false;
    worker
        .hash_at(DB, &hash)
        .get([&b"b"[..]].into_iter(), |_, held| found = held == Some(&value[..]))
        .unwrap();
    assert!(found);
}
