use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use super::leaf::*;
use super::record::*;
use super::shape::SLOT_BYTES;
use super::spread::{exact_cut, fill_exact, Plan};
use crate::page::*;

type Entry = (Vec<u8>, Option<i64>);

fn hash_key(key: &[u8]) -> u64 {
    key.iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn record<'a>(key: &'a [u8], entry: &'a Entry) -> Record<'a> {
    Record { key: RecordKey::Inline(key), value: RecordValue::Bytes(&entry.0), raw: false, deadline: entry.1 }
}

fn hash_of(record: &Record<'_>) -> u64 {
    match record.key {
        RecordKey::Inline(key) => hash_key(key),
        RecordKey::Out { hash, .. } | RecordKey::Hash(hash) => hash,
    }
}

/// A leaf of a narrow range, so that fingerprints of several shifts occur.
fn narrow(random: &mut fastrand::Rng, hash_bits: u32) -> (u64, u64) {
    let width = random.u64(..) >> random.u32(0..hash_bits);
    let lo = random.u64(..).min(u64::MAX - width);
    (lo, lo + width)
}

fn check(page: &Page, model: &BTreeMap<(u64, Vec<u8>), Entry>) {
    let leaf = Leaf::new(page).expect("a sane header");
    assert_eq!(leaf.count(), model.len());
    let live: usize = model.iter().map(|((_, k), e)| record(k, e).encoded_bytes() + SLOT_BYTES).sum();
    assert_eq!(leaf.live_bytes(), live);
    assert_eq!(leaf.deadline_count(), model.values().filter(|e| e.1.is_some()).count());
    assert_eq!(leaf.earliest_deadline(), model.values().filter_map(|e| e.1).min());
    for ((hash, key), entry) in model {
        assert!(leaf.covers(leaf.tag(), *hash));
        let index = leaf.find(*hash, key).expect("present");
        assert_eq!(leaf.record(index), Some(record(key, entry)));
        assert!(leaf.least_hash(index) <= *hash && *hash - leaf.least_hash(index) < 1 << leaf.fp_shift());
        assert!(leaf.first_at_or_above(*hash) <= index);
        assert_eq!(leaf.find(*hash, b"no such key"), None);
    }
    for i in 1..leaf.count() {
        assert!(leaf.least_hash(i - 1) <= leaf.least_hash(i));
    }
}

fn random_entry(random: &mut fastrand::Rng, value_max: usize) -> Entry {
    let value = (0..random.usize(..=value_max)).map(|_| random.u8(..)).collect();
    (value, random.bool().then(|| random.i64(0..1000)))
}

/// Random inserts, replacements and removals in one leaf against a map.
fn leaf_against_model(random: &mut fastrand::Rng, value_max: usize) {
    let (lo, hi) = narrow(random, 60);
    let mut page = [0xcc; PAGE_SIZE];
    let mut model: BTreeMap<(u64, Vec<u8>), Entry> = BTreeMap::new();
    LeafMut::init(&mut page, 3, lo, hi, finest_shift(lo, hi));
    for _ in 0..random.usize(1..600) {
        let mut leaf = LeafMut::new(&mut page).unwrap();
        let existing = (!model.is_empty() && random.u8(..) < 128)
            .then(|| model.keys().nth(random.usize(..model.len())).cloned().unwrap());
        let entry = random_entry(random, value_max);
        match existing {
            Some((hash, key)) if random.u8(..) < 80 => {
                leaf.remove(leaf.leaf().find(hash, &key).unwrap());
                model.remove(&(hash, key));
            }
            Some((hash, key)) => {
                let index = leaf.leaf().find(hash, &key).unwrap();
                let old = record(&key, &model[&(hash, key.clone())]).encoded_bytes();
                let new = record(&key, &entry).encoded_bytes();
                let fits = leaf.leaf().free_bytes() + old >= new;
                assert_eq!(leaf.replace(index, &record(&key, &entry)), fits);
                if fits {
                    model.insert((hash, key), entry);
                }
            }
            None => {
                let key = random.u64(..).to_string().into_bytes();
                let hash = lo + hash_key(&key) % (hi - lo).max(1);
                let fits = leaf.leaf().free_bytes() >= record(&key, &entry).encoded_bytes() + SLOT_BYTES;
                assert_eq!(leaf.insert(hash, &record(&key, &entry)), fits);
                if fits {
                    model.insert((hash, key), entry);
                }
            }
        }
    }
    check(&page, &model);
}

#[test]
fn a_leaf_behaves_like_a_map() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for value_max in [0, 3, 20, 100, VALUE_INLINE_MAX_BYTES] {
        for _ in 0..60 {
            leaf_against_model(&mut random, value_max);
        }
    }
}

#[test]
fn a_leaf_of_hundred_byte_values_holds_thirty_three() {
    let mut page = [0; PAGE_SIZE];
    let mut leaf = LeafMut::init(&mut page, 1, 0, u64::MAX, 48);
    let value = (vec![7; 100], None);
    let fitted = (0..100u64)
        .take_while(|i| {
            let key = format!("key:{i:012}").into_bytes();
            leaf.insert(hash_key(&key), &record(&key, &value))
        })
        .count();
    assert_eq!(fitted, 33);
}

#[test]
fn a_smaller_value_stays_in_its_place() {
    let mut page = [0; PAGE_SIZE];
    let mut leaf = LeafMut::init(&mut page, 1, 0, u64::MAX, 48);
    assert!(leaf.insert(9, &record(b"k", &(vec![1; 50], None))));
    let offset = leaf.leaf().record_offset(0);
    assert!(leaf.replace(0, &record(b"k", &(vec![2; 20], None))));
    assert_eq!((leaf.leaf().record_offset(0), leaf.leaf().dead_bytes()), (offset, 30));
    leaf.value_mut(0)[19] = 9;
    assert!(matches!(leaf.leaf().record(0).unwrap().value, RecordValue::Bytes(v) if v[18..] == [2, 9]));
}

#[test]
fn shifts_keep_fingerprints_apart() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for _ in 0..10_000 {
        let (lo, hi) = narrow(&mut random, 64);
        let shift = finest_shift(lo, hi);
        assert!((hi >> shift) - (lo >> shift) <= 0xffff);
        assert!(shift == 0 || (hi >> (shift - 1)) - (lo >> (shift - 1)) > 0xffff);
        assert!(shift_is_good(lo, hi, shift) || hi - lo < 0xfff);
    }
    assert_eq!((finest_shift(0, u64::MAX), finest_shift(5, 5)), (48, 0));
}

/// Neighbouring leaves with random keys, and what is in each.
struct Group {
    pages: Vec<Page>,
    models: Vec<BTreeMap<(u64, Vec<u8>), Entry>>,
}

fn random_group(random: &mut fastrand::Rng, value_max: usize) -> Group {
    let count = random.usize(1..=4);
    let (lo, hi) = (random.u64(..1 << 62), random.u64(1 << 63..));
    let mut cuts: Vec<u64> = (1..count as u64).map(|i| lo + (hi - lo) / count as u64 * i).collect();
    cuts.insert(0, lo);
    let mut group = Group { pages: vec![[0; PAGE_SIZE]; count], models: vec![BTreeMap::new(); count] };
    for (i, page) in group.pages.iter_mut().enumerate() {
        let (lo, hi) = (cuts[i], cuts.get(i + 1).map_or(hi, |next| next - 1));
        let shift = (finest_shift(lo, hi) + random.u8(0..3)).min(51);
        let mut leaf = LeafMut::init(page, 5, lo, hi, shift);
        loop {
            let key = random.u64(..).to_string().into_bytes();
            let hash = hash_key(&key);
            let entry = random_entry(random, value_max);
            if !(lo..=hi).contains(&hash) {
                continue;
            }
            if !leaf.insert(hash, &record(&key, &entry)) || random.usize(..80) == 0 {
                break;
            }
            group.models[i].insert((hash, key), entry);
        }
        // The insert before the break may have succeeded.
        let stray = (0..leaf.leaf().count()).find(|s| match leaf.leaf().record(*s).unwrap().key {
            RecordKey::Inline(k) => !group.models[i].contains_key(&(hash_key(k), k.to_vec())),
            RecordKey::Out { .. } | RecordKey::Hash(_) => false,
        });
        if let Some(stray) = stray {
            leaf.remove(stray);
        }
    }
    group
}

#[test]
fn spreading_loses_nothing_and_keeps_the_order() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let mut planned = 0;
    for round in 0..400 {
        let group = random_group(&mut random, [3, 30, 100, 440][round % 4]);
        for (page, model) in group.pages.iter().zip(&group.models) {
            check(page, model);
        }
        let sources: Vec<Leaf<'_>> = group.pages.iter().map(|p| Leaf::new(p).unwrap()).collect();
        let target_count = random.usize(1..=4);
        let Some(plan) = Plan::even(&sources, target_count) else { continue };
        planned += 1;
        let all: BTreeMap<_, _> =
            group.models.iter().flatten().map(|(k, e)| (k.clone(), e.clone())).collect();
        let mut seen = 0;
        for target in 0..target_count {
            let mut page = [0xdd; PAGE_SIZE];
            plan.fill(target, &mut page, &sources, &hash_of);
            let leaf = Leaf::new(&page).unwrap();
            assert_eq!((leaf.lo(), leaf.hi(), leaf.tag()), (plan.lo(target), plan.hi(target), 5));
            assert_eq!(plan.free_bytes_for(plan.lo(target)), leaf.free_bytes());
            let part: BTreeMap<_, _> = all
                .iter()
                .filter(|((h, _), _)| (leaf.lo()..=leaf.hi()).contains(h))
                .map(|(k, e)| (k.clone(), e.clone()))
                .collect();
            seen += part.len();
            check(&page, &part);
        }
        assert_eq!(seen, all.len());
    }
    assert!(planned > 100, "only {planned} plans");
}

#[test]
fn keys_that_look_alike_are_cut_by_their_exact_hash() {
    let random_state = RandomState::new();
    let mut page = [0; PAGE_SIZE];
    let mut leaf = LeafMut::init(&mut page, 5, 0, u64::MAX, 48);
    let value = (vec![1; 90], None);
    let hash = |key: &[u8]| 0x1234_0000_0000_0000 | (random_state.hash_one(key) % 5);
    let keys: Vec<Vec<u8>> = (0..30u8).map(|i| vec![i; 8]).collect();
    for key in &keys {
        assert!(leaf.insert(hash(key), &record(key, &value)));
    }
    let hash_of = |record: &Record<'_>| match record.key {
        RecordKey::Inline(key) => hash(key),
        RecordKey::Out { hash, .. } | RecordKey::Hash(hash) => hash,
    };
    assert!(Plan::even(&[Leaf::new(&page).unwrap()], 2).is_none(), "all fingerprints are equal");
    let source = Leaf::new(&page).unwrap();
    let cut = exact_cut(source, hash(&keys[0]), &hash_of).unwrap();
    let (mut left, mut right) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
    assert!(fill_exact(&mut left, source, 0, cut - 1, &hash_of));
    assert!(fill_exact(&mut right, source, cut, u64::MAX, &hash_of));
    for key in &keys {
        let page = if hash(key) < cut { &left } else { &right };
        assert!(Leaf::new(page).unwrap().find(hash(key), key).is_some());
    }
    let all_equal = |_: &Record<'_>| 7;
    assert_eq!(exact_cut(source, 7, &all_equal), None);
    assert_eq!(exact_cut(source, 8, &all_equal), Some(8));
    assert_eq!(exact_cut(source, 6, &all_equal), Some(7));
}

#[test]
fn damaged_leaves_are_refused_or_read_without_panic() {
    // Seed 40 once met a record over its leaf's header.
    damaged_leaves(40);
    damaged_leaves(stillframe_testkit::seed());
}

fn damaged_leaves(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..3000 {
        let mut page = [0; PAGE_SIZE];
        page.fill_with(|| random.u8(..));
        page[0] = KIND_LEAF;
        page[2..4].copy_from_slice(&random.u16(..1200).to_le_bytes());
        page[4..6].copy_from_slice(&random.u16(..5000).to_le_bytes());
        page[6..8].copy_from_slice(&random.u16(..2000).to_le_bytes());
        let Some(leaf) = Leaf::new(&page) else { continue };
        let hash = random.u64(..);
        let _ = (leaf.find(hash, b"key"), leaf.live_bytes(), leaf.free_bytes(), leaf.first_at_or_above(hash));
        for i in 0..leaf.count() {
            let _ = (leaf.record(i), leaf.record_bytes(i));
        }
        if let Some(plan) = Plan::even(&[leaf], 2) {
            let mut target = [0; PAGE_SIZE];
            (0..2).for_each(|i| plan.fill(i, &mut target, &[leaf], &hash_of));
        }
        let _ = exact_cut(leaf, hash, &hash_of);
        let _ = fill_exact(&mut [0; PAGE_SIZE], leaf, leaf.lo(), leaf.hi(), &hash_of);
        for _ in 0..20 {
            let entry = random_entry(&mut random, VALUE_INLINE_MAX_BYTES);
            let key = random.u64(..).to_string().into_bytes();
            let Some(mut leaf) = LeafMut::new(&mut page) else { break };
            let (count, record) = (leaf.leaf().count(), record(&key, &entry));
            match random.u32(..4) {
                0 => drop(leaf.insert(random.u64(..), &record)),
                1 if count > 0 => leaf.remove(random.usize(..count)),
                2 if count > 0 => drop(leaf.replace(random.usize(..count), &record)),
                3 if count > 0 => leaf.value_mut(random.usize(..count)).fill(1),
                _ => {}
            }
        }
    }
}
