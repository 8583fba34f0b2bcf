//! Where transactions come from.

use fastrand::Rng;

use crate::tpcc::random::Constants;
use crate::tpcc::schema::{Scale, DISTRICTS};

/// What transactions are drawn from.
pub struct Terminal {
    pub rng: Rng,
    pub scale: Scale,
    pub constants: Constants,
    /// Makes the keys of its history rows its own.
    pub session: u32,
    pub payment_count: u64,
}

impl Terminal {
    pub fn warehouse(&mut self) -> u32 {
        self.rng.u32(1..=self.scale.warehouses)
    }

    /// Any other, if there is one.
    pub fn other_warehouse(&mut self, home: u32) -> u32 {
        if self.scale.warehouses == 1 {
            return home;
        }
        let drawn = self.rng.u32(1..self.scale.warehouses);
        drawn + u32::from(drawn >= home)
    }

    pub fn district(&mut self) -> u8 {
        self.rng.u8(1..=DISTRICTS)
    }
}
