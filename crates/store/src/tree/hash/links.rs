//! From one leaf of a chain to the next. Damaged leaves may make a circle.

use stillframe_pagepool::PageId;

use super::leaf::Leaf;
use crate::stop::Stop;
use crate::tree::order::not_a_leaf;

/// The way along a chain. It remembers one leaf, after each power of two another: of a circle that is not larger than the way so
/// far it meets that one again.
#[derive(Default)]
pub(crate) struct Links {
    count: u32,
    /// The leaf that is remembered, or 0.
    met: u32,
}

impl Links {
    /// The leaf behind the one that is there, if there is one.
    ///
    /// # Errors
    /// [`Stop::Damaged`]: the chain is a circle.
    #[inline(always)]
    pub fn after(&mut self, pid: PageId, leaf: Leaf<'_>) -> Result<Option<PageId>, Stop> {
        match leaf.chain() {
            0 => Ok(None),
            next => self.step(pid, PageId(next)).map(Some),
        }
    }

    #[cold]
    fn step(&mut self, pid: PageId, next: PageId) -> Result<PageId, Stop> {
        if next == pid || next.0 == self.met {
            return Err(not_a_leaf(next));
        }
        self.count = self.count.wrapping_add(1);
        if self.count.is_power_of_two() {
            self.met = next.0;
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PAGE_SIZE;
    use crate::tree::hash::leaf::LeafMut;

    /// Goes along a chain in which each leaf leads to the next, and the last one to `back`. The steps, and how it ended.
    fn walk(length: u32, back: u32) -> (u32, Result<(), Stop>) {
        let (mut page, mut links, mut pid) = ([0; PAGE_SIZE], Links::default(), PageId(1));
        for step in 0.. {
            LeafMut::init(&mut page, 1, 0, 9, 0).set_chain(if pid.0 == length { back } else { pid.0 + 1 });
            match links.after(pid, Leaf::new(&page).unwrap()) {
                Ok(Some(next)) => pid = next,
                Ok(None) => return (step, Ok(())),
                Err(stop) => return (step, Err(stop)),
            }
        }
        unreachable!("it ends")
    }

    #[test]
    fn circles_are_found_and_chains_have_an_end() {
        for length in 1..70 {
            assert!(matches!(walk(length, 0), (steps, Ok(())) if steps + 1 == length));
            for back in 1..=length {
                let (steps, end) = walk(length, back);
                assert!(matches!(end, Err(Stop::Damaged(_))) && steps < 4 * length + 4, "{length} {back}");
            }
        }
    }
}
