//! The algorithms that there are, by name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::epoch::EpochSnapshotter;
use super::fork::ForkSnapshotter;
use super::seam::Snapshotter;
use super::spill::Spill;
use crate::space::MapError;

/// Which algorithm takes the cuts of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SnapshotKind {
    /// Write epochs, proactive capture by the writer, optimistic sweep.
    #[default]
    Epoch,
    /// `fork()`: the kernel copies the page table at the cut and pages at their first write. The baseline.
    Fork,
}

impl SnapshotKind {
    /// All of them, the default first.
    pub const ALL: [SnapshotKind; 2] = [SnapshotKind::Epoch, SnapshotKind::Fork];

    /// Their names, in the same order.
    pub const NAMES: [&'static str; SnapshotKind::ALL.len()] = {
        let mut names = [""; SnapshotKind::ALL.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = SnapshotKind::ALL[at].name();
            at += 1;
        }
        names
    };

    /// What settings, reports and the command line call it.
    pub const fn name(self) -> &'static str {
        match self {
            SnapshotKind::Epoch => "epoch",
            SnapshotKind::Fork => "fork",
        }
    }

    /// The algorithm, for a pool of at most `page_count` pages.
    pub(crate) fn build(
        self,
        page_count: u32,
        spill: Arc<dyn Spill>,
    ) -> Result<Arc<dyn Snapshotter>, MapError> {
        let epoch = EpochSnapshotter::new(page_count, spill)?;
        Ok(match self {
            SnapshotKind::Epoch => Arc::new(epoch),
            SnapshotKind::Fork => Arc::new(ForkSnapshotter::new(epoch)?),
        })
    }
}

impl fmt::Display for SnapshotKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no algorithm of that name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no snapshot algorithm '{name}', only {}", SnapshotKind::NAMES.join(", "))]
pub struct UnknownSnapshotKind {
    name: String,
}

impl FromStr for SnapshotKind {
    type Err = UnknownSnapshotKind;

    fn from_str(name: &str) -> Result<SnapshotKind, UnknownSnapshotKind> {
        let is_it = |kind: &SnapshotKind| kind.name() == name;
        SnapshotKind::ALL.into_iter().find(is_it).ok_or_else(|| UnknownSnapshotKind { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::SnapshotKind;

    #[test]
    fn names_lead_back_to_their_algorithms() {
        for kind in SnapshotKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!(SnapshotKind::default(), SnapshotKind::ALL[0]);
        let error = "spoon".parse::<SnapshotKind>().unwrap_err();
        assert_eq!(error.to_string(), "there is no snapshot algorithm 'spoon', only epoch, fork");
    }
}
