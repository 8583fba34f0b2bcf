//! A customer, who is known by number or by last name.

use std::ops::ControlFlow;

use zerocopy::IntoBytes;

use super::terminal::Terminal;
use crate::error::{BenchError, Result};
use crate::kv::{Order as Direction, Transaction};
use crate::tpcc::schema::*;

pub enum Choice {
    Number(u32),
    LastName(Name),
}

impl Choice {
    /// Six of ten by last name.
    pub fn draw(terminal: &mut Terminal) -> Choice {
        let Terminal { rng, scale, constants, .. } = terminal;
        match rng.u8(..10) < 6 {
            true => Choice::LastName(constants.last_name(rng, *scale)),
            false => Choice::Number(constants.customer(rng, *scale)),
        }
    }

    /// The customer's number; of several of a name the one in the middle by first name.
    pub fn resolve(&self, txn: &mut dyn Transaction, warehouse: u32, district: u8) -> Result<u32> {
        let last = match self {
            Choice::Number(number) => return Ok(*number),
            Choice::LastName(last) => *last,
        };
        let bound = |first: Name, customer: u32| CustomerNameKey {
            warehouse: warehouse.into(),
            district,
            last,
            first,
            customer: customer.into(),
        };
        let (from, to) = (bound([0; NAME_BYTES], 0), bound([0xff; NAME_BYTES], u32::MAX));
        let mut numbers = Vec::new();
        txn.scan(CUSTOMER_BY_NAME, from.as_bytes()..to.as_bytes(), Direction::Ascending, &mut |key, _| {
            numbers.push(decode::<CustomerNameKey>(key)?.customer.get());
            Ok(ControlFlow::Continue(()))
        })?;
        let middle = numbers.len().saturating_sub(1) / 2;
        numbers.get(middle).copied().ok_or_else(|| {
            let name = String::from_utf8_lossy(&last).into_owned();
            BenchError::Failed(format!(
                "no customer of the name {name} in warehouse {warehouse}, district {district}"
            ))
        })
    }
}
