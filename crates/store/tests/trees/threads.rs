//! Several threads on one tree: no transaction is torn, no update is lost, whoever looks, a cut included.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillframe_pagepool::device::SimDevice;
use stillframe_store::{Store, Tree, TreeError};
use stillframe_testkit::seed;

use crate::{after_crash, content, open, random_key, random_value, wait_until_tidy, wait_until_warm, Model};

/// Ends the threads of a test, also one that fails.
struct EndAll<'s>(&'s AtomicBool);

impl Drop for EndAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const ACCOUNTS: u32 = 400;
const BALANCE: u64 = 1_000;
const CLERKS: u32 = 3;
const RUN_TIME: Duration = Duration::from_millis(1_500);

fn account(number: u32) -> Vec<u8> {
    format!("account:{number:04}").into_bytes()
}

fn number(bytes: Option<Vec<u8>>) -> u64 {
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes.first_chunk().unwrap()))
}

/// A balance with so much beside it that accounts fill many leaves; some are too long for a leaf.
fn balance(amount: u64, random: &mut fastrand::Rng) -> Vec<u8> {
    let len = if random.u32(..50) == 0 { 3_000 } else { random.usize(..400) };
    [&amount.to_be_bytes()[..], &vec![7; len]].concat()
}

/// Moves money about, and counts how often.
fn clerk(store: &Store, name: u32, stop: &AtomicBool, seed: u64) -> u64 {
    let (tree, mut random) = (store.tree("bank").unwrap(), fastrand::Rng::with_seed(seed ^ u64::from(name)));
    let counter = format!("clerk:{name}");
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let (from, to) = (account(random.u32(..ACCOUNTS)), account(random.u32(..ACCOUNTS)));
        let amount = random.u64(..40);
        let done = tree.transaction(|tx| {
            let (left, right) = (number(tx.get(&from)?), number(tx.get(&to)?));
            if left < amount || from == to {
                // Some of it has been written by then.
                tx.put(&from, 0u64.to_be_bytes())?;
                return Err(TreeError::NotAscending);
            }
            tx.put(&from, balance(left - amount, &mut random))?;
            tx.put(&to, balance(right + amount, &mut random))?;
            let all = number(tx.get("all")?) + 1;
            tx.put("all", all.to_be_bytes())?;
            tx.put(&counter, (count + 1u64).to_be_bytes())
        });
        match done {
            Ok(()) => count += 1,
            Err(error) => assert_eq!(error, TreeError::NotAscending),
        }
    }
    count
}

/// Keys of its own among the accounts, so that leaves divide and join.
fn neighbour(store: &Store, stop: &AtomicBool, seed: u64) -> Model {
    let (tree, mut random) = (store.tree("bank").unwrap(), fastrand::Rng::with_seed(seed));
    let mut model = Model::new();
    while !stop.load(Ordering::Relaxed) {
        for removes in [false, true] {
            for _ in 0..800 {
                let key = [&account(random.u32(..ACCOUNTS))[..], b":", &random_key(&mut random)[..]].concat();
                let key = key[..key.len().min(512)].to_vec();
                if removes {
                    let key = model.range(key.clone()..).next().map_or(key, |(key, _)| key.clone());
                    assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some());
                } else {
                    let value = random_value(&mut random);
                    assert_eq!(tree.put(&key, &value).unwrap(), model.insert(key, value).is_some());
                }
            }
        }
    }
    model
}

/// Everything that a transaction sees adds up.
fn auditor(store: &Store, stop: &AtomicBool) {
    let tree = store.tree("bank").unwrap();
    let accounts: Vec<_> = (0..ACCOUNTS).map(account).collect();
    while !stop.load(Ordering::Relaxed) {
        let sums = tree.transaction(|tx| {
            let mut sums = [0; 2];
            tx.get_many_with(&accounts, |_, value| sums[0] += number(value.map(<[u8]>::to_vec)))?;
            sums[1] = tx.range(&b"clerk:"[..]..).map(|record| number(Some(record.unwrap().1))).sum();
            Ok::<_, TreeError>((sums, number(tx.get("all")?)))
        });
        let ([money, by_clerk], all) = sums.unwrap();
        assert_eq!((money, by_clerk), (u64::from(ACCOUNTS) * BALANCE, all));
        // Accounts are never absent to a walk, either.
        let found = tree.range(&b"account:"[..]..&b"account;"[..]).map(|record| record.unwrap().0);
        assert_eq!(found.filter(|key| key.len() == 12).count(), ACCOUNTS as usize);
    }
}

fn check_saved(device: &Arc<SimDevice>) {
    let store = open(&after_crash(device));
    let tree = store.tree("bank").unwrap();
    let saved = content(&tree);
    assert_eq!(tree.len().unwrap(), saved.len() as u64);
    let money: u64 = (0..ACCOUNTS).map(|name| number(saved.get(&account(name)).cloned())).sum();
    assert_eq!(money, u64::from(ACCOUNTS) * BALANCE, "a transaction is saved by half");
    let by_clerk: u64 =
        (0..CLERKS).map(|name| number(saved.get(format!("clerk:{name}").as_bytes()).cloned())).sum();
    assert_eq!(by_clerk, number(saved.get(&b"all"[..]).cloned()));
    wait_until_warm(&store);
    wait_until_tidy(&store);
    store.check().unwrap();
}

#[test]
fn no_transaction_is_torn_and_no_update_lost() {
    let device = Arc::new(SimDevice::new(1));
    let store = open(&device);
    let seed = seed();
    let tree = store.tree("bank").unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    (0..ACCOUNTS).for_each(|name| assert!(!tree.put(account(name), balance(BALANCE, &mut random)).unwrap()));
    let stop = &AtomicBool::new(false);
    let (count, neighbours) = std::thread::scope(|scope| {
        let store = &store;
        let clerks: Vec<_> =
            (0..CLERKS).map(|name| scope.spawn(move || clerk(store, name, stop, seed))).collect();
        let neighbours: Vec<_> =
            (0..1).map(|name| scope.spawn(move || neighbour(store, stop, seed ^ 0x77 ^ name))).collect();
        let auditor = scope.spawn(|| auditor(store, stop));
        let (since, end) = (Instant::now(), EndAll(stop));
        while since.elapsed() < RUN_TIME && !auditor.is_finished() {
            store.checkpoint().unwrap();
            check_saved(&device);
        }
        drop(end);
        auditor.join().unwrap();
        let count: u64 = clerks.into_iter().map(|clerk| clerk.join().unwrap()).sum();
        (count, neighbours.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>())
    });
    assert!(count > 100, "{count} transactions");
    assert_eq!(number(tree.get("all").unwrap()), count);
    let all = content(&tree);
    assert!(neighbours.iter().flatten().all(|(key, value)| all.get(key) == Some(value)));
    let own = neighbours.iter().map(Model::len).sum::<usize>();
    assert_eq!(all.len(), own + ACCOUNTS as usize + CLERKS as usize + 1);
    wait_until_tidy(&store);
    store.check().unwrap();
}

/// Who has seen one write of a transaction sees the others: whoever reads them later, and in whatever way.
#[test]
fn a_transaction_is_one_step_to_single_reads() {
    let store = open(&Arc::new(SimDevice::new(1)));
    let tree = store.tree("t").unwrap();
    // So many in between that they are applied one after the other, in leaves of their own.
    let keys: Vec<Vec<u8>> = (0..60u32).map(|name| format!("{name:08}").into_bytes()).collect();
    let filler = |name: u32| format!("{:08}:{name}", name % 60);
    (0..6_000).for_each(|name| assert!(!tree.put(filler(name), [1; 60]).unwrap()));
    let stop = &AtomicBool::new(false);
    let read = |tree: &Tree, key: &Vec<u8>| number(tree.get(key).unwrap());
    let reader = |upwards: bool| {
        let (tree, mut count) = (store.tree("t").unwrap(), 0u64);
        while !stop.load(Ordering::Relaxed) {
            let [one, other] = if upwards { [&keys[0], &keys[59]] } else { [&keys[59], &keys[0]] };
            let before = read(&tree, one);
            let after = read(&tree, other);
            assert!(after >= before, "{after} after {before}");
            count += u64::from(after > 0);
        }
        assert!(count > 0);
    };
    std::thread::scope(|scope| {
        let readers = [true, false].map(|upwards| scope.spawn(move || reader(upwards)));
        let (tree, _end) = (store.tree("t").unwrap(), EndAll(stop));
        let since = Instant::now();
        let mut round = 1u64;
        while since.elapsed() < Duration::from_millis(700)
            && readers.iter().all(|reader| !reader.is_finished())
        {
            let write = |key: &Vec<u8>| {
                let value = [&round.to_be_bytes()[..], &[0; 300][..round as usize % 300]].concat();
                (key.clone(), value)
            };
            tree.transaction(|tx| keys.iter().map(write).try_for_each(|(key, value)| tx.put(key, value)))
                .unwrap();
            round += 1;
        }
    });
}

/// Trees come and go beside their users.
#[test]
fn trees_are_dropped_beside_their_users() {
    let store = open(&Arc::new(SimDevice::new(1)));
    let stop = &AtomicBool::new(false);
    let seed = seed();
    let user = |name: u64| {
        let mut random = fastrand::Rng::with_seed(seed ^ name);
        let mut met = 0;
        while !stop.load(Ordering::Relaxed) {
            let tree = store.tree("t").unwrap();
            let use_it = || -> Result<(), TreeError> {
                for _ in 0..400 {
                    tree.put(random_key(&mut random), random_value(&mut random))?;
                    tree.get_many(&[random_key(&mut random), random_key(&mut random)])?;
                    tree.transaction(|tx| {
                        tx.put(random_key(&mut random), b"")?;
                        tx.remove(random_key(&mut random))
                    })?;
                    tree.range(&random_key(&mut random)[..]..)
                        .take(50)
                        .try_for_each(|record| record.map(drop))?;
                }
                Ok(())
            };
            match { use_it }() {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error, TreeError::Dropped);
                    met += 1;
                }
            }
        }
        met
    };
    let met = std::thread::scope(|scope| {
        let users = [1, 2].map(|name| scope.spawn(move || user(name)));
        let end = EndAll(stop);
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(5));
            store.drop_tree("t").unwrap();
        }
        drop(end);
        users.into_iter().map(|user| user.join().unwrap()).sum::<u32>()
    });
    assert!(met > 10, "{met}");
    store.drop_tree("t").unwrap();
    wait_until_tidy(&store);
    assert_eq!(store.check().unwrap().tree_count, 0);
}
