//! Sorted sets.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stillframe_store::{DbId, OpError, RangeLimit, ScoreBound, ScoreRule, ScoredRange, Store, Worker};

use super::{tried, Tried};

pub type Model = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, f64>>;

const DB: DbId = DbId(0);

pub fn names() -> impl Iterator<Item = Vec<u8>> {
    (0..6).map(|number| format!("zset:{number}").into_bytes())
}

fn member(random: &mut fastrand::Rng) -> Vec<u8> {
    let name = format!("member:{}", random.u32(..3_000)).into_bytes();
    match random.u32(..60) {
        // Long ones that begin alike would be in another order.
        0 => {
            let len = random.usize(..2_000);
            [format!("{len}:").as_bytes(), &name, &vec![b'l'; len]].concat()
        }
        _ => name,
    }
}

fn score(random: &mut fastrand::Rng) -> f64 {
    match random.u32(..4) {
        0 => f64::from(random.i32(-5..5)),
        1 => [0.5, f64::INFINITY, f64::NEG_INFINITY, 1e300][random.usize(..4)],
        _ => random.f64() * 1e5,
    }
}

pub fn sorted(set: &BTreeMap<Vec<u8>, f64>) -> Vec<(Vec<u8>, f64)> {
    let mut all: Vec<_> = set.iter().map(|(member, score)| (member.clone(), *score)).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    all
}

fn put(
    store: &Store,
    worker: &mut Worker,
    model: &mut Model,
    name: &[u8],
    random: &mut fastrand::Rng,
) -> Tried {
    let key = worker.key(name);
    let scored: Vec<_> = (0..random.usize(1..30)).map(|_| (score(random), member(random))).collect();
    let given: Vec<(f64, &[u8])> = scored.iter().map(|(score, member)| (*score, &member[..])).collect();
    let rule = match random.u32(..5) {
        0 => ScoreRule { only_new: true, ..ScoreRule::default() },
        1 => ScoreRule { only_present: true, only_greater: true, ..ScoreRule::default() },
        2 => ScoreRule { only_less: true, ..ScoreRule::default() },
        _ => ScoreRule::default(),
    };
    let changes = tried(store, worker, |worker| worker.sorted_set_at(DB, &key).put(&given, &rule))?;
    let set = model.entry(name.to_vec()).or_default();
    let (mut added, mut updated) = (0, 0);
    for (score, member) in scored {
        let old = set.get(&member).copied();
        let is_wanted = match old {
            None => !rule.only_present,
            Some(old) => {
                !rule.only_new && (!rule.only_greater || score > old) && (!rule.only_less || score < old)
            }
        };
        if is_wanted {
            added += u64::from(old.is_none());
            updated += u64::from(old.is_some_and(|old| old != score));
            set.insert(member, score);
        }
    }
    assert_eq!((changes.added, changes.updated), (added, updated));
    Ok(())
}

/// Applies a random change to the store and to the model. An error has changed neither.
pub fn step(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) -> Tried {
    let name = format!("zset:{}", random.u32(..6)).into_bytes();
    let key = worker.key(&name);
    match random.u32(..100) {
        0..70 => put(store, worker, model, &name, random)?,
        70..92 => {
            let members: Vec<_> = if random.u32(..30) == 0 {
                // All but a few, so that a large one becomes small again.
                let all = model.get(&name).into_iter().flat_map(BTreeMap::keys);
                all.skip(random.usize(..30)).cloned().collect()
            } else {
                (0..random.usize(1..60)).map(|_| member(random)).collect()
            };
            let given: Vec<&[u8]> = members.iter().map(|member| &member[..]).collect();
            let removed = tried(store, worker, |worker| worker.sorted_set_at(DB, &key).remove(&given))?;
            let set = model.entry(name).or_default();
            assert_eq!(removed, members.iter().filter(|member| set.remove(*member).is_some()).count() as u64);
        }
        92..97 => {
            let (first, is_downwards) = (random.i64(-100..100), random.bool());
            let range = ScoredRange::Ranks { first, last: first.saturating_add(random.i64(..60)) };
            let mut removed = Vec::new();
            tried(store, worker, |worker| {
                removed.clear();
                worker.sorted_set_at(DB, &key).remove_range(&range, is_downwards, RangeLimit::NONE, |m, s| {
                    removed.push((m.to_vec(), s));
                })
            })?;
            let set = model.entry(name).or_default();
            let mut all = sorted(set);
            if is_downwards {
                all.reverse();
            }
            assert_eq!(removed, wanted(&all, &range));
            for (member, _) in &removed {
                set.remove(member);
            }
        }
        97 => {
            let target = format!("zset:{}", random.u32(..6)).into_bytes();
            let to = worker.key(&target);
            if target != name {
                tried(store, worker, |worker| worker.copy((DB, &key), (DB, &to)))?;
                if let Some(set) = model.get(&name).filter(|set| !set.is_empty()).cloned() {
                    model.insert(target, set);
                }
            }
        }
        98 => {
            tried(store, worker, |worker| worker.remove(DB, &key))?;
            model.remove(&name);
        }
        _ => {
            let count = [1, 20, 900][random.usize(..3)];
            let set: BTreeMap<_, _> = (0..count).map(|_| (member(random), score(random))).collect();
            let mut members: Vec<_> = set.clone().into_iter().collect();
            tried(store, worker, |worker| worker.sorted_set_at(DB, &key).replace(&mut members))?;
            model.insert(name, set);
        }
    }
    Ok(())
}

/// What a range of places has.
pub fn wanted(all: &[(Vec<u8>, f64)], range: &ScoredRange<'_>) -> Vec<(Vec<u8>, f64)> {
    let ScoredRange::Ranks { first, last } = *range else { panic!("places") };
    let count = all.len() as i64;
    let place = |place: i64| if place < 0 { place + count } else { place };
    let is_wanted = |at: &usize| (place(first)..=place(last)).contains(&(*at as i64));
    (0..all.len()).filter(is_wanted).map(|at| all[at].clone()).collect()
}

pub fn range(
    store: &Store,
    worker: &mut Worker,
    name: &[u8],
    range: &ScoredRange<'_>,
    is_downwards: bool,
    limit: RangeLimit,
) -> Result<Vec<(Vec<u8>, f64)>, OpError> {
    let key = worker.key(name);
    tried(store, worker, |worker| {
        let (mut found, mut announced) = (Vec::new(), 0);
        let take = |member: &[u8], score: f64| {
            found.push((member.to_vec(), score));
            ControlFlow::Continue(())
        };
        worker.sorted_set_at(DB, &key).range(range, is_downwards, limit, |count| announced = count, take)?;
        assert_eq!(announced, found.len() as u64);
        Ok(found)
    })
}

/// Compares one sorted set in every way in which it is read.
pub fn compare(
    store: &Store,
    worker: &mut Worker,
    model: &Model,
    name: &[u8],
    random: &mut fastrand::Rng,
) -> Tried {
    let (key, set) = (worker.key(name), model.get(name).cloned().unwrap_or_default());
    let mut all = sorted(&set);
    assert_eq!(range(store, worker, name, &ScoredRange::ALL, false, RangeLimit::NONE)?, all);
    assert_eq!(tried(store, worker, |worker| worker.sorted_set_at(DB, &key).len())?, all.len() as u64);
    for _ in 0..20 {
        let (a, b) = (score(random), score(random));
        let scores = ScoredRange::Scores { min: ScoreBound::Excluded(a), max: ScoreBound::Included(b) };
        let limit = RangeLimit { skipped: random.u64(..4), most: random.u64(..900) };
        let inside = all.iter().filter(|(_, score)| *score > a && *score <= b).cloned();
        let inside: Vec<_> = inside.collect();
        let part = |list: Vec<(Vec<u8>, f64)>| {
            list.into_iter().skip(limit.skipped as usize).take(limit.most as usize).collect::<Vec<_>>()
        };
        assert_eq!(range(store, worker, name, &scores, false, limit)?, part(inside.clone()));
        let down = inside.into_iter().rev().collect();
        assert_eq!(range(store, worker, name, &scores, true, limit)?, part(down));
        let member = member(random);
        let (_, found) = tried(store, worker, |worker| worker.sorted_set_at(DB, &key).rank(&member, true))?;
        let place = all.iter().rev().position(|(other, _)| *other == member);
        assert_eq!(
            found.map(|found| (found.rank, found.score)),
            place.map(|place| (place as u64, set[&member]))
        );
    }
    let mut scanned = Vec::new();
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        let before = scanned.len();
        let next = tried(store, worker, |worker| {
            scanned.truncate(before);
            worker.sorted_set_at(DB, &key).scan(from, 50, |member, score| {
                scanned.push((member.to_vec(), score));
            })
        })?;
        cursor = next.filter(|next| *next != 0);
    }
    scanned.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    all.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    assert_eq!(scanned, all, "each once");
    Ok(())
}
