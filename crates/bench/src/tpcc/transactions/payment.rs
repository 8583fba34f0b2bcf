//! Clause 2.5: a customer pays, 15 of a hundred in another warehouse than their own.

use super::customer::Choice;
use super::terminal::Terminal;
use crate::error::Result;
use crate::kv::{Transaction, Verdict};
use crate::tpcc::schema::*;

pub struct Payment {
    warehouse: u32,
    district: u8,
    customer_warehouse: u32,
    customer_district: u8,
    customer: Choice,
    amount: i64,
    date: u64,
    session: u32,
    number: u64,
}

impl Payment {
    pub fn draw(terminal: &mut Terminal, date: u64) -> Payment {
        let (warehouse, district) = (terminal.warehouse(), terminal.district());
        let (customer_warehouse, customer_district) = match terminal.rng.u8(..100) < 15 {
            true => (terminal.other_warehouse(warehouse), terminal.district()),
            false => (warehouse, district),
        };
        terminal.payment_count += 1;
        Payment {
            warehouse,
            district,
            customer_warehouse,
            customer_district,
            customer: Choice::draw(terminal),
            amount: terminal.rng.i64(100..=500_000),
            date,
            session: terminal.session,
            number: terminal.payment_count,
        }
    }

    pub fn run(&self, txn: &mut dyn Transaction) -> Result<Verdict> {
        let key = warehouse_key(self.warehouse);
        let mut warehouse: Warehouse = read(txn, WAREHOUSE, &key)?;
        warehouse.ytd.set(warehouse.ytd.get() + self.amount);
        write(txn, WAREHOUSE, &key, &warehouse)?;
        let key = district_key(self.warehouse, self.district);
        let mut district: District = read(txn, DISTRICT, &key)?;
        district.ytd.set(district.ytd.get() + self.amount);
        write(txn, DISTRICT, &key, &district)?;
        let number = self.customer.resolve(txn, self.customer_warehouse, self.customer_district)?;
        let key = customer_key(self.customer_warehouse, self.customer_district, number);
        let mut customer: Customer = read(txn, CUSTOMER, &key)?;
        customer.balance.set(customer.balance.get() - self.amount);
        customer.ytd_payment.set(customer.ytd_payment.get() + self.amount);
        customer.payment_count.set(customer.payment_count.get() + 1);
        if &customer.credit == b"BC" {
            self.note(&mut customer, number);
        }
        write(txn, CUSTOMER, &key, &customer)?;
        let key = HistoryKey {
            warehouse: self.customer_warehouse.into(),
            district: self.customer_district,
            customer: number.into(),
            session: self.session.into(),
            number: self.number.into(),
        };
        let names = [warehouse.name.as_slice(), b"    ", district.name.as_slice()].concat();
        let history = History {
            warehouse: self.warehouse.into(),
            district: self.district,
            date: self.date.into(),
            amount: self.amount.into(),
            data: Text::new(&names),
        };
        write(txn, HISTORY, &key, &history)?;
        Ok(Verdict::Commit)
    }

    /// Whose credit is bad has each payment written before what is known of them.
    fn note(&self, customer: &mut Customer, number: u32) {
        let note = format!(
            "{number} {} {} {} {} {}.{:02}|",
            self.customer_district,
            self.customer_warehouse,
            self.district,
            self.warehouse,
            self.amount / 100,
            self.amount % 100
        );
        customer.data = Text::new(&[note.as_bytes(), customer.data.as_slice()].concat());
    }
}
