//! Sorted sets.

use std::collections::BTreeMap;

use stillframe_store::{
    CollectionView, DbId, Element, LexBound, Options, OwnedRange, RangeLimit, ScoreBound, ScoreRule,
    ScoredRange, Store, Value, Worker,
};
use stillframe_testkit::{seed, TempDir};

use crate::model::sorted_set::{compare, names, range, sorted, step, wanted, Model};
use crate::{check, open};

const DB: DbId = DbId(0);

fn compare_all(store: &Store, worker: &mut Worker, model: &Model, random: &mut fastrand::Rng) {
    for name in names() {
        compare(store, worker, model, &name, random).expect("a whole store");
    }
}

fn check_view(store: &Store, worker: &mut Worker, model: &Model) {
    let view = worker.idle(|| store.view()).expect("a view");
    let mut seen = Model::new();
    view.for_each(|entry| {
        let Value::Collection(collection) = entry.value else { panic!("a sorted set") };
        let mut all = Vec::new();
        collection.for_each(&mut |element| {
            let Element::Scored { member, score } = element else { panic!("{element:?}") };
            all.push((member.to_vec(), score));
            Ok(())
        })?;
        assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        let set: BTreeMap<_, _> = all.iter().cloned().collect();
        assert_eq!(collection.element_count()?, set.len() as u64);
        let scores = ScoredRange::Scores { min: ScoreBound::Included(0.0), max: ScoreBound::Excluded(5e4) };
        for (range, is_downwards) in [(scores, false), (scores, true), (ScoredRange::ALL, true)] {
            let found = viewed(&collection, &range, is_downwards, RangeLimit::NONE);
            assert_eq!(found, expected(&all, &range, is_downwards, RangeLimit::NONE));
        }
        seen.insert(entry.key.to_vec(), set);
        Ok::<(), stillframe_store::SaveError>(())
    })
    .expect("whole");
    let expected: Model = model.clone().into_iter().filter(|(_, set)| !set.is_empty()).collect();
    assert_eq!(seen, expected);
}

fn sequence(options: &Options) {
    let mut random = fastrand::Rng::with_seed(seed());
    let (dir, mut model) = (TempDir::new("sorted-sets"), Model::new());
    for _ in 0..4 {
        let store = open(&dir, options.clone());
        let mut worker = store.nonblocking_worker().unwrap();
        for _ in 0..400 {
            step(&store, &mut worker, &mut model, &mut random).expect("a whole store");
            worker.idle(|| ());
        }
        compare_all(&store, &mut worker, &model, &mut random);
        check(&store, &mut worker);
        check_view(&store, &mut worker, &model);
        worker.idle(|| store.checkpoint()).expect("a save");
    }
}

#[test]
fn sorted_sets_are_maps_and_orders() {
    sequence(&Options { huge_pages: false, ..Options::default() });
}

#[test]
fn sorted_sets_of_members_that_share_hashes() {
    sequence(&Options { huge_pages: false, hash_bits: 8, ..Options::default() });
}

#[test]
fn sorted_sets_larger_than_memory() {
    sequence(&Options { huge_pages: false, tiered_bytes: 12 << 20, ..Options::default() });
}

#[test]
fn names_are_compared_where_scores_are_alike() {
    let (dir, member) = (TempDir::new("sorted-by-name"), |number: u32| format!("{number:05}").into_bytes());
    let store = open(&dir, Options { huge_pages: false, ..Options::default() });
    let mut worker = store.nonblocking_worker().unwrap();
    for count in [100, 4_000] {
        let key = worker.key(b"names");
        let mut members: Vec<_> = (0..count).map(|number| (member(number), 1.5)).collect();
        worker.sorted_set_at(DB, &key).replace(&mut members).unwrap();
        let (low, high) = (member(7), member(80));
        let between = ScoredRange::Lex { min: LexBound::Excluded(&low), max: LexBound::Included(&high) };
        let found = range(&store, &mut worker, b"names", &between, true, RangeLimit::NONE).unwrap();
        let expected: Vec<_> = (8..=80).rev().map(|number| (member(number), 1.5)).collect();
        assert_eq!(found, expected);
        let all = ScoredRange::Lex { min: LexBound::Min, max: LexBound::Max };
        assert_eq!(worker.sorted_set_at(DB, &key).count(&all).unwrap(), Some(u64::from(count)));
        let none = ScoredRange::Lex { min: LexBound::Included(&high), max: LexBound::Included(&low) };
        assert_eq!(worker.sorted_set_at(DB, &key).count(&none).unwrap(), Some(0));
    }
}

/// What a view gives of a range.
fn viewed(
    collection: &CollectionView<'_>,
    range: &ScoredRange<'_>,
    is_downwards: bool,
    limit: RangeLimit,
) -> Vec<(Vec<u8>, f64)> {
    let ranks = collection.scored_ranks(range, is_downwards, limit).expect("readable");
    let (mut found, count) = (Vec::new(), ranks.end - ranks.start);
    let mut take = |element: Element<'_>| {
        let Element::Scored { member, score } = element else { panic!("{element:?}") };
        found.push((member.to_vec(), score));
        Ok(())
    };
    collection.for_each_scored(ranks, is_downwards, &mut take).expect("whole");
    assert_eq!(found.len() as u64, count, "{range:?}");
    found
}

/// What a range has; one by name of members that all have one score.
fn expected(
    all: &[(Vec<u8>, f64)],
    range: &ScoredRange<'_>,
    is_downwards: bool,
    limit: RangeLimit,
) -> Vec<(Vec<u8>, f64)> {
    let is_inside = |(member, score): &(Vec<u8>, f64)| match *range {
        ScoredRange::Ranks { .. } => true,
        ScoredRange::Scores { min, max } => {
            let is_above = match min {
                ScoreBound::Included(min) => *score >= min,
                ScoreBound::Excluded(min) => *score > min,
            };
            is_above
                && match max {
                    ScoreBound::Included(max) => *score <= max,
                    ScoreBound::Excluded(max) => *score < max,
                }
        }
        ScoredRange::Lex { min, max } => {
            let is_above = match min {
                LexBound::Min => true,
                LexBound::Max => false,
                LexBound::Included(min) => &member[..] >= min,
                LexBound::Excluded(min) => &member[..] > min,
            };
            is_above
                && match max {
                    LexBound::Min => false,
                    LexBound::Max => true,
                    LexBound::Included(max) => &member[..] <= max,
                    LexBound::Excluded(max) => &member[..] < max,
                }
        }
    };
    let mut inside: Vec<_> = all.iter().filter(|scored| is_inside(scored)).cloned().collect();
    if is_downwards {
        inside.reverse();
    }
    if let ScoredRange::Ranks { .. } = range {
        inside = wanted(&inside, range);
    }
    inside.into_iter().skip(limit.skipped as usize).take(limit.most as usize).collect()
}

fn random_range<'a>(
    random: &mut fastrand::Rng,
    all: &'a [(Vec<u8>, f64)],
    has_one_score: bool,
) -> ScoredRange<'a> {
    let count = all.len() as i64;
    let [a, b] = [(); 2].map(|()| &all[random.usize(..all.len())]);
    let is_in = [random.bool(), random.bool()];
    let score = |is_in, score| if is_in { ScoreBound::Included(score) } else { ScoreBound::Excluded(score) };
    match random.u32(..2) {
        0 => ScoredRange::Ranks {
            first: random.i64(-count - 9..count + 9),
            last: random.i64(-count - 9..count + 9),
        },
        _ if has_one_score => {
            let mut bound = |is_in, name: &'a [u8]| match (random.u32(..8), is_in) {
                (0, false) => LexBound::Min,
                (0, true) => LexBound::Max,
                (_, false) => LexBound::Excluded(name),
                (_, true) => LexBound::Included(name),
            };
            ScoredRange::Lex { min: bound(is_in[0], &a.0), max: bound(is_in[1], &b.0) }
        }
        _ => ScoredRange::Scores { min: score(is_in[0], a.1), max: score(is_in[1], b.1) },
    }
}

/// Small sets and sets whose trees have inner nodes of two levels; with few scores, and with one. What is removed after the
/// view is there in it.
#[test]
fn a_view_gives_any_range_both_ways() {
    let mut random = fastrand::Rng::with_seed(seed());
    let dir = TempDir::new("viewed-ranges");
    let store = open(&dir, Options { huge_pages: false, ..Options::default() });
    let mut worker = store.nonblocking_worker().unwrap();
    for (count, score_count) in [(30_000, 200), (30_000, 1), (90, 7), (90, 1)] {
        let name = |number: u32| match number % 1_000 {
            // Long ones begin differently, as those that begin alike have another order.
            7 => format!("{number:06}:{}", "l".repeat(700)).into_bytes(),
            _ => format!("{number:06}:{}", "m".repeat(50)).into_bytes(),
        };
        let key = worker.key(b"viewed");
        let mut numbers: Vec<u32> = (0..count).collect();
        random.shuffle(&mut numbers);
        let mut model = BTreeMap::new();
        for part in numbers.chunks(100) {
            let scored: Vec<_> =
                part.iter().map(|number| (f64::from(random.i32(0..score_count)), name(*number))).collect();
            let given: Vec<(f64, &[u8])> =
                scored.iter().map(|(score, member)| (*score, &member[..])).collect();
            worker.sorted_set_at(DB, &key).put(&given, &ScoreRule::default()).unwrap();
            model.extend(scored.into_iter().map(|(score, member)| (member, score)));
        }
        // Leaves of any fill.
        let some = ScoredRange::Ranks { first: i64::from(count) / 3, last: i64::from(count) / 2 };
        let remove = |member: &[u8], _| assert!(model.remove(member).is_some());
        worker.sorted_set_at(DB, &key).remove_range(&some, false, RangeLimit::NONE, remove).unwrap();
        let all = sorted(&model);
        let view = worker.idle(|| store.view()).expect("a view");
        assert!(worker.remove(DB, &key).unwrap());
        let look = |entry: Option<stillframe_store::ViewEntry<'_>>| {
            let Some(Value::Collection(collection)) = entry.map(|entry| entry.value) else { panic!("a set") };
            for is_downwards in [false, true] {
                let whole = viewed(&collection, &ScoredRange::ALL, is_downwards, RangeLimit::NONE);
                assert!(whole == expected(&all, &ScoredRange::ALL, is_downwards, RangeLimit::NONE));
            }
            for _ in 0..120 {
                let (range, is_downwards) =
                    (random_range(&mut random, &all, score_count == 1), random.bool());
                let limit = match random.bool() {
                    true => RangeLimit::NONE,
                    false => RangeLimit { skipped: random.u64(..2_000), most: random.u64(..9_000) },
                };
                let owned = OwnedRange::from(&range);
                assert_eq!(owned.as_range(), range);
                let found = viewed(&collection, &range, is_downwards, limit);
                assert!(
                    found == expected(&all, &range, is_downwards, limit),
                    "{range:?}, downwards {is_downwards}, {limit:?}: {} members",
                    found.len()
                );
            }
            let ranks = all.len() as u64 - 5..all.len() as u64 + 5;
            assert!(
                collection.for_each_scored(ranks, true, &mut |_| Ok(())).is_err(),
                "there are not so many"
            );
        };
        store.with_viewed(&view, DB, b"viewed", look).expect("readable");
    }
}
