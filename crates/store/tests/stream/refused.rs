//! Units that are not run: what the error says, and that nothing has been changed.

use stillframe_store::replay::{Applier, ApplyError};
use stillframe_store::stream::{unit_len, Malformed};
use stillframe_store::Store;
use stillframe_testkit::TempDir;

use crate::bytes::unit;
use crate::content::content_of;
use crate::open;

fn with_store(f: impl FnOnce(&Store, &mut Applier)) {
    let dir = TempDir::new("stream-refused");
    let store = open(&dir);
    let mut applier = Applier::new(&store);
    f(&store, &mut applier);
}

/// A unit ends where it ends, and no part of one is run.
#[test]
fn a_part_of_a_unit_is_not_run() {
    with_store(|store, applier| {
        let text = "SELECT 1 | MULTI | SET a 1 | SELECT 2 | RPUSH b x y | EXEC";
        let whole = unit(text);
        for end in 0..whole.len() {
            assert_eq!(unit_len(&whole[..end]), Ok(None), "{end}");
            let error = applier.apply(&whole[..end]).unwrap_err();
            assert!(matches!(error, ApplyError::Malformed(Malformed::Unfinished { .. })), "{end}: {error}");
        }
        assert!(content_of(store).is_empty());
        let two = [&whole[..], &whole].concat();
        assert_eq!(unit_len(&two), Ok(Some(whole.len())));
        let error = applier.apply(&two).unwrap_err();
        assert!(matches!(error, ApplyError::Malformed(Malformed::Bytes { .. })), "{error}");
        applier.apply(&whole).unwrap();
        assert_eq!(content_of(store).len(), 2);
        assert_eq!(unit_len(&unit("SELECT 1 | DEL a | DEL b")), Ok(Some(unit("SELECT 1 | DEL a").len())));
    });
}

#[test]
fn a_unit_with_a_word_that_is_not_known_is_not_run() {
    with_store(|store, applier| {
        let refused = [
            ("SELECT 0 | MULTI | SET a 1 | EVAL x 0 | EXEC", "of the unit: EVAL is no command of a stream"),
            (
                "SELECT 0 | MULTI | SET a 1 | SET a 1 EX 3 | EXEC",
                "SET has other words than it has in a stream",
            ),
            ("SELECT 0 | SETRANGE a -1 x", "SETRANGE has a word that is no number of its kind"),
            ("SELECT 0 | ZADD a nan x", "ZADD has a word that is no number of its kind"),
            ("SELECT 0 | HSET a b", "HSET has other words"),
            ("SELECT 0 | HPEXPIREAT a 5 FIELDS 2 b", "HPEXPIREAT has other words"),
            ("SELECT x | DEL a", "SELECT has no database"),
            ("SELECT 99 | DEL a", "there is no database 99"),
            ("SELECT 0 | MOVE a 99", "there is no database 99"),
            ("DEL a", "no database has been selected"),
            ("MULTI | MULTI | EXEC", "MULTI is no command of a stream"),
        ];
        for (text, expected) in refused {
            let error = applier.apply(&unit(text)).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = applier.apply(b"SET a 1\r\n").unwrap_err().to_string();
        assert!(error.contains("byte 0 of the unit: a command was expected"), "{error}");
        assert!(content_of(store).is_empty());
        for text in ["PING", "PUBLISH a b", "REPLCONF GETACK *", "SWAPDB 0 1", "SELECT 0 | FLUSHDB"] {
            applier.apply(&unit(text)).unwrap();
        }
    });
}

/// A store that has not what a command changes is another one: nothing more is run on it.
#[test]
fn a_unit_of_another_store_ends_it() {
    let cases = [
        ("RENAME no b", "there is no such key"),
        ("COPY no b DB 1 REPLACE", "there is no such key"),
        ("MOVE no 1", "there is no such key"),
        ("PERSIST no", "there is no such key"),
        ("LPOP no", "there is no such key"),
        ("LSET l 7 x", "the list has no item there"),
        ("LINSERT l BEFORE z x", "the list has no such item"),
        ("LREM l 2 a", "the list has not as many of these items"),
        ("SADD l x", "the key holds a value of another type"),
    ];
    for (text, expected) in cases {
        with_store(|_, applier| {
            applier.apply(&unit("SELECT 0 | RPUSH l a b")).unwrap();
            let error = applier.apply(&unit(text)).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("byte 0 of the unit"), "{text}: {error}");
            let error = applier.apply(&unit("DEL l")).unwrap_err();
            assert!(matches!(error, ApplyError::Ended), "{error}");
        });
    }
}

/// Bytes that are nearly a stream are run or refused, whatever they are.
#[test]
fn bytes_of_any_kind_are_run_or_refused() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let whole = [
        unit("SELECT 1 | MULTI | SET a 1 PXAT 99 | RPUSH b x y | LTRIM b 1 -1 | LSET b 0 z | EXEC"),
        unit("HSET h f 1 g 2"),
        unit("HPEXPIREAT h 77 FIELDS 2 f g"),
        unit("ZADD z 1 a -inf b"),
        unit("COPY z y DB 2 REPLACE"),
        unit("SETRANGE s 12 abc"),
    ]
    .concat();
    with_store(|store, applier| {
        for _ in 0..3_000 {
            let mut bytes = whole.clone();
            for _ in 0..random.usize(1..4) {
                let index = random.usize(..bytes.len());
                match random.u8(..3) {
                    0 => bytes[index] = random.u8(..),
                    1 => drop(bytes.remove(index)),
                    _ => bytes.insert(index, b"0123456789\r\n*$-"[random.usize(..15)]),
                }
            }
            let mut rest = &bytes[..];
            while let Ok(Some(len)) = unit_len(rest) {
                if applier.apply(&rest[..len]).is_err() {
                    *applier = Applier::new(store);
                }
                rest = &rest[len..];
            }
        }
        store.check().unwrap();
    });
}
