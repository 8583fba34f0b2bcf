//! Fields that are read. Those whose time is over are passed over and stay.

use std::ops::ControlFlow;

use super::field::GivenField;
use super::packed::Fields;
use crate::blobs::{Bytes, Given};
use crate::keyspace::{CollectionKey, Keyspace, Local, Missed, Opened};
use crate::tree::hash::Record;
use crate::tree::Tree;
use crate::value::Encoding;
use crate::{Key, OpError, UnixMillis};

impl Opened {
    /// The run of a packed hash as fields.
    #[inline]
    pub(super) fn fields<'r>(&self, run: &'r mut Vec<u8>) -> Fields<'r> {
        Fields { run, is_timed: self.earliest.is_some() }
    }

    /// Whether the time of some field may be over.
    pub(super) fn may_have_expired(&self, now: UnixMillis) -> bool {
        self.earliest.is_some_and(|earliest| earliest <= now)
    }
}

#[inline]
pub(super) fn is_live(record: &Record<'_>, now: UnixMillis) -> bool {
    record.deadline.is_none_or(|deadline| deadline > now)
}

impl Keyspace {
    pub(super) fn hash_get<'f>(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        fields: impl Iterator<Item = impl Into<Bytes<'f>>>,
        mut f: impl FnMut(usize, Option<Given<'_>>),
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else {
            fields.enumerate().for_each(|(index, _)| f(index, None));
            return Ok(false);
        };
        let (packed, now, mut missed) = (opened.fields(run), local.now, Missed::default());
        for (index, field) in fields.enumerate() {
            let field: Bytes<'f> = field.into();
            let Some(grown) = opened.grown else {
                let pair = field.here().and_then(|field| packed.find_live(field, now));
                f(index, pair.map(|pair| Given::Here(pair.value)));
                continue;
            };
            let (key, taking) = (self.hashed_bytes(local, &field)?, local.taking);
            let found = self.element(grown.first, &key, |record| match is_live(record, now) {
                true => {
                    let give = |value: Given<'_>| f(index, Some(value));
                    self.give_element_value(record, taking, &mut local.bytes, give)?;
                    Ok(true)
                }
                false => Ok(false),
            });
            if missed.look(found)?.is_some_and(|found| found != Some(true)) {
                f(index, None);
            }
        }
        missed.end()?;
        Ok(true)
    }

    pub(super) fn hash_value_len(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        field: &Bytes<'_>,
        run: &mut Vec<u8>,
    ) -> Result<(Option<u64>, bool), OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok((None, false)) };
        let Some(grown) = opened.grown else {
            let packed = opened.fields(run);
            let pair = field.here().and_then(|field| packed.find_live(field, local.now));
            return Ok((pair.map(|pair| pair.value.len() as u64), true));
        };
        let (key, now) = (self.hashed_bytes(local, field)?, local.now);
        let len = self.element(grown.first, &key, |record| match is_live(record, now) {
            true => self.element_value_bytes(record).map(Some),
            false => Ok(None),
        })?;
        Ok((len.flatten(), true))
    }

    pub(super) fn hash_deadlines<'f>(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        fields: impl Iterator<Item = &'f [u8]>,
        mut f: impl FnMut(usize, Option<Option<UnixMillis>>),
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else {
            fields.enumerate().for_each(|(index, _)| f(index, None));
            return Ok(false);
        };
        let (packed, now, mut missed) = (opened.fields(run), local.now, Missed::default());
        for (index, field) in fields.enumerate() {
            let deadline = match opened.grown {
                None => Some(packed.find_live(field, now).map(|pair| pair.deadline)),
                Some(grown) => missed.look(self.live_deadline(grown.first, &self.hashed(field), now))?,
            };
            deadline.into_iter().for_each(|deadline| f(index, deadline));
        }
        missed.end()?;
        Ok(true)
    }

    /// The deadline of a field of a tree, if the field is there and its time not over. After it, a change of this field meets no
    /// page that is missing, but for slabs.
    pub(super) fn live_deadline(
        &self,
        tree: Tree,
        field: &Key<'_>,
        now: UnixMillis,
    ) -> Result<Option<Option<UnixMillis>>, OpError> {
        let found = self.element(tree, field, |record| {
            Ok(if is_live(record, now) { Some(record.deadline) } else { None })
        })?;
        Ok(found.flatten())
    }

    pub(super) fn hash_len(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok(0) };
        Ok(opened.grown.map_or_else(|| opened.fields(run).len(), |grown| grown.element_count))
    }

    /// Fields whose time is not over.
    pub(super) fn live_count(
        &self,
        local: &mut Local,
        opened: &Opened,
        packed: &Fields<'_>,
    ) -> Result<u64, OpError> {
        let now = local.now;
        match opened.grown {
            None => Ok(packed.pairs().filter(|pair| !pair.has_expired(now)).count() as u64),
            Some(grown) if opened.may_have_expired(now) => self.count_live_elements(local, grown.first, now),
            Some(grown) => Ok(grown.element_count),
        }
    }

    pub(super) fn hash_for_each(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        begin: impl FnOnce(u64),
        mut f: impl FnMut(GivenField<'_>) -> ControlFlow<()>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        self.hash_for_each_timed(local, at, begin, |field, value, _| f(GivenField { field, value }), run)
    }

    /// The same with deadlines.
    pub(super) fn hash_for_each_timed(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        begin: impl FnOnce(u64),
        f: impl FnMut(Given<'_>, Given<'_>, Option<UnixMillis>) -> ControlFlow<()>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok(false) };
        let packed = opened.fields(run);
        begin(self.live_count(local, &opened, &packed)?);
        self.each_live(local, &opened, &packed, f)?;
        Ok(true)
    }

    pub(super) fn each_live(
        &self,
        local: &mut Local,
        opened: &Opened,
        packed: &Fields<'_>,
        mut f: impl FnMut(Given<'_>, Given<'_>, Option<UnixMillis>) -> ControlFlow<()>,
    ) -> Result<(), OpError> {
        let now = local.now;
        let Some(grown) = opened.grown else {
            let mut live = packed.pairs().filter(|pair| !pair.has_expired(now));
            let _ =
                live.try_for_each(|pair| f(Given::Here(pair.field), Given::Here(pair.value), pair.deadline));
            return Ok(());
        };
        self.for_each_element(local, &grown, |field, value, record| match is_live(record, now) {
            true => f(field, value, record.deadline),
            false => ControlFlow::Continue(()),
        })
    }

    pub(super) fn hash_scan(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        (cursor, count): (u64, usize),
        mut f: impl FnMut(GivenField<'_>),
        run: &mut Vec<u8>,
    ) -> Result<Option<u64>, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok(None) };
        let mut give = |found: GivenField<'_>| {
            f(found);
            ControlFlow::Continue(())
        };
        let Some(grown) = opened.grown.filter(|_| opened.encoding == Encoding::HashTable) else {
            let give_one = |field: Given<'_>, value: Given<'_>, _| give(GivenField { field, value });
            self.each_live(local, &opened, &opened.fields(run), give_one)?;
            return Ok(Some(0));
        };
        let now = local.now;
        let next =
            self.scan_element_values(
                local,
                grown.first,
                cursor,
                count,
                |field, value, record| match is_live(record, now) {
                    true => give(GivenField { field, value }),
                    false => ControlFlow::Continue(()),
                },
            )?;
        Ok(Some(next))
    }
}
