//! Spinning before blocking.

/// Spinning before blocking (`busy-poll`), as long as it pays.
pub struct Spin {
    /// Of the last spins, in 1/256: how many found something.
    payoff: u32,
    /// Rounds to go without spinning.
    pause_rounds: u32,
}

const SPIN_PAYOFF_ONE: u32 = 256;
const SPIN_PAYOFF_LEAST: u32 = SPIN_PAYOFF_ONE / 2;
const SPIN_PAUSE_ROUNDS: u32 = 1000;

impl Default for Spin {
    fn default() -> Self {
        Spin { payoff: SPIN_PAYOFF_ONE, pause_rounds: 0 }
    }
}

impl Spin {
    pub fn is_on(&mut self) -> bool {
        if self.pause_rounds > 0 {
            self.pause_rounds -= 1;
            if self.pause_rounds == 0 {
                self.payoff = SPIN_PAYOFF_ONE;
            }
        }
        self.pause_rounds == 0
    }

    pub fn learn(&mut self, found: bool) {
        self.payoff = (self.payoff * 31 + if found { SPIN_PAYOFF_ONE } else { 0 }) / 32;
        if self.payoff < SPIN_PAYOFF_LEAST {
            self.pause_rounds = SPIN_PAUSE_ROUNDS;
        }
    }
}
