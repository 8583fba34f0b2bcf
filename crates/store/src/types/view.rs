//! The elements of a collection as a view gives them: from copies of pages, a leaf at a time.

use std::borrow::Cow;

use crate::error::SaveError;
use crate::rdb::{Announced, SmallLimits, Tally};
use crate::tree::hash::Content;
use crate::tree::{blank, LeafWalk};
use crate::types::kind::{Each, Kind};
use crate::types::kinds;
use crate::types::viewed::{damaged, read_blob};
use crate::value::ValueType;
use crate::walk::CollectionView;
use crate::{Encoding, UnixMillis};

impl CollectionView<'_> {
    pub fn value_type(&self) -> ValueType {
        self.value_type
    }

    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Whether elements have deadlines.
    pub fn is_timed(&self) -> bool {
        self.earliest.is_some()
    }

    /// Elements that there are, expired ones included.
    ///
    /// # Errors
    /// Packed elements that cannot be read.
    pub fn element_count(&self) -> Result<u64, SaveError> {
        match self.content {
            Content::Trees(grown) => Ok(grown.element_count),
            _ => {
                let mut count = 0;
                self.for_each(&mut |_| {
                    count += 1;
                    Ok(())
                })?;
                Ok(count)
            }
        }
    }

    /// Gives all elements to `f`: those of a list in their order, those of a sorted set by score, others in any.
    ///
    /// # Errors
    /// A page that cannot be read, or what `f` says.
    pub fn for_each(&self, f: Each<'_>) -> Result<(), SaveError> {
        let kind = self.kind()?;
        let Content::Trees(grown) = self.content else {
            return kind.for_each_packed(&self.run()?, self.is_timed(), f);
        };
        let (mut walk, mut page) = (LeafWalk::new(kind.tree_of_elements(&grown)?), blank());
        while let Some(pid) = walk.next_leaf(self.pages, &mut page)? {
            kind.for_each_in_leaf(self.pages, pid, &page, f)?;
        }
        Ok(())
    }

    /// What a dump says before the elements whose time is not over at `now`. That takes a round over those of a list, and of a
    /// collection with deadlines.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn announced(&self, limits: &SmallLimits, now: UnixMillis) -> Result<Announced, SaveError> {
        let (kind, is_small) = (self.kind()?.dumped_as(), self.encoding.is_small());
        let is_counted = !self.is_timed() && !kind.has_nodes();
        if is_counted {
            return Ok(Tally::of_count(kind, is_small, self.element_count()?));
        }
        let mut tally = Tally::new(kind, is_small, limits);
        self.for_each(&mut |element| {
            if element.is_live(now) {
                tally.add(&element);
            }
            Ok(())
        })?;
        Ok(tally.announced())
    }

    fn kind(&self) -> Result<&'static dyn Kind, SaveError> {
        kinds::of(self.value_type).ok_or_else(|| damaged("a collection"))
    }

    /// The elements of a packed one.
    pub(super) fn run(&self) -> Result<Cow<'_, [u8]>, SaveError> {
        match self.content {
            Content::Packed(run) => Ok(Cow::Borrowed(run)),
            Content::Outside(blob) => {
                let mut run = Vec::new();
                read_blob(self.pages, &blob, &mut run)?;
                Ok(Cow::Owned(run))
            }
            Content::Trees(_) => Err(damaged("a collection")),
        }
    }
}
