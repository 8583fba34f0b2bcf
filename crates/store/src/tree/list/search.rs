//! Finding elements of a list by their bytes.
//!
//! An element has one form in a block: what says its length, and its bytes. So a block's bytes are searched for that form, many
//! at a time, wherever elements begin; that is asked only where the form has been found.

use std::ops::Range;

use memchr::memmem::Finder;

use super::block::{skip, Block, Element, ELEMENT_INLINE_MAX_BYTES};
use super::node::Child;
use super::path::Lists;
use super::read::Siblings;
use crate::blobs::{Blob, Bytes};
use crate::stop::{Follow, Stop};
use crate::tree::order::{bad_record, not_a_leaf};
use crate::tree::trees::Tree;

/// A block's state word is fetched so many blocks before the block itself, which is fetched while the one before is searched.
const LATCHES_AHEAD: usize = 4;
/// Bytes of a block that are fetched ahead: whoever reads them has the processor fetch the rest.
const BYTES_AHEAD: Range<usize> = 0..512;

/// What is looked for.
pub(crate) enum Wanted {
    /// Of the form that an element in a block has.
    Inline(Box<Finder<'static>>),
    /// Too long to lie in a block.
    Outside { len_bytes: u64 },
}

/// An element that is wanted, or has the length of what is and lies outside.
struct Match {
    /// In its block.
    index: usize,
    outside: Option<Blob>,
}

impl Wanted {
    pub fn new(bytes: &Bytes<'_>) -> Wanted {
        let Some(bytes) = bytes.here().filter(|bytes| bytes.len() <= ELEMENT_INLINE_MAX_BYTES) else {
            return Wanted::Outside { len_bytes: bytes.len() };
        };
        let element = Element::Inline(bytes);
        let mut form = vec![0; element.encoded_bytes()];
        element.encode(&mut form);
        Wanted::Inline(Box::new(Finder::new(&form).into_owned()))
    }

    /// Adds those of a range of a block's elements to `matches`. `None` if one is malformed.
    fn find_in(&self, block: Block<'_>, range: Range<usize>, matches: &mut Vec<Match>) -> Option<()> {
        match self {
            Wanted::Inline(finder) => find_form(finder, block, range, matches),
            Wanted::Outside { len_bytes } => {
                for (index, element) in range.clone().zip(block.elements(range.start)) {
                    match element? {
                        Element::Outside(blob) if u64::from(blob.len_bytes) == *len_bytes => {
                            matches.push(Match { index, outside: Some(blob) });
                        }
                        _ => {}
                    }
                }
                Some(())
            }
        }
    }
}

fn find_form(
    finder: &Finder<'_>,
    block: Block<'_>,
    range: Range<usize>,
    matches: &mut Vec<Match>,
) -> Option<()> {
    let bytes = block.bytes_from(range.start)?;
    let (mut index, mut at) = (range.start, 0);
    while index < range.end {
        let Some(hit) = finder.find(&bytes[at..]).map(|hit| at + hit) else { break };
        // It may lie within an element, or reach from one into the next. The search goes on behind that.
        while at < hit && index < range.end {
            at = skip(bytes, at, 1)?;
            index += 1;
        }
        while index < range.end && bytes[at..].starts_with(finder.needle()) {
            matches.push(Match { index, outside: None });
            at += finder.needle().len();
            index += 1;
        }
    }
    Some(())
}

impl Lists {
    /// Gives `f` the indices of elements that are wanted, of a range, in order or the last first, until it says no. Of one that
    /// lies outside `f` is given where, and compares it: only the lengths are the same. What has been searched is taken off
    /// the range, so that a search which was stopped goes on with what is left.
    ///
    /// # Errors
    /// A page is missing or damaged; that of `f`.
    pub fn search(
        &self,
        tree: Tree,
        wanted: &Wanted,
        left: &mut Range<u64>,
        is_upwards: bool,
        mut f: impl FnMut(u64, Option<Blob>) -> Result<bool, Stop>,
    ) -> Result<(), Stop> {
        let mut matches = Vec::new();
        while !left.is_empty() {
            let (before, next) = (left.clone(), if is_upwards { left.start } else { left.end - 1 });
            // Nobody changes a list whose key is locked: what a node says stays true without its latch.
            let Siblings { blocks, mut first } = self.siblings(tree, next, is_upwards)?;
            for (at, block) in blocks.iter().enumerate() {
                self.fetch_ahead(&blocks[at + 1..]);
                let elements = u64::from(block.elements);
                if !is_upwards && at > 0 {
                    first = first.saturating_sub(elements);
                }
                let inside = left.start.max(first)..left.end.min(first + elements);
                // Elements that a list ends before are met from behind as well.
                if inside.is_empty() || (!is_upwards && inside.end < left.end) {
                    break;
                }
                let range = (inside.start - first) as usize..(inside.end - first) as usize;
                self.search_block(tree, *block, range, wanted, &mut matches)?;
                if !is_upwards {
                    matches.reverse();
                }
                for Match { index, outside } in matches.drain(..) {
                    let index = first + index as u64;
                    let goes_on = f(index, outside)?;
                    take_off(left, index..index + 1, is_upwards);
                    if !goes_on {
                        return Ok(());
                    }
                }
                take_off(left, inside, is_upwards);
                if is_upwards {
                    first += elements;
                }
            }
            if *left == before {
                return Err(Stop::Damaged("a list has fewer items than its key says".into()));
            }
        }
        Ok(())
    }

    fn search_block(
        &self,
        tree: Tree,
        child: Child,
        range: Range<usize>,
        wanted: &Wanted,
        matches: &mut Vec<Match>,
    ) -> Result<(), Stop> {
        let guard = self.pool.follow_shared(child.pid)?;
        let block = Block::new(guard.page())
            .filter(|block| block.tag() == tree.tag && block.count() == child.elements as usize);
        let block = block.ok_or_else(|| not_a_leaf(child.pid))?;
        let is_whole = range.len() == block.count();
        wanted.find_in(block, range, matches).ok_or_else(|| bad_record(child.pid))?;
        self.let_go(guard, is_whole);
        Ok(())
    }

    fn fetch_ahead(&self, blocks: &[Child]) {
        if let Some(block) = blocks.get(LATCHES_AHEAD) {
            self.pool.hints().latch(block.pid);
        }
        if let Some(block) = blocks.first() {
            self.pool.hints().lines(block.pid, BYTES_AHEAD);
        }
    }
}

/// Takes what has been searched off the range that is left.
fn take_off(left: &mut Range<u64>, searched: Range<u64>, is_upwards: bool) {
    match is_upwards {
        true => left.start = searched.end,
        false => left.end = searched.start,
    }
}
