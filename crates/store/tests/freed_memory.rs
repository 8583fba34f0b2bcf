//! What trees free is used again, beside collections, without a cut. Alone in its process, whose resident memory it looks at.

use stillframe_store::{Options, Store};
use stillframe_testkit::TempDir;

const COUNT: u32 = 12_000;
const ROUNDS: u8 = 6;

fn resident_mb() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    (statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096) >> 20
}

/// As many fields of a hash as records of a tree, all of them anew in each round; after a checkpoint, or without one.
#[test]
fn memory_stays_near_that_of_the_data() {
    for has_saved in [false, true] {
        let dir = TempDir::new("freed");
        let pool_backend = stillframe_testkit::pool_backend();
        let store = Store::open(dir.path(), Options { pool_backend, ..Options::default() }).unwrap();
        let (hash, tree) = (store.hash("h"), store.tree("t").unwrap());
        let mut at_first = 0;
        for round in 0..ROUNDS {
            let names = || (0..COUNT).map(|number| format!("{number:06}"));
            for name in names() {
                let (a, b) = (hash.remove(&name).unwrap(), tree.remove(&name).unwrap());
                assert!(a == b && a == (round > 0));
            }
            for name in names() {
                hash.set(&name, [round; 1000]).unwrap();
                tree.put(&name, [round; 1000]).unwrap();
            }
            if round == 0 {
                at_first = resident_mb();
                if has_saved {
                    store.checkpoint().unwrap();
                }
            }
        }
        let (used, resident) = (store.used_memory_bytes() >> 20, resident_mb());
        println!("saved {has_saved}: {at_first} MB at first, {resident} MB in the end, {used} MB counted");
        // The data are 24 MB and more. Without that they would be there six times, or half of them.
        assert!(resident < at_first + 30, "{resident} MB, {at_first} at first");
        assert!((24..48).contains(&used), "{used} MB are counted");
    }
}
