//! Which rows transactions take.

use rand::rngs::SmallRng;
use rand::Rng;
use rand_distr::{Distribution, Zipf};

use crate::row::RowId;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Keys {
    Uniform,
    /// The hot rows are scattered over all.
    Zipf {
        exponent: f64,
    },
}

/// Fresh draws.
#[derive(Clone)]
pub struct Draw {
    row_count: u32,
    ranks: Option<Zipf<f64>>,
}

/// A prime above any number of rows that fits in memory, so that each rank has a row of its own.
const SCATTER: u64 = 4_294_967_311;

impl Draw {
    /// The exponent is returned if there is no such distribution.
    pub fn new(keys: Keys, row_count: u32) -> Result<Draw, f64> {
        let ranks = match keys {
            Keys::Uniform => None,
            Keys::Zipf { exponent } => {
                let ranks = Zipf::new(f64::from(row_count), exponent);
                Some(ranks.map_err(|_| exponent)?)
            }
        };
        Ok(Draw { row_count, ranks })
    }

    #[inline]
    pub fn row(&self, rng: &mut SmallRng) -> RowId {
        let row_count = u64::from(self.row_count);
        let Some(ranks) = &self.ranks else { return RowId(rng.random_range(0..self.row_count)) };
        let rank = (ranks.sample(rng) as u64).clamp(1, row_count) - 1;
        // Below the number of rows, which has 32 bits.
        RowId(((u128::from(rank) * u128::from(SCATTER) + 12_345) % u128::from(row_count)) as u32)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn hot_rows_are_few_and_scattered() {
        let draw = Draw::new(Keys::Zipf { exponent: 0.99 }, 1000).unwrap();
        let mut rng = SmallRng::seed_from_u64(1);
        let mut hits = vec![0_u32; 1000];
        (0..20_000).for_each(|_| hits[draw.row(&mut rng).0 as usize] += 1);
        let mut rows: Vec<usize> = (0..1000).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(hits[*row]));
        assert!(rows[..10].iter().map(|row| hits[*row]).sum::<u32>() > 6000);
        assert!(rows[0].abs_diff(rows[1]) > 1);
        assert_eq!(Draw::new(Keys::Zipf { exponent: -1.0 }, 10).err(), Some(-1.0));
    }
}
