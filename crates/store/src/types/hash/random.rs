//! Random fields.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::field::GivenField;
use super::packed::{Fields, Pair};
use super::read::is_live;
use crate::blobs::Given;
use crate::keyspace::{CollectionKey, Draws, Keyspace, Local, Opened};
use crate::tree::hash::Grown;
use crate::OpError;

/// Which fields are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Draw {
    /// So many, none of them twice, as far as there are.
    Distinct(u64),
    /// So many, each drawn from all.
    Repeated(u64),
}

/// Of more than one field in so many the hash is walked through, instead of drawing them one by one.
const WALKED_SHARE: u64 = 3;
/// The same if the time of more than all but one in so many is over.
const EXPIRED_SHARE: u64 = 8;
/// Fields that are looked at together for one whose time is not over, if draws have met none.
const LOOKED_AT: usize = 64;

const FEWER_FIELDS: &str = "a hash has fewer fields than its key says";

impl Keyspace {
    pub(super) fn hash_random(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        draw: Draw,
        begin: impl FnOnce(u64),
        f: impl FnMut(GivenField<'_>) -> ControlFlow<()>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok(false) };
        let packed = opened.fields(run);
        match draw {
            Draw::Distinct(count) => {
                let live_count = self.live_count(local, &opened, &packed)?;
                let count = count.min(live_count);
                begin(count);
                self.draw_distinct(local, &opened, &packed, (count, live_count), f)?;
            }
            Draw::Repeated(count) => {
                let count = if self.has_live(local, &opened, &packed)? { count } else { 0 };
                begin(count);
                self.draw_repeated(local, &opened, &packed, count, f)?;
            }
        }
        Ok(true)
    }

    /// Whether the time of some field is not over. Those of a large hash are not counted for that.
    fn has_live(&self, local: &mut Local, opened: &Opened, packed: &Fields<'_>) -> Result<bool, OpError> {
        let Some(grown) = opened.grown.filter(|_| opened.may_have_expired(local.now)) else {
            return Ok(self.live_count(local, opened, packed)? > 0);
        };
        let (now, mut cursor, mut has_live) = (local.now, 0, false);
        loop {
            cursor = self.scan_elements(local, grown.first, cursor, LOOKED_AT, |_, record| {
                has_live |= is_live(record, now);
            })?;
            if has_live || cursor == 0 {
                return Ok(has_live);
            }
        }
    }

    fn draw_distinct(
        &self,
        local: &mut Local,
        opened: &Opened,
        packed: &Fields<'_>,
        (count, live_count): (u64, u64),
        mut f: impl FnMut(GivenField<'_>) -> ControlFlow<()>,
    ) -> Result<(), OpError> {
        let is_drawn = |grown: &Grown| {
            count.saturating_mul(WALKED_SHARE) <= live_count
                && grown.element_count / EXPIRED_SHARE <= live_count
        };
        if let Some(grown) = opened.grown.filter(is_drawn) {
            let mut drawn = HashSet::with_capacity(count as usize);
            let mut draws = Draws::begin(self.pages.all_resident());
            while drawn.len() as u64 + draws.missed_count < count {
                let drawn_now = draws.next(local, |local| self.draw_whole(local, grown))?;
                let Some(field) = drawn_now else { continue };
                if !drawn.contains(&field) {
                    if self.give_field(local, grown, &field, &mut f)?.is_break() {
                        break;
                    }
                    drawn.insert(field);
                }
            }
            return draws.end();
        }
        // Each field is taken with the probability that makes all choices of so many equally likely.
        let (mut wanted, mut left) = (count, live_count);
        self.each_live(local, opened, packed, |field, value, _| {
            if wanted == 0 {
                return ControlFlow::Break(());
            }
            let is_taken = fastrand::u64(..left.max(1)) < wanted;
            left = left.saturating_sub(1);
            if !is_taken {
                return ControlFlow::Continue(());
            }
            wanted -= 1;
            f(GivenField { field, value })
        })
    }

    fn draw_repeated(
        &self,
        local: &mut Local,
        opened: &Opened,
        packed: &Fields<'_>,
        count: u64,
        mut f: impl FnMut(GivenField<'_>) -> ControlFlow<()>,
    ) -> Result<(), OpError> {
        let now = local.now;
        let live: Vec<Pair<'_>> = packed.pairs().filter(|pair| !pair.has_expired(now)).collect();
        let mut draws = Draws::begin(self.pages.all_resident());
        for _ in 0..count {
            let flow = match opened.grown {
                None => {
                    let pair = &live[fastrand::usize(..live.len())];
                    f(GivenField::of(pair))
                }
                Some(grown) => match draws.next(local, |local| self.draw_whole(local, grown))? {
                    Some(field) => self.give_field(local, grown, &field, &mut f)?,
                    None => ControlFlow::Continue(()),
                },
            };
            if flow.is_break() {
                break;
            }
        }
        draws.end()
    }

    /// A random field, as of [`Keyspace::draw_field`], with its value in memory.
    fn draw_whole(&self, local: &mut Local, grown: Grown) -> Result<Vec<u8>, OpError> {
        let field = self.draw_field(local, grown)?;
        if !self.pages.all_resident() {
            let _ = self.give_field(local, grown, &field, &mut |_| ControlFlow::Continue(()))?;
        }
        Ok(field)
    }

    /// A random field whose time is not over, of a hash that has some.
    fn draw_field(&self, local: &mut Local, grown: Grown) -> Result<Vec<u8>, OpError> {
        if let Some(field) = self.random_element(local, grown.first, grown.element_count)? {
            return Ok(field);
        }
        // The time of most of them is over: one of the next from anywhere, round the end.
        let (now, mut live, mut is_round) = (local.now, Vec::new(), false);
        let mut cursor = fastrand::u64(..1 << 52);
        loop {
            cursor = self.scan_elements(local, grown.first, cursor, LOOKED_AT, |field, record| {
                if is_live(record, now) {
                    live.push(field.to_vec());
                }
            })?;
            let is_over = cursor == 0 && std::mem::replace(&mut is_round, true);
            match fastrand::choice(std::mem::take(&mut live)) {
                Some(field) => return Ok(field),
                None if is_over => return Err(OpError::Damaged(FEWER_FIELDS.into())),
                None => {}
            }
        }
    }

    fn give_field(
        &self,
        local: &mut Local,
        grown: Grown,
        field: &[u8],
        f: &mut impl FnMut(GivenField<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, OpError> {
        let taking = local.taking;
        let given = self.element(grown.first, &self.hashed(field), |record| {
            let give = |value: Given<'_>| f(GivenField { field: Given::Here(field), value });
            self.give_element_value(record, taking, &mut local.bytes, give)
        })?;
        given.ok_or_else(|| OpError::Damaged(FEWER_FIELDS.into()))
    }
}
