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
            if let Some(order) = oldest {
                self.deliver(txn, district, order)?;
            }
        }
        Ok(Verdict::Commit)
    }

    fn deliver(&self, txn: &mut dyn Transaction, district: u8, number: u32) -> Result<()> {
        let key = order_key(self.warehouse, district, number);
        txn.remove(NEW_ORDER, key.as_bytes())?;
        let mut order: Order = read(txn, ORDER, &key)?;
        order.carrier = self.carrier;
        write(txn, ORDER, &key, &order)?;
        let mut total = 0;
        for line in 1..=order.line_count {
            let key = order_line_key(self.warehouse, district, number, line);
            let mut row: OrderLine = read(txn, ORDER_LINE, &key)?;
            total += row.amount.get();
            row.delivery_date.set(self.date);
            write(txn, ORDER_LINE, &key, &row)?;
        }
        let key = customer_key(self.warehouse, district, order.customer.get());
        let mut customer: Customer = read(txn, CUSTOMER, &key)?;
        customer.balance.set(customer.balance.get() + total);
        customer.delivery_count.set(customer.delivery_count.get() + 1);
        write(txn, CUSTOMER, &key, &customer)
    }
}
