//! Clause 2.7: in each district of a warehouse the oldest order that is open is delivered, all in one transaction.

use std::ops::ControlFlow;

use zerocopy::IntoBytes;

use super::terminal::Terminal;
use crate::error::Result;
use crate::kv::{Order as Direction, Transaction, Verdict};
use crate::tpcc::schema::*;

pub struct Delivery {
    warehouse: u32,
    carrier: u8,
    date: u64,
}

impl Delivery {
    pub fn draw(terminal: &mut Terminal, date: u64) -> Delivery {
        Delivery { warehouse: terminal.warehouse(), carrier: terminal.rng.u8(1..=10), date }
    }

    pub fn run(&self, txn: &mut dyn Transaction) -> Result<Verdict> {
        let mut open: Vec<OrderKey> = Vec::new();
        for district in 1..=DISTRICTS {
            let keys = district_keys(self.warehouse, district);
            let mut oldest = None;
            txn.scan(
                NEW_ORDER,
                keys.start.as_bytes()..keys.end.as_bytes(),
                Direction::Ascending,
                &mut |key, _| {
                    oldest = Some(decode::<OrderKey>(key)?.order.get());
                    Ok(ControlFlow::Break(()))
                },
            )?;
            // A district without one is left out.
            open.extend(oldest.map(|order| order_key(self.warehouse, district, order)));
        }
        self.deliver(txn, &open)?;
        Ok(Verdict::Commit)
    }

    fn deliver(&self, txn: &mut dyn Transaction, keys: &[OrderKey]) -> Result<()> {
        let mut orders: Vec<Order> = read_many(txn, ORDER, keys)?;
        let mut customers = Vec::new();
        for (order, key) in orders.iter_mut().zip(keys) {
            txn.remove(NEW_ORDER, key.as_bytes())?;
            order.carrier = self.carrier;
            write(txn, ORDER, key, order)?;
            customers.push(customer_key(self.warehouse, key.district, order.customer.get()));
        }
        let totals = self.deliver_lines(txn, keys, &orders)?;
        let rows: Vec<Customer> = read_many(txn, CUSTOMER, &customers)?;
        for ((mut customer, key), total) in rows.into_iter().zip(customers).zip(totals) {
            customer.balance.set(customer.balance.get() + total);
            customer.delivery_count.set(customer.delivery_count.get() + 1);
            write(txn, CUSTOMER, &key, &customer)?;
        }
        Ok(())
    }

    /// What each order costs.
    fn deliver_lines(
        &self,
        txn: &mut dyn Transaction,
        keys: &[OrderKey],
        orders: &[Order],
    ) -> Result<Vec<i64>> {
        let line_keys = keys.iter().zip(orders).enumerate().flat_map(|(index, (key, order))| {
            let of = |line| order_line_key(self.warehouse, key.district, key.order.get(), line);
            (1..=order.line_count).map(move |line| (index, of(line)))
        });
        let (indices, line_keys): (Vec<usize>, Vec<OrderLineKey>) = line_keys.unzip();
        let mut rows: Vec<OrderLine> = read_many(txn, ORDER_LINE, &line_keys)?;
        let mut totals = vec![0; keys.len()];
        for ((row, key), index) in rows.iter_mut().zip(&line_keys).zip(indices) {
            totals[index] += row.amount.get();
            row.delivery_date.set(self.date);
            write(txn, ORDER_LINE, key, row)?;
        }
        Ok(totals)
    }
}
