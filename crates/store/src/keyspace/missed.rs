//! What an operation on several elements misses: brought in with one read, not one after the other.

use stillframe_pagepool::PageId;

use crate::{Fault, OpError};

/// Pages that are waited for together. All of them fit into the least memory that there can be.
const TOGETHER: usize = 256;

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
