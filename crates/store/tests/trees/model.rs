//! Random sequences of single operations on several trees.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_store::{Store, Tree, TreeError};
use stillframe_testkit::seed;

use crate::{
    after_crash, assert_same, content, open, random_key, random_value, wait_until_tidy, wait_until_warm,
    Model,
};

const NAMES: [&str; 3] = ["orders", "o", "\u{0}\u{ff} of any bytes"];

fn check_reads(tree: &Tree, model: &Model, random: &mut fastrand::Rng) {
    let keys: Vec<Vec<u8>> = (0..100).map(|_| random_key(random)).collect();
    let expected: Vec<Option<Vec<u8>>> = keys.iter().map(|key| model.get(key).cloned()).collect();
    assert!(tree.get_many(&keys).unwrap() == expected);
    for (key, expected) in keys.iter().zip(&expected) {
        assert_eq!(tree.contains(key).unwrap(), expected.is_some());
        let length = tree.get_with(key, <[u8]>::len).unwrap();
        assert_eq!(length, expected.as_ref().map(Vec::len));
    }
    let mut ends = [random_key(random), random_key(random)];
    ends.sort();
    let [lo, hi] = &ends;
    let bound = |key: &Vec<u8>, random: &mut fastrand::Rng| match random.u32(..3) {
        0 => Bound::Included(key.clone()),
        1 => Bound::Excluded(key.clone()),
        _ => Bound::Unbounded,
    };
    let mut bounds = (bound(lo, random), bound(hi, random));
    if lo == hi {
        bounds.1 = Bound::Included(hi.clone());
        bounds.0 = Bound::Included(lo.clone());
    }
    check_range(tree, model, &bounds, random);
}

/// A walk that changes its direction at random gives what a map gives.
fn check_range(
    tree: &Tree,
    model: &Model,
    bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>),
    random: &mut fastrand::Rng,
) {
    let as_slices = (bounds.0.as_ref().map(|key| &key[..]), bounds.1.as_ref().map(|key| &key[..]));
    let mut range = tree.range(as_slices);
    let mut expected = model.range::<Vec<u8>, _>(bounds.clone());
    let style = random.u32(..3);
    loop {
        let upwards = match style {
            0 => true,
            1 => false,
            _ => random.bool(),
        };
        let (found, expected) =
            if upwards { (range.next(), expected.next()) } else { (range.next_back(), expected.next_back()) };
        let found = found.map(|record| record.unwrap());
        assert!(found.as_ref().map(|(key, value)| (key, value)) == expected, "{bounds:?}");
        if found.is_none() {
            return;
        }
    }
}

struct Run {
    device: Arc<SimDevice>,
    store: Store,
    models: BTreeMap<String, Model>,
    random: fastrand::Rng,
}

impl Run {
    fn change(&mut self, name: &str, tree: &Tree, removes_percent: u32) {
        let random = &mut self.random;
        let model = self.models.entry(name.into()).or_default();
        let key = random_key(random);
        if random.u32(..100) < removes_percent {
            let key = model.range(key.clone()..).next().map_or(key, |(key, _)| key.clone());
            assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some());
        } else {
            let value = random_value(random);
            assert_eq!(tree.put(&key, &value).unwrap(), model.insert(key, value).is_some());
        }
    }

    fn check(&mut self) {
        let names: Vec<Vec<u8>> = self.models.keys().map(|name| name.clone().into_bytes()).collect();
        assert_eq!(self.store.tree_names().unwrap(), names);
        for (name, model) in &self.models {
            let tree = self.store.tree(name).unwrap();
            assert_same(&content(&tree), model, name);
            assert_eq!(tree.len().unwrap(), model.len() as u64);
            check_reads(&tree, model, &mut self.random);
        }
        wait_until_warm(&self.store);
        wait_until_tidy(&self.store);
        let report = self.store.check().unwrap();
        let records: usize = self.models.values().map(Model::len).sum();
        assert_eq!((report.tree_count, report.tree_record_count), (self.models.len() as u64, records as u64));
    }

    fn restart(&mut self) {
        self.store.checkpoint().unwrap();
        self.device = after_crash(&self.device);
        self.store = open(&self.device);
    }
}

#[test]
fn trees_are_sorted_maps_through_restarts() {
    let device = Arc::new(SimDevice::new(1));
    let store = open(&device);
    let random = fastrand::Rng::with_seed(seed());
    let mut run = Run { device, store, models: BTreeMap::new(), random };
    let empty_pages = run.store.pool().allocated_pages();
    for phase in 0..9 {
        {
            let trees = NAMES.map(|name| (name, run.store.tree(name).unwrap()));
            for name in NAMES {
                run.models.entry(name.to_string()).or_default();
            }
            for _ in 0..6_000 {
                let (name, tree) = run.random.choice(&trees).unwrap();
                run.change(name, tree, [10, 40, 96][phase % 3]);
            }
        }
        run.check();
        if phase % 3 != 1 {
            run.restart();
            run.check();
        }
        if phase % 4 == 3 {
            let name = run.random.choice(NAMES).unwrap();
            assert!(run.store.drop_tree(name).unwrap() && !run.store.drop_tree(name).unwrap());
            run.models.remove(name);
            run.check();
        }
    }
    for name in NAMES {
        run.store.drop_tree(name).unwrap();
    }
    run.models.clear();
    run.check();
    run.restart();
    run.check();
    assert_eq!(run.store.pool().allocated_pages(), empty_pages);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let store = open(&Arc::new(SimDevice::new(1)));
    assert_eq!(store.tree("").unwrap_err(), TreeError::Name);
    assert_eq!(store.tree([7; 256]).unwrap_err(), TreeError::Name);
    assert_eq!(store.tree([7; 255]).unwrap().name(), [7; 255]);
    let tree = store.tree("t").unwrap();
    assert_eq!(tree.put([0; 513], b""), Err(TreeError::KeyTooLong));
    assert_eq!(
        (tree.get([0; 513]), tree.contains([0; 513]), tree.remove([0; 513])),
        (Ok(None), Ok(false), Ok(false))
    );
    assert_eq!(tree.get_many(&[&[0; 513][..], b"a"]), Ok(vec![None, None]));
    assert_eq!(tree.put([0; 512], [1; 512]), Ok(false));
    assert_eq!(tree.put(b"", b""), Ok(false));
    assert_eq!((tree.get(b""), tree.len()), (Ok(Some(Vec::new())), Ok(2)));
    // Closures are within an operation.
    let nested =
        tree.get_with(b"", |_| (tree.get(b""), store.checkpoint().is_err(), store.tree("u").unwrap_err()));
    assert_eq!(nested.unwrap(), Some((Err(TreeError::Busy), true, TreeError::Busy)));
    let other = store.tree("t").unwrap();
    assert!(store.drop_tree("t").unwrap());
    for tree in [&tree, &other] {
        assert_eq!(tree.get(b"").unwrap_err(), TreeError::Dropped);
        assert_eq!(tree.put(b"", b"").unwrap_err(), TreeError::Dropped);
        assert_eq!(tree.iter().next().unwrap().unwrap_err(), TreeError::Dropped);
        assert_eq!(tree.transaction(|_| Ok::<_, TreeError>(())).unwrap_err(), TreeError::Dropped);
    }
    assert_eq!(store.tree("t").unwrap().len(), Ok(0));
    wait_until_tidy(&store);
    store.check().unwrap();
}

/// A walk goes on rightly beside changes of its own thread.
#[test]
fn a_walk_may_change_what_it_walks_through() {
    let store = open(&Arc::new(SimDevice::new(1)));
    let tree = store.tree("t").unwrap();
    for number in 0..5_000u32 {
        tree.put(number.to_be_bytes(), [7; 90]).unwrap();
    }
    let mut walk = tree.iter();
    let mut seen = 0u32;
    while let Some(key) = walk.next_with(|key, _| key.to_vec()).unwrap() {
        assert_eq!(key, seen.to_be_bytes());
        // Behind it, and so far ahead that another leaf has them.
        tree.remove(&key).unwrap();
        tree.put([&key[..], &[1; 60]].concat(), [8; 200]).unwrap();
        seen += 1;
        if seen == 2_000 {
            (3_000..5_000u32).for_each(|number| assert!(tree.remove(number.to_be_bytes()).unwrap()));
        }
    }
    assert!((3_000..3_100).contains(&seen), "{seen}");
    assert_eq!(tree.len().unwrap() as usize, content(&tree).len());
    store.check().unwrap();
}
