//! Clause 2.8: how many items of a district's last 20 orders run short.

use std::ops::ControlFlow;

use zerocopy::IntoBytes;

use super::terminal::Terminal;
use crate::error::Result;
use crate::kv::{Order as Direction, Transaction, Verdict};
use crate::tpcc::schema::*;

const LAST_ORDERS: u32 = 20;

pub struct StockLevel {
    warehouse: u32,
    district: u8,
    threshold: i16,
}

impl StockLevel {
    pub fn draw(terminal: &mut Terminal) -> StockLevel {
        let (warehouse, district) = (terminal.warehouse(), terminal.district());
        StockLevel { warehouse, district, threshold: terminal.rng.i16(10..=20) }
    }

    pub fn run(&self, txn: &mut dyn Transaction) -> Result<Verdict> {
        let district: District = read(txn, DISTRICT, &district_key(self.warehouse, self.district))?;
        let next = district.next_order.get();
        let of = |order: u32| order_line_key(self.warehouse, self.district, order, 0);
        let (from, to) = (of(next.saturating_sub(LAST_ORDERS)), of(next));
        let mut items = Vec::new();
        txn.scan(ORDER_LINE, from.as_bytes()..to.as_bytes(), Direction::Ascending, &mut |_, row| {
            items.push(decode::<OrderLine>(row)?.item.get());
            Ok(ControlFlow::Continue(()))
        })?;
        items.sort_unstable();
        items.dedup();
        let keys: Vec<_> = items.into_iter().map(|item| stock_key(self.warehouse, item)).collect();
        let stocks: Vec<Stock> = read_many(txn, STOCK, &keys)?;
        let is_short = |stock: &&Stock| stock.quantity.get() < self.threshold;
        std::hint::black_box(stocks.iter().filter(is_short).count());
        Ok(Verdict::Commit)
    }
}
