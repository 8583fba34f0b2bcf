//! What an operation on several elements misses: brought in with one read, not one after the other.

use stillframe_pagepool::PageId;

use super::op::Op;
use crate::{Fault, OpError};

/// Pages that are waited for together. All of them fit into the least memory that there can be.
const TOGETHER: usize = 256;

/// Between the random numbers of two draws: no multiple of the generator's own step.
const DRAW_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Random draws of which each is what it is whatever those before it have missed, so that what they miss comes together.
pub(crate) struct Draws {
    /// `None`: nothing can be missed.
    seed: Option<u64>,
    missed: Missed,
    /// Draws that have missed pages.
    pub missed_count: u64,
}

impl Draws {
    pub fn begin(all_resident: bool) -> Draws {
        let seed = (!all_resident).then(|| fastrand::u64(..));
        Draws { seed, missed: Missed::default(), missed_count: 0 }
    }

    /// # Errors
    /// As of [`Missed::look`].
    pub fn next<R>(
        &mut self,
        op: &mut Op<'_>,
        draw: impl FnOnce(&mut Op<'_>) -> Result<R, OpError>,
    ) -> Result<Option<R>, OpError> {
        if let Some(seed) = &mut self.seed {
            *seed = seed.wrapping_add(DRAW_STEP);
            fastrand::seed(*seed);
            op.local.forget_drawn();
        }
        let drawn = self.missed.look(draw(op))?;
        self.missed_count += u64::from(drawn.is_none());
        Ok(drawn)
    }

    /// # Errors
    /// As of [`Missed::end`].
    pub fn end(mut self) -> Result<(), OpError> {
        self.missed.end()
    }
}

/// Pages that looks at some elements have missed.
#[derive(Default)]
pub(crate) struct Missed(Vec<PageId>);

impl Missed {
    /// Takes what a look has given. `None`: it has missed pages, and others are looked for all the same.
    ///
    /// # Errors
    /// Those of the look; [`OpError::Fault`] once enough is missing.
    #[inline]
    pub fn look<R>(&mut self, looked: Result<R, OpError>) -> Result<Option<R>, OpError> {
        match looked {
            Ok(found) => Ok(Some(found)),
            Err(OpError::Fault(fault)) if fault.page_count() > 0 => {
                fault.add_to(&mut self.0);
                match self.0.len() < TOGETHER {
                    true => Ok(None),
                    false => self.end().map(|()| None),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// # Errors
    /// [`OpError::Fault`] if anything has been missed.
    pub fn end(&mut self) -> Result<(), OpError> {
        let mut pages = std::mem::take(&mut self.0);
        pages.sort_unstable();
        pages.dedup();
        match pages.is_empty() {
            true => Ok(()),
            false => Err(Fault::of(pages).into()),
        }
    }
}
