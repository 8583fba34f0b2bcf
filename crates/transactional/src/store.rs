//! A store: rows, sessions and snapshots.

use parking_lot::Mutex;

use crate::core::Core;
use crate::image::Image;
use crate::probe::Probe;
use crate::row::{RowId, Shape};
use crate::seam::Algorithm;
use crate::session::Session;
use crate::snapshot::{Cut, CutReport, CutState};

/// Rows in memory under one of the algorithms.
pub struct Store<A: Algorithm> {
    core: Core<A>,
    cut: Mutex<CutState>,
}

impl<A: Algorithm> Store<A> {
    /// All rows zero.
    #[must_use]
    pub fn new(shape: Shape) -> Store<A> {
        Store::with_probe(shape, Probe::default())
    }

    /// A store that makes a mistake, or stops at points, if there is the feature `mutations`.
    #[must_use]
    pub fn with_probe(shape: Shape, probe: Probe) -> Store<A> {
        Store { core: Core::new(shape, probe), cut: Mutex::new(CutState::new()) }
    }

    #[must_use]
    pub fn shape(&self) -> Shape {
        self.core.shape
    }

    #[must_use]
    pub fn session(&self) -> Session<'_, A> {
        Session::new(&self.core)
    }

    /// Begins a snapshot, which takes its steps when it is told to. Waits for the one before.
    #[must_use]
    pub fn begin_cut(&self) -> Cut<'_, A> {
        Cut::new(&self.core, self.cut.lock())
    }

    /// A whole snapshot.
    ///
    /// # Errors
    /// That of the image. It is void then, and the next one has all that it would have had.
    pub fn snapshot<I: Image>(&self, image: &mut I) -> Result<CutReport, I::Error> {
        let mut cut = self.begin_cut();
        let accessed = cut.access(image);
        let report = cut.finish();
        accessed.map(|()| report)
    }

    /// A row with a flag or a second copy that the last cut has left behind, if there is one. Waits for a cut under way.
    #[must_use]
    pub fn first_unclean(&self) -> Option<RowId> {
        let state = self.cut.lock();
        self.core.algorithm.first_unclean(state.last_cut())
    }

    /// A row that somebody has locked.
    #[must_use]
    pub fn first_locked(&self) -> Option<RowId> {
        self.core.shape.rows().find(|row| !self.core.lock(*row).is_free())
    }

    /// Memory of rows, copies, flags and locks. It is all there from the beginning.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.core.bytes()
    }
}
