//! The standard's random numbers and texts (clauses 2.1.6, 4.3.2).

use fastrand::Rng;

use super::schema::{Name, Scale, NAME_BYTES};

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const ALPHANUMERIC: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The constants C of NURand: one for each of its uses, the same throughout a run.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    last_name: u32,
    customer: u32,
    item: u32,
}

impl Constants {
    /// Of the load.
    pub fn of_load(rng: &mut Rng) -> Constants {
        Constants { last_name: rng.u32(..256), customer: rng.u32(..1024), item: rng.u32(..8192) }
    }

    /// Of a run over what was loaded with `load`: the last names' constant differs from that by 65 to 119, but not by 96
    /// or 112 (clause 2.1.6.1).
    pub fn of_run(rng: &mut Rng, load: Constants) -> Constants {
        let drawn = Constants::of_load(rng);
        let is_far = |constant: u32| {
            let distance = constant.abs_diff(load.last_name);
            (65..=119).contains(&distance) && distance != 96 && distance != 112
        };
        let allowed: Vec<u32> = (0..256).filter(|&constant| is_far(constant)).collect();
        Constants { last_name: allowed[rng.usize(..allowed.len())], ..drawn }
    }

    pub fn customer(&self, rng: &mut Rng, scale: Scale) -> u32 {
        nurand(rng, 1023, self.customer, 1, scale.customers)
    }

    pub fn item(&self, rng: &mut Rng, scale: Scale) -> u32 {
        nurand(rng, 8191, self.item, 1, scale.items)
    }

    pub fn last_name(&self, rng: &mut Rng, scale: Scale) -> Name {
        last_name(nurand(rng, 255, self.last_name, 0, scale.names() - 1))
    }
}

/// Not uniform: some are drawn far more often than others.
fn nurand(rng: &mut Rng, a: u32, constant: u32, low: u32, high: u32) -> u32 {
    let drawn = rng.u32(0..=a) | rng.u32(low..=high);
    (drawn + constant) % (high - low + 1) + low
}

/// Three syllables, one for each digit.
pub fn last_name(number: u32) -> Name {
    let syllable = |digit: u32| SYLLABLES[(number / digit % 10) as usize];
    name(&[syllable(100), syllable(10), syllable(1)].concat())
}

fn name(text: &str) -> Name {
    let mut bytes = [0; NAME_BYTES];
    let length = text.len().min(NAME_BYTES);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

/// Letters and digits.
pub fn text(rng: &mut Rng, lengths: std::ops::RangeInclusive<usize>) -> Vec<u8> {
    let length = rng.usize(lengths);
    (0..length).map(|_| ALPHANUMERIC[rng.usize(..ALPHANUMERIC.len())]).collect()
}

pub fn letters<const N: usize>(rng: &mut Rng) -> [u8; N] {
    std::array::from_fn(|_| ALPHANUMERIC[rng.usize(..ALPHANUMERIC.len())])
}

pub fn digits<const N: usize>(rng: &mut Rng) -> [u8; N] {
    std::array::from_fn(|_| b'0' + rng.u8(..10))
}

/// Of 26 to 50 letters and digits, a tenth of them with "ORIGINAL" somewhere in it.
pub fn data(rng: &mut Rng) -> Vec<u8> {
    const MARK: &[u8] = b"ORIGINAL";
    let mut data = text(rng, 26..=50);
    if rng.u8(..10) == 0 {
        let at = rng.usize(..=data.len() - MARK.len());
        data[at..at + MARK.len()].copy_from_slice(MARK);
    }
    data
}

pub fn first_name(rng: &mut Rng) -> Name {
    let text = text(rng, 8..=NAME_BYTES);
    std::array::from_fn(|at| text.get(at).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_three_syllables() {
        assert_eq!(&last_name(371)[..14], b"PRICALLYOUGHT\0");
        assert_eq!(&last_name(0)[..10], b"BARBARBAR\0");
    }

    #[test]
    fn numbers_are_in_range_and_not_uniform() {
        let mut rng = Rng::with_seed(stillframe_testkit::seed());
        let scale = Scale::standard(1);
        let load = Constants::of_load(&mut rng);
        let run = Constants::of_run(&mut rng, load);
        let distance = run.last_name.abs_diff(load.last_name);
        assert!((65..=119).contains(&distance) && distance != 96 && distance != 112, "{distance}");
        let mut counts = vec![0u32; scale.items as usize + 1];
        for _ in 0..1_000_000 {
            counts[run.item(&mut rng, scale) as usize] += 1;
            assert!((1..=scale.customers).contains(&run.customer(&mut rng, scale)));
        }
        assert_eq!(counts[0], 0);
        counts.sort_unstable();
        let hot: u32 = counts.iter().rev().take(scale.items as usize / 10).sum();
        // Uniform numbers would give little more than a tenth.
        assert!(hot > 300_000, "{hot} of a million in the hottest tenth");
    }
}
