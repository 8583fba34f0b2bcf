//! The load and the mix on each system, and that the conditions notice what is wrong.

use stillframe_testkit::TempDir;
use zerocopy::IntoBytes;

use super::schema::*;
use super::{check, load, run, Mix};
use crate::kv::{Model, OpenOptions, System, TreeId};

const SCALE: Scale = Scale { warehouses: 2, items: 1000, customers: 30 };

fn mix(thread_count: usize, number: u32, seed: u64) -> Mix {
    Mix { scale: SCALE, thread_count, seconds: 0.3, seed, number }
}

#[test]
fn every_system_keeps_the_conditions() {
    let seed = stillframe_testkit::seed();
    for system in System::all() {
        let name = system.name();
        let dir = TempDir::new(name);
        let options = OpenOptions {
            dir: &dir,
            trees: &TREES,
            memory_bytes: 64 << 20,
            disk_bytes_max: 256 << 20,
            thread_count: 2,
        };
        let store = system.open(&options).unwrap();
        load(&*store, SCALE, seed, name).unwrap();
        let loaded = u64::from(SCALE.warehouses) * 10 * u64::from(SCALE.customers);
        assert_eq!(check(&*store, SCALE, name).unwrap(), loaded, "{name}");
        let mut ordered = 0;
        for (number, thread_count) in [(1, 1), (2, 2)] {
            let report = run(&*store, mix(thread_count, number, seed)).unwrap();
            for kind in &report.kinds {
                assert!(kind.count > 0, "{name}: {report:?}");
            }
            let new_orders = &report.kinds[0];
            ordered += new_orders.count - new_orders.rollback_count;
            let busy_ns: u64 = report.kinds.iter().map(|kind| kind.count * kind.p50_ns).sum();
            // No transaction takes less than a microsecond; all together take the threads' time, or most of it.
            assert!(new_orders.p50_ns > 1000 && new_orders.p50_ns <= new_orders.max_ns, "{name}: {report:?}");
            assert!(busy_ns < thread_count as u64 * 1_000_000_000, "{name}: {report:?}");
            let seconds = report.count() as f64 / report.per_second * thread_count as f64;
            assert!((0.2..3.0).contains(&seconds), "{name}: {report:?}");
        }
        // What was rolled back has left nothing behind.
        assert_eq!(check(&*store, SCALE, name).unwrap(), loaded + ordered, "{name}");
    }
}

/// Changes one row of a store that is right, and returns what the check says.
fn broken(tree: TreeId, change: impl Fn(&mut Vec<u8>)) -> String {
    let model = Model::new(TREES.len());
    load(&model, SCALE, 7, "model").unwrap();
    check(&model, SCALE, "model").unwrap();
    let mut rows = model.trees();
    let (key, mut value) = rows[tree.0].pop_first().unwrap();
    change(&mut value);
    rows[tree.0].insert(key, value);
    drop(rows);
    check(&model, SCALE, "model").unwrap_err().to_string()
}

fn changed<T: zerocopy::FromBytes + IntoBytes + zerocopy::Immutable>(
    value: &mut Vec<u8>,
    change: impl Fn(&mut T),
) {
    let mut row = decode::<T>(value).unwrap();
    change(&mut row);
    *value = row.as_bytes().to_vec();
}

#[test]
fn each_condition_notices_what_is_wrong() {
    let says = |tree: TreeId, number: u32, change: &dyn Fn(&mut Vec<u8>)| {
        let text = broken(tree, change);
        assert!(text.contains(&format!("3.3.2.{number} ")), "{number}: {text}");
    };
    says(WAREHOUSE, 1, &|row| changed(row, |row: &mut Warehouse| row.ytd += 1));
    says(DISTRICT, 2, &|row| changed(row, |row: &mut District| row.next_order += 1));
    says(DISTRICT, 9, &|row| changed(row, |row: &mut District| row.ytd += 1));
    says(ORDER, 4, &|row| changed(row, |row: &mut Order| row.line_count += 1));
    says(ORDER, 5, &|row| changed(row, |row: &mut Order| row.carrier = 0));
    says(ORDER_LINE, 7, &|row| changed(row, |row: &mut OrderLine| row.delivery_date.set(0)));
    says(ORDER_LINE, 10, &|row| changed(row, |row: &mut OrderLine| row.amount += 1));
    says(CUSTOMER, 10, &|row| changed(row, |row: &mut Customer| row.balance += 1));
    says(CUSTOMER, 12, &|row| changed(row, |row: &mut Customer| row.ytd_payment += 1));
    says(HISTORY, 10, &|row| changed(row, |row: &mut History| row.amount += 1));
}

#[test]
fn a_missing_row_is_noticed() {
    let without = |tree: TreeId| {
        let model = Model::new(TREES.len());
        load(&model, SCALE, 7, "model").unwrap();
        // The first is left: what lacks is in the middle of a district.
        let key = model.trees()[tree.0].keys().nth(22).unwrap().clone();
        model.trees()[tree.0].remove(&key);
        check(&model, SCALE, "model").unwrap_err().to_string()
    };
    assert!(without(ORDER_LINE).contains("3.3.2.4 "), "{}", without(ORDER_LINE));
    // The second of the ten that are open in the third district.
    assert!(without(NEW_ORDER).contains("3.3.2.3 "), "{}", without(NEW_ORDER));
}
