//! Clause 2.6: a customer's last order, with its lines.

use std::ops::ControlFlow;

use zerocopy::IntoBytes;

use super::customer::Choice;
use super::terminal::Terminal;
use crate::error::{BenchError, Result};
use crate::kv::{Order as Direction, Transaction, Verdict};
use crate::tpcc::schema::*;

pub struct OrderStatus {
    warehouse: u32,
    district: u8,
    customer: Choice,
}

impl OrderStatus {
    pub fn draw(terminal: &mut Terminal) -> OrderStatus {
        let (warehouse, district) = (terminal.warehouse(), terminal.district());
        OrderStatus { warehouse, district, customer: Choice::draw(terminal) }
    }

    pub fn run(&self, txn: &mut dyn Transaction) -> Result<Verdict> {
        let number = self.customer.resolve(txn, self.warehouse, self.district)?;
        let customer: Customer = read(txn, CUSTOMER, &customer_key(self.warehouse, self.district, number))?;
        let of = |order: u32| order_by_customer_key(self.warehouse, self.district, number, order);
        let mut last = None;
        txn.scan(
            ORDER_BY_CUSTOMER,
            of(0).as_bytes()..of(u32::MAX).as_bytes(),
            Direction::Descending,
            &mut |key, _| {
                last = Some(decode::<OrderByCustomerKey>(key)?.order.get());
                Ok(ControlFlow::Break(()))
            },
        )?;
        // Each customer has one from the beginning.
        let last = last.ok_or_else(|| BenchError::Failed(format!("customer {number} has no order")))?;
        let order: Order = read(txn, ORDER, &order_key(self.warehouse, self.district, last))?;
        let mut line_count = 0;
        let line = |line: u8| order_line_key(self.warehouse, self.district, last, line);
        let lines = (line(0), line(u8::MAX));
        txn.scan(ORDER_LINE, lines.0.as_bytes()..lines.1.as_bytes(), Direction::Ascending, &mut |_, row| {
            std::hint::black_box(decode::<OrderLine>(row)?.amount.get());
            line_count += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        if line_count != order.line_count {
            let wrong = format!("order {last} has {line_count} lines instead of {}", order.line_count);
            return Err(BenchError::Failed(wrong));
        }
        std::hint::black_box(customer.balance.get());
        Ok(Verdict::Commit)
    }
}
