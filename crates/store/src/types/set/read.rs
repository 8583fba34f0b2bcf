//! Members that are looked at, and members drawn at random.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::packed;
use crate::keyspace::{CollectionKey, Keyspace, Local, Opened};
use crate::tree::hash::Grown;
use crate::types::hash::Draw;
use crate::types::packed::elements;
use crate::OpError;

/// Of more than one member in so many the set is walked through, instead of drawing them one by one.
const WALKED_SHARE: u64 = 3;

pub(super) fn set_count(opened: &Opened, run: &[u8]) -> u64 {
    opened.grown.map_or_else(|| packed::len(run), |grown| grown.element_count)
}

impl Keyspace {
    pub(super) fn set_contains<'m>(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        members: impl Iterator<Item = &'m [u8]>,
        mut f: impl FnMut(usize, bool),
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else {
            members.enumerate().for_each(|(index, _)| f(index, false));
            return Ok(false);
        };
        for (index, member) in members.enumerate() {
            f(index, self.set_has(&opened, run, member)?);
        }
        Ok(true)
    }

    pub(super) fn set_has(&self, opened: &Opened, run: &[u8], member: &[u8]) -> Result<bool, OpError> {
        match opened.grown {
            None => Ok(packed::contains(run, member)),
            Some(grown) => self.has_element(grown.first, &self.hashed(member)),
        }
    }

    pub(super) fn set_len(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let opened = self.open_to_read(local, at, run)?;
        Ok(opened.map_or(0, |(opened, _lock)| set_count(&opened, run)))
    }

    pub(super) fn set_for_each(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        begin: impl FnOnce(u64),
        f: impl FnMut(&[u8]) -> ControlFlow<()>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok(false) };
        begin(set_count(&opened, run));
        self.each_member(local, &opened, run, f)?;
        Ok(true)
    }

    /// Gives all members to `f` until it breaks.
    pub(super) fn each_member(
        &self,
        local: &mut Local,
        opened: &Opened,
        run: &[u8],
        mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), OpError> {
        match opened.grown {
            None => {
                let _ = elements(run).try_for_each(|member| f(member.bytes));
                Ok(())
            }
            Some(grown) => self.for_each_element(local, grown.first, |member, _, _| f(member)),
        }
    }

    pub(super) fn set_scan(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        (cursor, count): (u64, usize),
        mut f: impl FnMut(&[u8]),
        run: &mut Vec<u8>,
    ) -> Result<Option<u64>, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok(None) };
        match opened.grown {
            None => {
                elements(run).for_each(|member| f(member.bytes));
                Ok(Some(0))
            }
            Some(grown) => {
                self.scan_elements(local, grown.first, cursor, count, |member, _| f(member)).map(Some)
            }
        }
    }

    pub(super) fn set_random(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        draw: Draw,
        begin: impl FnOnce(u64),
        mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok(false) };
        let len = set_count(&opened, run);
        match (draw, opened.grown) {
            (Draw::Distinct(count), _) => {
                begin(count.min(len));
                self.draw_members(local, &opened, run, count.min(len), |_, member| f(member))?;
            }
            (Draw::Repeated(count), None) => {
                begin(count);
                let all: Vec<&[u8]> = elements(run).map(|member| member.bytes).collect();
                let _ = (0..count).try_for_each(|_| f(all[fastrand::usize(..all.len())]));
            }
            (Draw::Repeated(count), Some(grown)) => {
                begin(count);
                for _ in 0..count {
                    if f(&self.draw_member(local, &grown)?).is_break() {
                        break;
                    }
                }
            }
        }
        Ok(true)
    }

    /// A member of a large set.
    fn draw_member(&self, local: &mut Local, grown: &Grown) -> Result<Vec<u8>, OpError> {
        let drawn = self.random_element(local, grown.first, grown.element_count)?;
        drawn.ok_or_else(|| OpError::Damaged("a set has fewer members than its key says".into()))
    }

    /// Gives so many members, none of them twice, of which there are as many, to `f` with their indices in a packed set.
    pub(super) fn draw_members(
        &self,
        local: &mut Local,
        opened: &Opened,
        run: &[u8],
        count: u64,
        mut f: impl FnMut(usize, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), OpError> {
        let len = set_count(opened, run);
        if let Some(grown) = opened.grown.filter(|_| count.saturating_mul(WALKED_SHARE) <= len) {
            let mut drawn = HashSet::with_capacity(count as usize);
            while (drawn.len() as u64) < count {
                let member = self.draw_member(local, &grown)?;
                if !drawn.contains(&member) {
                    if f(0, &member).is_break() {
                        break;
                    }
                    drawn.insert(member);
                }
            }
            return Ok(());
        }
        // Each member is taken with the probability that makes all choices of so many equally likely.
        let (mut wanted, mut left, mut index) = (count, len, 0);
        self.each_member(local, opened, run, |member| {
            if wanted == 0 {
                return ControlFlow::Break(());
            }
            let is_taken = fastrand::u64(..left.max(1)) < wanted;
            (left, index) = (left.saturating_sub(1), index + 1);
            if !is_taken {
                return ControlFlow::Continue(());
            }
            wanted -= 1;
            f(index - 1, member)
        })
    }
}
