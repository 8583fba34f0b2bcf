//! Random fields.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::field::GivenField;
use super::packed::{Fields, Pair};
use super::read::is_live;
use crate::blobs::Given;
use crate::keyspace::{CollectionKey, Keyspace, Local, Opened};
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
        let live_count = self.live_count(local, &opened, &packed)?;
        match draw {
            Draw::Distinct(count) => {
                let count = count.min(live_count);
                begin(count);
                self.draw_distinct(local, &opened, &packed, (count, live_count), f)?;
            }
            Draw::Repeated(count) => {
                let count = if live_count == 0 { 0 } else { count };
                begin(count);
                self.draw_repeated(local, &opened, &packed, count, f)?;
            }
        }
        Ok(true)
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
            while (drawn.len() as u64) < count {
                let Some(field) = self.draw_field(local, grown)? else { break };
                if !drawn.contains(&field) {
                    if self.give_field(local, grown, &field, &mut f)?.is_break() {
                        break;
                    }
                    drawn.insert(field);
                }
            }
            return Ok(());
        }
        // Each field is taken with the probability that makes all choices of so many equally likely.
        let (mut wanted, mut left) = (count, live_count);
        self.each_live(local, opened, packed, |found| {
            if wanted == 0 {
                return ControlFlow::Break(());
            }
            let is_taken = fastrand::u64(..left.max(1)) < wanted;
            left = left.saturating_sub(1);
            if !is_taken {
                return ControlFlow::Continue(());
            }
            wanted -= 1;
            f(found)
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
        for _ in 0..count {
            let flow = match opened.grown {
                None => {
                    let pair = &live[fastrand::usize(..live.len())];
                    f(GivenField::of(pair))
                }
                Some(grown) => match self.draw_field(local, grown)? {
                    Some(field) => self.give_field(local, grown, &field, &mut f)?,
                    None => ControlFlow::Break(()),
                },
            };
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// A random field whose time is not over, if there is one.
    fn draw_field(&self, local: &mut Local, grown: Grown) -> Result<Option<Vec<u8>>, OpError> {
        if let Some(field) = self.random_element(local, grown.first, grown.element_count)? {
            return Ok(Some(field));
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
            if !live.is_empty() || (cursor == 0 && std::mem::replace(&mut is_round, true)) {
                return Ok(fastrand::choice(live));
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
        Ok(given.unwrap_or(ControlFlow::Continue(())))
    }
}
