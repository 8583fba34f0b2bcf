//! Which pages go first: second chance, as in vmcache (section 3.4). The mark is in the pages' state words.

use crate::page::{Mark, Met};
use crate::snapshot::Core;
use crate::PageId;

/// Pages looked at before who waits hears of it, if none of them can go.
const LOOKS_MAX: u32 = 1 << 20;

/// Where the clock's hand is.
#[derive(Default)]
pub struct Clock {
    /// Runs of page numbers that have ever been in use, `[start, end)`, as of the last time round.
    ranges: Vec<(u32, u32)>,
    /// Index into `ranges`, and the next page there.
    at: (usize, u32),
    /// Times round since a page was last found idle.
    idle_rounds: u32,
}

impl Clock {
    /// Up to `count` pages in memory that may go and that nobody has touched since the hand last came by; those touched are
    /// marked on the way. Fewer if none were found in so many times round, or after a million looks.
    pub fn pick(
        &mut self,
        core: &Core,
        ranges: impl Fn() -> Vec<(u32, u32)>,
        count: usize,
        round_count: u32,
        may_go: impl Fn(PageId) -> bool,
    ) -> Vec<(PageId, Mark)> {
        let mut picked = Vec::with_capacity(count);
        self.idle_rounds = 0;
        for _ in 0..LOOKS_MAX {
            let Some(page) = self.next(&ranges, round_count) else { break };
            let descriptor = core.pages.descriptor(page);
            let Met::Idle(mark) = descriptor.state.meet() else { continue };
            if may_go(page) {
                picked.push((page, mark));
                self.idle_rounds = 0;
                if picked.len() == count {
                    break;
                }
            }
        }
        picked
    }

    /// Moves the hand; `None` after so many times round in vain.
    fn next(&mut self, ranges: &impl Fn() -> Vec<(u32, u32)>, round_count: u32) -> Option<PageId> {
        loop {
            let (index, page) = self.at;
            match self.ranges.get(index) {
                Some(&(start, end)) if page.max(start) < end => {
                    let page = page.max(start);
                    self.at = (index, page + 1);
                    return Some(PageId(page));
                }
                Some(_) => self.at = (index + 1, 0),
                None => {
                    self.idle_rounds += 1;
                    if self.idle_rounds > round_count {
                        return None;
                    }
                    self.ranges = ranges();
                    self.at = (0, 0);
                }
            }
        }
    }
}
