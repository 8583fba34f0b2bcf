//! Clause 2.4: an order of 5 to 15 lines. One of a hundred names an item that there is none of, and is rolled back.

use super::terminal::Terminal;
use crate::error::Result;
use crate::kv::{Transaction, Verdict};
use crate::tpcc::schema::*;

pub struct NewOrder {
    warehouse: u32,
    district: u8,
    customer: u32,
    lines: Vec<Line>,
    date: u64,
}

struct Line {
    item: u32,
    supply_warehouse: u32,
    quantity: u8,
}

impl Line {
    fn stock(&self) -> StockKey {
        stock_key(self.supply_warehouse, self.item)
    }

    fn is_of_same(&self, other: &Line) -> bool {
        (self.supply_warehouse, self.item) == (other.supply_warehouse, other.item)
    }
}

impl NewOrder {
    pub fn draw(terminal: &mut Terminal, date: u64) -> NewOrder {
        let (warehouse, district) = (terminal.warehouse(), terminal.district());
        let customer = terminal.constants.customer(&mut terminal.rng, terminal.scale);
        let line_count = terminal.rng.u8(5..=15);
        let mut lines: Vec<Line> = (0..line_count)
            .map(|_| {
                let is_remote = terminal.rng.u8(..100) == 0;
                let supply_warehouse =
                    if is_remote { terminal.other_warehouse(warehouse) } else { warehouse };
                let item = terminal.constants.item(&mut terminal.rng, terminal.scale);
                Line { item, supply_warehouse, quantity: terminal.rng.u8(1..=10) }
            })
            .collect();
        if terminal.rng.u8(..100) == 0 {
            // Nobody has it.
            lines.last_mut().into_iter().for_each(|line| line.item = terminal.scale.items + 1);
        }
        NewOrder { warehouse, district, customer, lines, date }
    }

    pub fn run(&self, txn: &mut dyn Transaction) -> Result<Verdict> {
        let warehouse: Warehouse = read(txn, WAREHOUSE, &warehouse_key(self.warehouse))?;
        let key = district_key(self.warehouse, self.district);
        let mut district: District = read(txn, DISTRICT, &key)?;
        let number = district.next_order.get();
        district.next_order.set(number + 1);
        write(txn, DISTRICT, &key, &district)?;
        let customer: Customer =
            read(txn, CUSTOMER, &customer_key(self.warehouse, self.district, self.customer))?;
        let order = Order {
            customer: self.customer.into(),
            entry_date: self.date.into(),
            carrier: 0,
            line_count: self.lines.len() as u8,
            is_all_local: self.lines.iter().all(|line| line.supply_warehouse == self.warehouse).into(),
        };
        let key = order_key(self.warehouse, self.district, number);
        write(txn, ORDER, &key, &order)?;
        write(txn, NEW_ORDER, &key, &[0u8; 0])?;
        let by_customer = order_by_customer_key(self.warehouse, self.district, self.customer, number);
        write(txn, ORDER_BY_CUSTOMER, &by_customer, &[0u8; 0])?;
        let items: Vec<_> = self.lines.iter().map(|line| item_key(line.item)).collect();
        let items: Vec<Option<Item>> = find_many(txn, ITEM, &items)?;
        let stocks: Vec<_> = self.lines.iter().map(Line::stock).collect();
        let mut stocks: Vec<Option<Stock>> = find_many(txn, STOCK, &stocks)?;
        let mut total = 0;
        for (index, (line, item)) in self.lines.iter().zip(items).enumerate() {
            if let Some(before) = self.lines[..index].iter().rposition(|other| other.is_of_same(line)) {
                stocks[index] = stocks[before];
            }
            let (Some(item), Some(stock)) = (item, &mut stocks[index]) else { return Ok(Verdict::Rollback) };
            let amount = i64::from(line.quantity) * item.price.get();
            self.add(txn, line, amount, stock, (number, index as u8 + 1))?;
            total += amount;
        }
        let discounted = total * (RATE_ONE - i64::from(customer.discount.get())) / RATE_ONE;
        let taxes = i64::from(warehouse.tax.get()) + i64::from(district.tax.get());
        std::hint::black_box(discounted * (RATE_ONE + taxes) / RATE_ONE);
        Ok(Verdict::Commit)
    }

    /// Adds a line, of that order and number in it, and takes it from the stock.
    fn add(
        &self,
        txn: &mut dyn Transaction,
        line: &Line,
        amount: i64,
        stock: &mut Stock,
        (order, number): (u32, u8),
    ) -> Result<()> {
        let left = stock.quantity.get() - i16::from(line.quantity);
        stock.quantity.set(if left >= 10 { left } else { left + 91 });
        stock.ytd.set(stock.ytd.get() + u32::from(line.quantity));
        stock.order_count.set(stock.order_count.get() + 1);
        let is_remote = line.supply_warehouse != self.warehouse;
        stock.remote_count.set(stock.remote_count.get() + u32::from(is_remote));
        write(txn, STOCK, &line.stock(), stock)?;
        let row = OrderLine {
            item: line.item.into(),
            supply_warehouse: line.supply_warehouse.into(),
            delivery_date: 0.into(),
            quantity: line.quantity,
            amount: amount.into(),
            district_info: stock.districts[usize::from(self.district) - 1],
        };
        write(txn, ORDER_LINE, &order_line_key(self.warehouse, self.district, order, number), &row)
    }
}
