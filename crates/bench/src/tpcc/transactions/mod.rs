//! The five transactions. Each is drawn first, and then done, perhaps more than once: what it does depends on what was drawn
//! only.

mod customer;
mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;
mod terminal;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use self::delivery::Delivery;
use self::new_order::NewOrder;
use self::order_status::OrderStatus;
use self::payment::Payment;
use self::stock_level::StockLevel;
pub use self::terminal::Terminal;
use super::generate::now_ms;
use crate::error::Result;
use crate::kv::{Access, Transaction, Verdict};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    pub const ALL: [Kind; 5] =
        [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

    pub fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "New-Order",
            Kind::Payment => "Payment",
            Kind::OrderStatus => "Order-Status",
            Kind::Delivery => "Delivery",
            Kind::StockLevel => "Stock-Level",
        }
    }

    /// The standard's mix (clause 5.2.3), in per cent.
    pub fn share_percent(self) -> u32 {
        match self {
            Kind::NewOrder => 45,
            Kind::Payment => 43,
            Kind::OrderStatus | Kind::Delivery | Kind::StockLevel => 4,
        }
    }

    pub fn access(self) -> Access {
        match self {
            Kind::NewOrder | Kind::Payment | Kind::Delivery => Access::Write,
            Kind::OrderStatus | Kind::StockLevel => Access::Read,
        }
    }

    pub fn draw(rng: &mut Rng) -> Kind {
        let mut left = rng.u32(..100);
        for kind in Kind::ALL {
            match left.checked_sub(kind.share_percent()) {
                Some(rest) => left = rest,
                None => return kind,
            }
        }
        Kind::NewOrder
    }
}

/// One that has been drawn.
pub enum Drawn {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

impl Drawn {
    pub fn new(kind: Kind, terminal: &mut Terminal) -> Drawn {
        match kind {
            Kind::NewOrder => Drawn::NewOrder(NewOrder::draw(terminal, now_ms())),
            Kind::Payment => Drawn::Payment(Payment::draw(terminal, now_ms())),
            Kind::OrderStatus => Drawn::OrderStatus(OrderStatus::draw(terminal)),
            Kind::Delivery => Drawn::Delivery(Delivery::draw(terminal, now_ms())),
            Kind::StockLevel => Drawn::StockLevel(StockLevel::draw(terminal)),
        }
    }

    /// # Errors
    /// Those of the store; a row is missing that has to be there.
    pub fn run(&self, txn: &mut dyn Transaction) -> Result<Verdict> {
        match self {
            Drawn::NewOrder(drawn) => drawn.run(txn),
            Drawn::Payment(drawn) => drawn.run(txn),
            Drawn::OrderStatus(drawn) => drawn.run(txn),
            Drawn::Delivery(drawn) => drawn.run(txn),
            Drawn::StockLevel(drawn) => drawn.run(txn),
        }
    }
}
