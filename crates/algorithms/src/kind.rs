//! The physical algorithms, by name.

use std::fmt;
use std::str::FromStr;

use crate::hooks::Hooks;
use crate::physical::{
    Cou, Epoch, EpochOptions, EpochParts, Hourglass, Naive, Piggyback, PingPong, Zigzag, LONG_ROW_LEN,
};
use crate::rows::{Copies, WordCopies};
use crate::seam::Algorithm;

/// A physical snapshot algorithm of this crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PhysicalKind {
    /// The cut copies everything.
    Naive,
    /// Copy-on-update: the first write of a row after a cut copies it aside.
    Cou,
    /// Two copies; bits say for each row which is read and which is written.
    Zigzag,
    /// Each write twice, to the data and to the update copy of the period; incremental.
    PingPong,
    /// Two copies that swap their roles at the cut; incremental.
    Hourglass,
    /// The same, and in the background the copy that is written is made complete.
    Piggyback,
    /// Write epochs, spare frames, an optimistic sweep: ours. Of long rows that are written in parts, writers keep parts.
    Epoch,
}

impl PhysicalKind {
    pub const ALL: [PhysicalKind; 7] = [
        PhysicalKind::Naive,
        PhysicalKind::Cou,
        PhysicalKind::Zigzag,
        PhysicalKind::PingPong,
        PhysicalKind::Hourglass,
        PhysicalKind::Piggyback,
        PhysicalKind::Epoch,
    ];

    /// Their names, in the same order.
    pub const NAMES: [&'static str; PhysicalKind::ALL.len()] = {
        let mut names = [""; PhysicalKind::ALL.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = PhysicalKind::ALL[at].name();
            at += 1;
        }
        names
    };

    /// What settings, reports and the command line call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PhysicalKind::Naive => "naive",
            PhysicalKind::Cou => "cou",
            PhysicalKind::Zigzag => "zigzag",
            PhysicalKind::PingPong => "pingpong",
            PhysicalKind::Hourglass => "hourglass",
            PhysicalKind::Piggyback => "piggyback",
            PhysicalKind::Epoch => "epoch",
        }
    }

    /// Makes the algorithm and gives it to `user`.
    pub fn build<C: WordCopies, U: WithAlgorithm<C>>(self, options: KindOptions<C>, user: U) -> U::Output {
        let KindOptions { row_count, row_len, writes_whole_rows, epoch, hooks } = options;
        match self {
            PhysicalKind::Naive => user.with(Naive::new(row_count)),
            PhysicalKind::Cou => user.with(Cou::with_hooks(row_count, hooks)),
            PhysicalKind::Zigzag => user.with(Zigzag::with_hooks(row_count, hooks)),
            PhysicalKind::PingPong => user.with(PingPong::with_hooks(row_count, hooks)),
            PhysicalKind::Hourglass => user.with(Hourglass::with_hooks(row_count, hooks)),
            PhysicalKind::Piggyback => user.with(Piggyback::with_hooks(row_count, hooks)),
            PhysicalKind::Epoch if row_len >= LONG_ROW_LEN && !writes_whole_rows => {
                user.with(EpochParts::with_hooks(row_count, row_len, epoch, hooks))
            }
            PhysicalKind::Epoch => user.with(Epoch::with_hooks(row_count, epoch, hooks)),
        }
    }
}

/// What any of the algorithms is made with.
pub struct KindOptions<C> {
    /// The most rows that there will be.
    pub row_count: u32,
    /// Bytes of a row.
    pub row_len: usize,
    /// Whether most writes are of whole rows. Each algorithm is right with both; `epoch` does not keep long rows in parts then.
    pub writes_whole_rows: bool,
    /// Only `epoch` looks at them.
    pub epoch: EpochOptions<C>,
    pub hooks: Hooks,
}

/// What is done with an algorithm that is known by name only: compiled for each of them.
pub trait WithAlgorithm<C: Copies> {
    type Output;

    fn with<A: Algorithm<C>>(self, algorithm: A) -> Self::Output;
}

impl fmt::Display for PhysicalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no algorithm of that name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no physical snapshot algorithm '{name}', only {}", PhysicalKind::NAMES.join(", "))]
pub struct UnknownPhysicalKind {
    name: String,
}

impl FromStr for PhysicalKind {
    type Err = UnknownPhysicalKind;

    fn from_str(name: &str) -> Result<PhysicalKind, UnknownPhysicalKind> {
        let is_it = |kind: &PhysicalKind| kind.name() == name;
        PhysicalKind::ALL.into_iter().find(is_it).ok_or_else(|| UnknownPhysicalKind { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::PhysicalKind;

    #[test]
    fn names_lead_back_to_their_algorithms() {
        for kind in PhysicalKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "spoon".parse::<PhysicalKind>().unwrap_err().to_string();
        assert!(error.ends_with(&PhysicalKind::NAMES.join(", ")), "{error}");
    }
}
