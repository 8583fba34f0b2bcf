//! The schedules of `common/scenarios.rs`, without mistakes; and what the operations of a session promise.

mod common;

use common::scenarios;
use stillframe_transactional::{
    Algorithm, Calc, Cpr, RestartCause, RowId, Session, Shape, ShapeError, Store, TxnError, VirtualHourglass,
    VirtualPiggyback, ELDER_AFTER,
};

macro_rules! for_all {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            scenarios::$name::<Calc>(common::sound()).unwrap_or_else(|error| panic!("calc: {error}"));
            scenarios::$name::<Cpr>(common::sound()).unwrap_or_else(|error| panic!("cpr: {error}"));
            scenarios::$name::<VirtualHourglass>(common::sound()).unwrap_or_else(|error| panic!("vhg: {error}"));
            scenarios::$name::<VirtualPiggyback>(common::sound()).unwrap_or_else(|error| panic!("vpb: {error}"));
        }
    )*};
}

for_all!(
    old_overwrites_newer,
    old_reads_newer,
    old_overwrites_what_newer_read,
    overtaken_by_the_cut,
    overtaken_and_given_up,
    committed_just_before_the_cut,
    begun_after_the_cut,
    under_way_since_rest,
    image_waits_for_the_old,
    given_up_just_before_the_cut,
    given_up_at_rest,
    failed_images,
    whole_rows,
    cuts_given_up,
    image_panics,
    numbers_come_round,
);

/// The difference between CPR and the others.
#[test]
fn an_image_of_cpr_is_a_prefix_of_each_session_and_not_of_the_order_of_commits() {
    assert_eq!(scenarios::is_commit_prefix_if_old_commits_last::<Cpr>(), Ok(false));
    assert_eq!(scenarios::is_commit_prefix_if_old_commits_last::<Calc>(), Ok(true));
    assert_eq!(scenarios::is_commit_prefix_if_old_commits_last::<VirtualHourglass>(), Ok(true));
    assert_eq!(scenarios::is_commit_prefix_if_old_commits_last::<VirtualPiggyback>(), Ok(true));
}

fn add<A: Algorithm>(session: &mut Session<'_, A>, rows: &[u32]) {
    let added = session.run(|txn| {
        for row in rows {
            let mut word = [0];
            // Shared first, so that others share the row, too, and both want it for themselves.
            txn.read(RowId(*row), 0, &mut word)?;
            std::thread::yield_now();
            txn.write(RowId(*row), 0, &[word[0] + 1])?;
        }
        Ok::<(), TxnError>(())
    });
    added.expect("no other error");
}

/// Threads take the same rows in different orders, all of them at once. With locks that wait they would never end.
fn all_end<A: Algorithm>(orders: &[&[u32]], txn_count: u64) {
    let store = Store::<A>::new(scenarios::shape());
    let restarts: u64 = std::thread::scope(|scope| {
        let work = |rows: &'_ [u32]| {
            let mut session = store.session();
            (0..txn_count).for_each(|_| add(&mut session, rows));
            let stats = session.stats();
            assert!(stats.lock_restarts_max <= ELDER_AFTER, "{stats:?}");
            assert_eq!(stats.commit_count, txn_count);
            stats.lock_restart_count
        };
        let threads: Vec<_> = orders.iter().map(|rows| scope.spawn(move || work(rows))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
    });
    assert!(restarts > 0, "nobody met anybody");
    let mut session = store.session();
    for row in store.shape().rows() {
        let mut word = [0];
        session.run(|txn| txn.read(row, 0, &mut word)).expect("read");
        let takers = orders.iter().filter(|rows| rows.contains(&row.0)).count() as u64;
        assert_eq!(word[0], takers * txn_count);
    }
    assert_eq!(store.first_locked(), None);
}

#[test]
fn transactions_that_would_deadlock_all_end_after_few_restarts() {
    all_end::<Calc>(&[&[0, 1], &[1, 0], &[0, 1], &[1, 0]], 1000);
    all_end::<VirtualPiggyback>(&[&[0, 1, 2], &[2, 0, 1], &[1, 2, 0]], 1000);
}

#[test]
fn a_transaction_over_all_rows_ends_among_many_short_ones() {
    all_end::<VirtualHourglass>(&[&[0, 1, 2, 3, 4, 5], &[0], &[1], &[3], &[5, 2]], 700);
    all_end::<Cpr>(&[&[5, 4, 3, 2, 1, 0], &[0], &[1], &[3], &[5, 2]], 700);
}

#[test]
fn a_locked_row_restarts_who_comes_second() {
    let store = Store::<Calc>::new(scenarios::shape());
    let (mut one, mut other) = (store.session(), store.session());
    let mut first = one.begin();
    first.read(RowId(0), 0, &mut [0]).unwrap();
    let mut second = other.begin();
    second.read(RowId(0), 0, &mut [0]).expect("a row can be shared");
    let restart = TxnError::Restart(RestartCause::Locked);
    assert_eq!(first.write(RowId(0), 0, &[1]), Err(restart));
    assert_eq!(first.write(RowId(1), 0, &[1]), Err(restart), "it has failed");
    assert_eq!(first.failed(), Some(RestartCause::Locked));
    assert_eq!(first.commit(), Err(restart));
    second.write(RowId(0), 0, &[2]).expect("the only one that is left");
    assert_eq!(second.commit().map(|committed| committed.session_seq.0), Ok(1));
    assert_eq!((one.stats().commit_count, one.stats().lock_restart_count), (0, 1));
    assert_eq!(store.first_locked(), None);
}

#[test]
fn rows_and_words_that_are_not_there_are_refused() {
    let store = Store::<Cpr>::new(scenarios::shape());
    let mut session = store.session();
    let result = session.run(|txn| txn.write(RowId(6), 0, &[1]));
    assert_eq!(result, Err(TxnError::NoSuchRow { row: RowId(6), row_count: 6 }));
    for (first_word, word_count) in [(8, 1), (7, 2), (usize::MAX, 1), (0, 9)] {
        let refused = TxnError::NoSuchWords { first_word, word_count, row_words: 8 };
        let result = session.run(|txn| txn.read(RowId(0), first_word, &mut vec![0; word_count]));
        assert_eq!(result, Err(refused));
    }
    assert_eq!(session.run(|txn| txn.write(RowId(5), 8, &[])).map(|done| done.1.commit_seq), Ok(None));
    for (row_count, row_bytes) in [(0, 64), (1, 56), (1, 1032), (1, 100)] {
        assert_eq!(Shape::new(row_count, row_bytes), Err(ShapeError { row_count, row_bytes }));
    }
}

/// More rows than are looked for one by one.
#[test]
fn a_transaction_with_many_rows_finds_them_again() {
    let store = Store::<VirtualHourglass>::new(Shape::new(1000, 64).expect("a shape"));
    let mut session = store.session();
    let total = session.run(|txn| {
        for round in 0..3 {
            for row in store.shape().rows() {
                let mut word = [0];
                txn.read(row, 1, &mut word)?;
                assert_eq!(word[0], round);
                txn.write(row, 1, &[round + 1])?;
            }
        }
        Ok::<(), TxnError>(())
    });
    total.expect("nobody else is there");
    let mut txn = session.begin();
    store.shape().rows().for_each(|row| txn.write(row, 1, &[77]).expect("free"));
    txn.abort();
    let mut word = [0];
    session.run(|txn| txn.read(RowId(999), 1, &mut word)).expect("read");
    assert_eq!(word, [3]);
}
