//! The consistency conditions of clause 3.3.2, 1 to 10 and 12 (11 holds of a load only), after a run: of every district and
//! every customer.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use zerocopy::{FromBytes, IntoBytes};

use super::schema::*;
use crate::error::{BenchError, Result};
use crate::kv::{Access, KeyValue, Order as Direction, Transaction, TreeId, Verdict};
use crate::progress::Progress;

/// Reads all tables. Returns how many orders there are.
///
/// # Errors
/// The first condition that does not hold, with its number; those of the store.
pub fn check(store: &dyn KeyValue, scale: Scale, progress: &str) -> Result<u64> {
    let mut session = store.session()?;
    let what = format!("{progress}: checking the consistency conditions");
    let mut progress = Progress::new(what, u64::from(scale.warehouses));
    let mut order_count = 0;
    // Of each district, what was paid there: customers pay in other warehouses, too.
    let mut paid: BTreeMap<(u32, u8), i64> = BTreeMap::new();
    for warehouse in 1..=scale.warehouses {
        session.transaction(Access::Read, &mut |txn| {
            for district in 1..=DISTRICTS {
                order_count += check_district(txn, warehouse, district, &mut paid)?;
            }
            Ok(Verdict::Commit)
        })?;
        progress.add(1);
    }
    session.transaction(Access::Read, &mut |txn| {
        (1..=scale.warehouses).try_for_each(|warehouse| check_money(txn, warehouse, &paid))?;
        Ok(Verdict::Commit)
    })?;
    Ok(order_count)
}

fn holds(number: u32, is_true: bool, what: impl FnOnce() -> String) -> Result<()> {
    match is_true {
        true => Ok(()),
        false => {
            Err(BenchError::Failed(format!("consistency condition 3.3.2.{number} does not hold: {}", what())))
        }
    }
}

/// Shows all rows of a district.
fn each<K: FromBytes>(
    txn: &mut dyn Transaction,
    tree: TreeId,
    keys: Range<DistrictKey>,
    mut show: impl FnMut(K, &[u8]) -> Result<()>,
) -> Result<()> {
    txn.scan(tree, keys.start.as_bytes()..keys.end.as_bytes(), Direction::Ascending, &mut |key, row| {
        show(decode(key)?, row)?;
        Ok(ControlFlow::Continue(()))
    })
}

/// Conditions 1, 8 and 9.
fn check_money(txn: &mut dyn Transaction, number: u32, paid: &BTreeMap<(u32, u8), i64>) -> Result<()> {
    let warehouse: Warehouse = read(txn, WAREHOUSE, &warehouse_key(number))?;
    let (mut of_districts, mut of_history) = (0, 0);
    for district in 1..=DISTRICTS {
        let row: District = read(txn, DISTRICT, &district_key(number, district))?;
        let paid = paid.get(&(number, district)).copied().unwrap_or(0);
        holds(9, row.ytd.get() == paid, || {
            format!("district {number}/{district} has {}, its history {paid}", row.ytd.get())
        })?;
        of_districts += row.ytd.get();
        of_history += paid;
    }
    let ytd = warehouse.ytd.get();
    holds(1, ytd == of_districts, || format!("warehouse {number} has {ytd}, its districts {of_districts}"))?;
    holds(8, ytd == of_history, || format!("warehouse {number} has {ytd}, its history {of_history}"))
}

/// What orders say of a district.
#[derive(Default)]
struct Orders {
    /// Customer, lines and whether it is delivered, by number.
    rows: BTreeMap<u32, (u32, u8, bool)>,
    /// Those that are open.
    open: Vec<u32>,
    /// Delivered amounts, by customer.
    delivered: BTreeMap<u32, i64>,
}

/// Conditions 2 to 7, 10 and 12. Returns how many orders there are, and adds to what was paid.
fn check_district(
    txn: &mut dyn Transaction,
    warehouse: u32,
    district: u8,
    paid: &mut BTreeMap<(u32, u8), i64>,
) -> Result<u64> {
    let keys = || district_keys(warehouse, district);
    let place = format!("district {warehouse}/{district}");
    let row: District = read(txn, DISTRICT, &district_key(warehouse, district))?;
    let mut orders = Orders::default();
    each(txn, ORDER, keys(), |key: OrderKey, row| {
        let row: Order = decode(row)?;
        orders.rows.insert(key.order.get(), (row.customer.get(), row.line_count, row.carrier != 0));
        Ok(())
    })?;
    each(txn, NEW_ORDER, keys(), |key: OrderKey, _| {
        orders.open.push(key.order.get());
        Ok(())
    })?;
    check_numbers(&orders, row.next_order.get(), &place)?;
    check_lines(txn, &mut orders, keys(), &place)?;
    let mut of_customers: BTreeMap<u32, i64> = BTreeMap::new();
    each(txn, HISTORY, keys(), |key: HistoryKey, row| {
        let row: History = decode(row)?;
        *of_customers.entry(key.customer.get()).or_default() += row.amount.get();
        *paid.entry((row.warehouse.get(), row.district)).or_default() += row.amount.get();
        Ok(())
    })?;
    each(txn, CUSTOMER, keys(), |key: CustomerKey, row| {
        let (number, row) = (key.customer.get(), decode::<Customer>(row)?);
        let sum = |of: &BTreeMap<u32, i64>| of.get(&number).copied().unwrap_or(0);
        let (delivered, paid) = (sum(&orders.delivered), sum(&of_customers));
        let (balance, ytd) = (row.balance.get(), row.ytd_payment.get());
        let who =
            || format!("{place}, customer {number}: balance {balance}, delivered {delivered}, paid {paid}");
        holds(10, balance == delivered - paid, who)?;
        holds(12, balance + ytd == delivered, || format!("{}, ytd {ytd}", who()))
    })?;
    Ok(orders.rows.len() as u64)
}

/// Conditions 2, 3 and 5.
fn check_numbers(orders: &Orders, next: u32, place: &str) -> Result<()> {
    let last = orders.rows.keys().last().copied().unwrap_or(0);
    holds(2, next == last + 1, || format!("{place}: the next order is {next}, the last {last}"))?;
    if let (Some(&first_open), Some(&last_open)) = (orders.open.first(), orders.open.last()) {
        holds(2, last_open == last, || {
            format!("{place}: the last open order is {last_open}, the last {last}")
        })?;
        let count = orders.open.len() as u32;
        holds(3, last_open - first_open + 1 == count, || {
            format!("{place}: orders {first_open} to {last_open} are open, but {count}")
        })?;
    }
    for (number, (_, _, is_delivered)) in &orders.rows {
        let is_open = orders.open.binary_search(number).is_ok();
        holds(5, is_open != *is_delivered, || format!("{place}: order {number} is open: {is_open}"))?;
    }
    Ok(())
}

/// Conditions 4, 6 and 7; adds up what was delivered.
fn check_lines(
    txn: &mut dyn Transaction,
    orders: &mut Orders,
    keys: Range<DistrictKey>,
    place: &str,
) -> Result<()> {
    let mut lines: BTreeMap<u32, u8> = BTreeMap::new();
    let mut line_count = 0u64;
    let Orders { rows, delivered, .. } = orders;
    each(txn, ORDER_LINE, keys, |key: OrderLineKey, row| {
        let (number, row) = (key.order.get(), decode::<OrderLine>(row)?);
        *lines.entry(number).or_default() += 1;
        line_count += 1;
        let (customer, _, is_delivered) = rows.get(&number).copied().unwrap_or_default();
        let has_date = row.delivery_date.get() != 0;
        holds(7, has_date == is_delivered, || {
            format!("{place}: a line of order {number} has a date: {has_date}")
        })?;
        if has_date {
            *delivered.entry(customer).or_default() += row.amount.get();
        }
        Ok(())
    })?;
    let wanted: u64 = rows.values().map(|(_, count, _)| u64::from(*count)).sum();
    holds(4, wanted == line_count, || format!("{place}: {line_count} lines instead of {wanted}"))?;
    for (number, (_, wanted, _)) in rows {
        let found = lines.get(number).copied().unwrap_or(0);
        holds(6, found == *wanted, || {
            format!("{place}: order {number} has {found} lines instead of {wanted}")
        })?;
    }
    Ok(())
}
