//! Updates, drawn afresh throughout: a short stream that is repeated would fit into a cache, and copying would look free.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::case::Draw;
use crate::error::{BenchError, Result};
use crate::load::workload::Permutation;

/// A word of a row that is to be written.
#[derive(Clone, Copy)]
pub struct Update {
    pub row: u32,
    pub word: u32,
}

pub struct Draws {
    rng: SmallRng,
    zipf: Option<(Zipf<f64>, Permutation)>,
    row_count: u32,
    row_words: u32,
}

impl Draws {
    pub fn new(draw: Draw, row_count: u32, row_len: usize, seed: u64) -> Result<Draws> {
        let zipf = match draw {
            Draw::Uniform => None,
            Draw::Zipf(exponent) => {
                let ranks = Zipf::new(f64::from(row_count), exponent)
                    .map_err(|error| BenchError::failed(&format!("zipf {exponent}"), error))?;
                Some((ranks, Permutation::new(row_count.into(), seed)))
            }
        };
        let rng = SmallRng::seed_from_u64(seed);
        Ok(Draws { rng, zipf, row_count, row_words: (row_len / 8) as u32 })
    }

    /// The updates of one tick, in place of the last one's.
    pub fn fill(&mut self, updates: &mut Vec<Update>, count: u32) {
        updates.clear();
        for _ in 0..count {
            let row = match &self.zipf {
                None => self.rng.random_range(0..self.row_count),
                Some((ranks, scatter)) => {
                    let rank = ranks.sample(&mut self.rng) as u64;
                    scatter.at(rank.clamp(1, self.row_count.into()) - 1) as u32
                }
            };
            updates.push(Update { row, word: self.rng.random_range(0..self.row_words) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn counts(draw: Draw) -> Vec<u32> {
        let mut draws = Draws::new(draw, 1000, 64, 7).unwrap();
        let (mut updates, mut counts) = (Vec::new(), BTreeMap::<u32, u32>::new());
        for _ in 0..10 {
            draws.fill(&mut updates, 1000);
            for update in &updates {
                assert!(update.row < 1000 && update.word < 8);
                *counts.entry(update.row).or_default() += 1;
            }
        }
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    #[test]
    fn a_zipf_stream_has_hot_rows_and_a_uniform_one_none() {
        assert!(counts(Draw::Uniform)[0] < 40);
        let hot: u32 = counts(Draw::Zipf(0.9)).iter().take(10).sum();
        assert!(hot > 1500, "{hot}");
    }
}
