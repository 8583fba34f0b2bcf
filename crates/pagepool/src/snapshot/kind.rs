//! The algorithms that there are, by name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use stillframe_algorithms::physical::{Cou, Hourglass, Naive, Piggyback, PingPong, Zigzag};

use super::epoch::EpochSnapshotter;
use super::fork::ForkSnapshotter;
use super::physical::{Physical, PoolAlgorithm, WaitForTurns};
use super::seam::Snapshotter;
use super::spill::Spill;
use crate::space::{MapError, PoolBackend};
use crate::{Unserved, PAGE_SIZE};

/// Rows of an algorithm for each page that fits into the machine's memory: page numbers have gaps.
const ROWS_PER_MEMORY_PAGE: u64 = 4;
const MIN_ROWS: u64 = 1 << 20;

/// Which algorithm takes the cuts of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SnapshotKind {
    /// Write epochs, proactive capture by the writer, optimistic sweep.
    #[default]
    Epoch,
    /// `fork()`: the kernel copies the page table at the cut and pages at their first write. The baseline.
    Fork,
    /// The cut copies what the stream needs.
    Naive,
    /// Copy-on-update: writer or saver copies a page, whoever is first.
    Cou,
    /// Two places a page, and bits that say which is read and which is written.
    Zigzag,
    /// Each write goes to one of two update copies, too, of which the cut swaps the roles.
    Pingpong,
    /// Two places a page, whose roles the cut swaps; only what was written in a period is looked at.
    Hourglass,
    /// Two places a page, whose roles the cut swaps; made equal in the background.
    Piggyback,
}

impl SnapshotKind {
    /// All of them, the default first.
    pub const ALL: [SnapshotKind; 8] = [
        SnapshotKind::Epoch,
        SnapshotKind::Fork,
        SnapshotKind::Naive,
        SnapshotKind::Cou,
        SnapshotKind::Zigzag,
        SnapshotKind::Pingpong,
        SnapshotKind::Hourglass,
        SnapshotKind::Piggyback,
    ];

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
            SnapshotKind::Naive => "naive",
            SnapshotKind::Cou => "cou",
            SnapshotKind::Zigzag => "zigzag",
            SnapshotKind::Pingpong => "pingpong",
            SnapshotKind::Hourglass => "hourglass",
            SnapshotKind::Piggyback => "piggyback",
        }
    }

    /// Whether it keeps a page in one of two places in turn.
    pub const fn has_two_places(self) -> bool {
        matches!(self, SnapshotKind::Zigzag | SnapshotKind::Hourglass | SnapshotKind::Piggyback)
    }

    /// Whether it holds copies of pages when no snapshot is being taken, too.
    pub const fn holds_between_streams(self) -> bool {
        self.has_two_places() || matches!(self, SnapshotKind::Pingpong)
    }

    /// Whether pages that a cut needs may leave memory, and come back.
    pub const fn takes_evictions(self) -> bool {
        matches!(self, SnapshotKind::Epoch)
    }

    /// Whether a pool can be served like this: where its pages lie, and whether there is a bound of those in memory.
    ///
    /// # Errors
    /// [`Unserved`], which says why not.
    pub fn check(self, backend: PoolBackend, is_bounded: bool) -> Result<(), Unserved> {
        if self.has_two_places() && backend != PoolBackend::Array {
            return Err(Unserved::TwoPlaces { kind: self.name(), backend });
        }
        if self == SnapshotKind::Fork && backend == PoolBackend::Exmap {
            return Err(Unserved::Child { kind: self.name(), backend });
        }
        // `fork` has always taken such a bound as none.
        if is_bounded && !self.takes_evictions() && self != SnapshotKind::Fork {
            return Err(Unserved::Bounded { kind: self.name() });
        }
        Ok(())
    }

    /// The algorithm, for a pool of at most `page_count` pages. `wait_for_turns` returns once each member of the barrier has
    /// been between two commands.
    pub(crate) fn build(
        self,
        page_count: u32,
        spill: Arc<dyn Spill>,
        wait_for_turns: WaitForTurns,
    ) -> Result<Arc<dyn Snapshotter>, MapError> {
        let views = EpochSnapshotter::new(page_count, spill)?;
        Ok(match self {
            SnapshotKind::Epoch => Arc::new(views),
            SnapshotKind::Fork => Arc::new(ForkSnapshotter::new(views)?),
            SnapshotKind::Naive => physical::<Naive>(page_count, views, wait_for_turns)?,
            SnapshotKind::Cou => physical::<Cou>(page_count, views, wait_for_turns)?,
            SnapshotKind::Zigzag => physical::<Zigzag>(page_count, views, wait_for_turns)?,
            SnapshotKind::Pingpong => physical::<PingPong>(page_count, views, wait_for_turns)?,
            SnapshotKind::Hourglass => physical::<Hourglass>(page_count, views, wait_for_turns)?,
            SnapshotKind::Piggyback => physical::<Piggyback>(page_count, views, wait_for_turns)?,
        })
    }
}

fn physical<A: PoolAlgorithm + 'static>(
    page_count: u32,
    views: EpochSnapshotter,
    wait_for_turns: WaitForTurns,
) -> Result<Arc<dyn Snapshotter>, MapError> {
    let system = rustix::system::sysinfo();
    let memory_pages = system.totalram as u64 * u64::from(system.mem_unit) / PAGE_SIZE as u64;
    let row_limit = (memory_pages * ROWS_PER_MEMORY_PAGE).max(MIN_ROWS).min(u64::from(page_count)) as u32;
    Ok(Arc::new(Physical::<A>::new(page_count, row_limit, views, wait_for_turns)?))
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
    use super::{PoolBackend, SnapshotKind};

    #[test]
    fn names_lead_back_to_their_algorithms() {
        for kind in SnapshotKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!(SnapshotKind::default(), SnapshotKind::ALL[0]);
        let error = "spoon".parse::<SnapshotKind>().unwrap_err();
        let names = "epoch, fork, naive, cou, zigzag, pingpong, hourglass, piggyback";
        assert_eq!(error.to_string(), format!("there is no snapshot algorithm 'spoon', only {names}"));
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_the_reason() {
        for kind in SnapshotKind::ALL {
            assert_eq!(kind.check(PoolBackend::Array, false), Ok(()));
            assert_eq!(kind.check(PoolBackend::Vmcache, false).is_ok(), !kind.has_two_places());
        }
        let error = SnapshotKind::Hourglass.check(PoolBackend::Vmcache, false).unwrap_err().to_string();
        assert!(error.contains("'hourglass'") && error.contains("two places"), "{error}");
        let error = SnapshotKind::Cou.check(PoolBackend::Array, true).unwrap_err().to_string();
        assert!(error.contains("'cou' needs all data in memory"), "{error}");
        assert_eq!(SnapshotKind::Epoch.check(PoolBackend::Vmcache, true), Ok(()));
    }
}
