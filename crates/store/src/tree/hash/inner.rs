//! An inner node: a page of 512 words, read and written through relaxed atomics by optimistic readers.
//!
//! ```text
//! word 0         kind u8 | level u8 | count u16 | tag u32 (bits 0, 8, 16, 32); level 1 is above the leaves
//! word 1         hi: greatest hash below the node, inclusive
//! word 2         scale: count * 2^64 / width of the range, for interpolation
//! words 3..342   separators: least hash below each child; the first is the node's own least hash
//! words 342..512 children, two page ids a word, the lower in the low half
//! ```
//!
//! Hashes are uniform, so the child is looked for where it should be, then step by step, then by bisection.
//! A racing reader may see any mixture of words: nothing here panics on one; the caller validates.

use crate::page::KIND_INNER;
use crate::tree::words::{Words, WordsMut};

/// Children of a full node.
pub(crate) const FANOUT: usize = 339;
const HI: usize = 1;
const SCALE: usize = 2;
const SEPARATORS: usize = 3;
const CHILDREN: usize = SEPARATORS + FANOUT;
const STEP_MAX: usize = 12;

/// A node's words as a node.
pub(crate) trait Inner: Words {
    #[inline(always)]
    fn is_inner(&self, tag: u32) -> bool {
        let word = self.word(0);
        word as u8 == KIND_INNER && (word >> 32) as u32 == tag
    }

    /// Number of children, at least 1 and at most [`FANOUT`] whatever the page holds.
    #[inline(always)]
    fn child_count(&self) -> usize {
        ((self.word(0) >> 16) as u16 as usize).clamp(1, FANOUT)
    }

    #[inline(always)]
    fn lo(&self) -> u64 {
        self.word(SEPARATORS)
    }

    #[inline(always)]
    fn hi(&self) -> u64 {
        self.word(HI)
    }

    #[inline(always)]
    fn separator(&self, index: usize) -> u64 {
        self.word(SEPARATORS + index)
    }

    #[inline(always)]
    fn child(&self, index: usize) -> u32 {
        (self.word(CHILDREN + index / 2) >> (32 * (index % 2))) as u32
    }

    /// Whether the count is one that a node may have, and the separators ascend within its range.
    fn is_whole(&self) -> bool {
        let count = self.child_count();
        let are_sorted = (1..count).all(|index| self.separator(index - 1) < self.separator(index));
        let is_counted = (self.word(0) >> 16) as u16 as usize == count;
        is_counted && are_sorted && self.separator(count - 1) <= self.hi()
    }

    /// Greatest hash below a child, inclusive.
    fn child_hi(&self, index: usize) -> u64 {
        if index + 1 < self.child_count() {
            self.separator(index + 1).wrapping_sub(1)
        } else {
            self.hi()
        }
    }

    /// Where the child that is responsible for `hash` should be, as hashes are uniform.
    #[inline(always)]
    fn expected_child(&self, hash: u64) -> usize {
        let above = hash.wrapping_sub(self.lo());
        let expected = ((u128::from(above) * u128::from(self.word(SCALE))) >> 64) as usize;
        expected.min(self.child_count() - 1)
    }

    /// Bytes of the page where the search for `hash` is likely to look: a separator and its child.
    #[inline(always)]
    fn likely_offsets(&self, hash: u64) -> [usize; 2] {
        let index = self.expected_child(hash);
        [(SEPARATORS + index) * 8, (CHILDREN + index / 2) * 8]
    }

    /// Index of the child that is responsible for `hash`: the last with a separator not above it.
    #[inline(always)]
    fn find_child(&self, hash: u64) -> usize {
        let count = self.child_count();
        let mut index = self.expected_child(hash);
        if self.separator(index) <= hash {
            for _ in 0..STEP_MAX {
                if index + 1 >= count || self.separator(index + 1) > hash {
                    return index;
                }
                index += 1;
            }
            self.bisect(hash, index, count)
        } else {
            for _ in 0..STEP_MAX {
                if index == 0 {
                    return 0;
                }
                index -= 1;
                if self.separator(index) <= hash {
                    return index;
                }
            }
            self.bisect(hash, 0, index)
        }
    }

    /// Last child in `low..high` with a separator not above `hash`; `low` if there is none.
    #[cold]
    fn bisect(&self, hash: u64, mut low: usize, mut high: usize) -> usize {
        while low + 1 < high {
            let mid = (low + high) / 2;
            if self.separator(mid) <= hash {
                low = mid;
            } else {
                high = mid;
            }
        }
        low
    }
}

impl<W: Words + ?Sized> Inner for W {}

/// A node's words, to be written by the holder of its exclusive latch.
pub(crate) trait InnerMut: WordsMut {
    /// Makes a node of one child that covers `lo..=hi`.
    fn init(&mut self, tag: u32, level: u8, lo: u64, hi: u64, child: u32) {
        self.set_word(0, u64::from(KIND_INNER) | u64::from(level) << 8 | u64::from(tag) << 32);
        self.set_word(HI, hi);
        self.set_separator(0, lo);
        self.set_child(0, child);
        self.set_count(1);
    }

    fn set_separator(&mut self, index: usize, hash: u64) {
        self.set_word(SEPARATORS + index, hash);
    }

    fn set_child(&mut self, index: usize, pid: u32) {
        let at = CHILDREN + index / 2;
        let word = self.word(at);
        let word = match index % 2 {
            0 => word & !0xffff_ffff | u64::from(pid),
            _ => word & 0xffff_ffff | u64::from(pid) << 32,
        };
        self.set_word(at, word);
    }

    /// Sets the count and, with it, the scale of the interpolation.
    fn set_count(&mut self, count: usize) {
        let word = self.word(0) & !0xffff_0000 | (count as u64) << 16;
        self.set_word(0, word);
        let width = u128::from(self.hi().wrapping_sub(self.lo())) + 1;
        let scale = ((count as u128) << 64) / width;
        self.set_word(SCALE, u64::try_from(scale).unwrap_or(u64::MAX));
    }

    /// Inserts a child with its separator at `index` (not 0); the node must not be full.
    fn insert_child(&mut self, index: usize, separator: u64, pid: u32) {
        let count = self.child_count();
        debug_assert!(count < FANOUT && index > 0 && index <= count);
        for i in (index..count).rev() {
            self.set_separator(i + 1, self.separator(i));
            self.set_child(i + 1, self.child(i));
        }
        self.set_separator(index, separator);
        self.set_child(index, pid);
        self.set_count(count + 1);
    }

    /// Removes a child; the one before it (or, for the first, the one after) takes over its range.
    fn remove_child(&mut self, index: usize) {
        let count = self.child_count();
        debug_assert!(count > 1 && index < count);
        let lo = self.lo();
        for i in index + 1..count {
            self.set_separator(i - 1, self.separator(i));
            self.set_child(i - 1, self.child(i));
        }
        self.set_separator(0, lo);
        self.set_count(count - 1);
    }

    /// Drops the last children until so many are left, at least one; the node's range stays as it is.
    fn truncate(&mut self, child_count: usize) {
        debug_assert!(child_count > 0 && child_count <= self.child_count());
        self.set_count(child_count);
    }

    /// Moves the children from `at` on to the empty node `right`; returns the separator between the two.
    fn split_off(&mut self, at: usize, right: &mut impl InnerMut) -> u64 {
        let count = self.child_count();
        debug_assert!(at > 0 && at < count);
        let separator = self.separator(at);
        let tag = (self.word(0) >> 32) as u32;
        right.init(tag, self.level(), separator, self.hi(), self.child(at));
        for i in at + 1..count {
            right.set_separator(i - at, self.separator(i));
            right.set_child(i - at, self.child(i));
        }
        right.set_count(count - at);
        self.set_word(HI, separator.wrapping_sub(1));
        self.set_count(at);
        separator
    }

    /// Appends all children of the right neighbour, which must fit.
    fn absorb(&mut self, right: &impl Inner) {
        let (count, more) = (self.child_count(), right.child_count());
        debug_assert!(count + more <= FANOUT);
        for i in 0..more {
            self.set_separator(count + i, right.separator(i));
            self.set_child(count + i, right.child(i));
        }
        self.set_word(HI, right.hi());
        self.set_count(count + more);
    }
}

impl<W: WordsMut + ?Sized> InnerMut for W {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::words::WORD_COUNT;

    impl Words for [u64; WORD_COUNT] {
        fn word(&self, index: usize) -> u64 {
            self[index]
        }
    }

    impl WordsMut for [u64; WORD_COUNT] {
        fn set_word(&mut self, index: usize, value: u64) {
            self[index] = value;
        }
    }

    fn model_of(node: &[u64; WORD_COUNT]) -> Vec<(u64, u32)> {
        (0..node.child_count()).map(|i| (node.separator(i), node.child(i))).collect()
    }

    fn check(node: &[u64; WORD_COUNT], model: &[(u64, u32)], random: &mut fastrand::Rng) {
        assert_eq!(model_of(node), model);
        for _ in 0..50 {
            let hash = random.u64(node.lo()..=node.hi());
            let expected = model.partition_point(|(separator, _)| *separator <= hash) - 1;
            assert_eq!(node.find_child(hash), expected);
        }
        for (i, (separator, _)) in model.iter().enumerate() {
            assert_eq!(node.find_child(*separator), i);
            assert_eq!(node.find_child(node.child_hi(i)), i);
        }
    }

    fn grow(random: &mut fastrand::Rng, lo: u64, hi: u64, skew: u32) -> [u64; WORD_COUNT] {
        let mut node = [0; WORD_COUNT];
        node.init(9, 1, lo, hi, 1);
        let mut model = vec![(lo, 1)];
        while node.child_count() < FANOUT {
            let hash = lo + (random.u64(0..=hi - lo) >> random.u32(0..=skew));
            let index = node.find_child(hash) + 1;
            if model[index - 1].0 == hash {
                continue;
            }
            let pid = random.u32(..);
            node.insert_child(index, hash, pid);
            model.insert(index, (hash, pid));
        }
        check(&node, &model, random);
        node
    }

    #[test]
    fn children_are_found_in_even_and_in_skewed_nodes() {
        let seed = stillframe_testkit::seed();
        let mut random = fastrand::Rng::with_seed(seed);
        for (lo, hi) in [(0, u64::MAX), (1 << 40, (1 << 40) + 4000), (u64::MAX - (1 << 50), u64::MAX)] {
            for skew in [0, 9] {
                let node = grow(&mut random, lo, hi, skew);
                assert!(node.is_inner(9) && !node.is_inner(8));
                assert_eq!((node.level(), node.lo(), node.hi()), (1, lo, hi));
            }
        }
    }

    #[test]
    fn removing_a_child_gives_its_range_to_a_neighbour() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        let mut node = grow(&mut random, 0, u64::MAX, 0);
        let mut model = model_of(&node);
        while model.len() > 1 {
            let index = random.usize(..model.len());
            node.remove_child(index);
            model.remove(index);
            model[0].0 = 0;
            assert_eq!(model_of(&node), model);
        }
        check(&node, &model, &mut random);
    }

    #[test]
    fn a_node_splits_and_comes_together_again() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        let node = grow(&mut random, 77, 1 << 60, 3);
        for at in [1, FANOUT / 2, FANOUT - 1] {
            let (mut left, mut right) = (node, [u64::MAX; WORD_COUNT]);
            let separator = left.split_off(at, &mut right);
            assert_eq!((left.hi(), right.lo(), right.hi()), (separator - 1, separator, 1 << 60));
            check(&left, &model_of(&node)[..at], &mut random);
            check(&right, &model_of(&node)[at..], &mut random);
            left.absorb(&right);
            assert_eq!(model_of(&left), model_of(&node));
            let mut copy = [0; WORD_COUNT];
            copy.copy_from(&left);
            assert_eq!(copy, left);
        }
    }

    #[test]
    fn a_torn_node_never_panics() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..2000 {
            let mut node = [0u64; WORD_COUNT];
            node.fill_with(|| random.u64(..));
            let hash = random.u64(..);
            let index = node.find_child(hash);
            assert!(index < FANOUT);
            let _ = (node.child(index), node.child_hi(index), node.is_inner(1));
        }
    }
}
