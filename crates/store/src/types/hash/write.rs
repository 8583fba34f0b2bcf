//! Fields that are set and removed.

use super::field::FieldMode;
use super::packed::{Fields, Was as WasPacked};
use crate::blobs::Bytes;
use crate::effect::{Change, Effect};
use crate::keyspace::{CollectionKey, Keyspace, Local, Opened, Was};
use crate::tree::hash::Grown;
use crate::tree::Tree;
use crate::types::packed::{packed_bytes_of, PACKED_MAX_BYTES};
use crate::value::Encoding;
use crate::{Deadline, OpError, UnixMillis};

/// What a write sets.
#[derive(Clone, Copy)]
pub(super) struct FieldWrite<'a> {
    pub pairs: &'a [(Bytes<'a>, Bytes<'a>)],
    pub mode: FieldMode,
    pub deadline: Deadline,
}

impl FieldWrite<'_> {
    /// Nothing but what becomes of the form of a hash.
    pub const NOTHING: FieldWrite<'static> =
        FieldWrite { pairs: &[], mode: FieldMode::All, deadline: Deadline::Keep };

    /// A deadline that the fields get.
    fn given(&self) -> Option<UnixMillis> {
        match self.deadline {
            Deadline::At(at) if !self.pairs.is_empty() => Some(at),
            _ => None,
        }
    }
}

/// What a write has done.
#[derive(Clone, Copy, Default)]
struct Filled {
    /// Fields that were not there, or whose time was over.
    added_count: u64,
    /// Fields that the hash has more than before.
    more_count: u64,
}

impl Filled {
    fn note(&mut self, was: Was) {
        self.added_count += u64::from(was != Was::There);
        self.more_count += u64::from(was == Was::Absent);
    }
}

/// The earlier of two deadlines.
pub(super) fn earlier(a: Option<UnixMillis>, b: Option<UnixMillis>) -> Option<UnixMillis> {
    a.into_iter().chain(b).min()
}

impl Keyspace {
    pub(super) fn hash_set(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        write: &FieldWrite<'_>,
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let _lock = self.locks.lock_key(&local.holder, at.db, at.key.hash);
        let opened = self.open_to_change(local, at, run)?;
        match opened.as_ref().and_then(|opened| Some((opened, opened.grown?))) {
            Some((opened, grown)) => self.hash_set_grown(local, at, opened, grown, write),
            None => self.hash_set_packed(local, at, opened.as_ref(), write, run),
        }
    }

    pub(super) fn hash_set_packed(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: Option<&Opened>,
        write: &FieldWrite<'_>,
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let is_timed = opened.is_some_and(|opened| opened.earliest.is_some());
        let mut packed = Fields { run, is_timed };
        let is_there = |(field, _): &(Bytes<'_>, Bytes<'_>)| {
            field.here().is_some_and(|field| packed.find_live(field, local.now).is_some())
        };
        if write.mode == FieldMode::Absent && write.pairs.iter().all(is_there) {
            return Ok(0);
        }
        let old_bytes = match is_timed || write.given().is_some() {
            true => packed.timed_bytes(write.pairs.len()),
            false => packed.run.len(),
        };
        let pair_bytes =
            |(field, value): &(Bytes<'_>, Bytes<'_>)| packed_bytes_of(field) + packed_bytes_of(value);
        let more_bytes: usize = write.pairs.iter().map(pair_bytes).sum();
        if old_bytes + more_bytes > PACKED_MAX_BYTES {
            return self.hash_grow(local, at, opened, write, &packed);
        }
        let (mut filled, overwrites) = (Filled::default(), write.mode == FieldMode::All);
        let mut expired = Vec::new();
        for (field, value) in write.pairs {
            // None of so few bytes lie in pages.
            let (Some(name), Some(bytes)) = (field.here(), value.here()) else { continue };
            let was = packed.set((name, bytes), write.deadline, local.now, overwrites);
            if was == WasPacked::Expired {
                expired.push(*field);
            }
            filled.added_count += u64::from(was != WasPacked::There);
        }
        let earliest = if packed.is_timed { packed.settle() } else { None };
        let encoding =
            self.hash_encoding(opened, packed.are_more_than(self.limits.hash_entries()), write.pairs);
        self.put_packed(local, at, encoding, earliest, packed.run, Deadline::Keep)?;
        self.announce_expired(local, at, &expired);
        self.announce_fields(local, at, opened.is_none(), write, |field| {
            if packed.is_timed {
                packed.find(field.here()?)?.deadline
            } else {
                None
            }
        });
        Ok(filled.added_count)
    }

    fn are_many_fields(&self, grown: &Grown) -> bool {
        grown.element_count > self.limits.hash_entries() as u64
    }

    /// What a hash is called now; whether there are more fields than the limit.
    fn hash_encoding(
        &self,
        opened: Option<&Opened>,
        are_many: bool,
        pairs: &[(Bytes<'_>, Bytes<'_>)],
    ) -> Encoding {
        let limits = &self.limits;
        let is_long = |bytes: &Bytes<'_>| bytes.len() > limits.hash_value_bytes() as u64;
        let is_large = opened.is_some_and(|opened| opened.encoding == Encoding::HashTable)
            || are_many
            || pairs.iter().any(|(field, value)| is_long(field) || is_long(value));
        if is_large {
            Encoding::HashTable
        } else {
            Encoding::ListPack
        }
    }

    /// Makes a tree of a packed hash, or of none, and sets the fields there.
    pub(super) fn hash_grow(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: Option<&Opened>,
        write: &FieldWrite<'_>,
        packed: &Fields<'_>,
    ) -> Result<u64, OpError> {
        let before = packed.len();
        self.resolve_slabs(2 * (before as usize + write.pairs.len()))?;
        let tree = self.create_elements()?;
        let mut grown = Grown { element_count: 0, first: tree, second: None };
        let (mut filled, mut expired) = (Filled::default(), Vec::new());
        self.hash_move(local, tree, packed)
            .and_then(|()| self.hash_fill(local, tree, write, &mut filled, &mut expired))
            .inspect_err(|_| self.drop_trees(&grown))?;
        grown.element_count = before + filled.more_count;
        let kept = packed.pairs().filter_map(|pair| pair.deadline).min();
        let earliest = earlier(kept, write.given());
        let encoding = self.hash_encoding(opened, self.are_many_fields(&grown), write.pairs);
        self.put_grown(local, at, encoding, earliest, grown, Deadline::Keep)?;
        self.announce_filled(local, at, opened.is_none(), write, (tree, earliest.is_some()), &expired)?;
        Ok(filled.added_count)
    }

    /// Puts packed fields into a tree that nothing refers to yet.
    fn hash_move(&self, local: &mut Local, tree: Tree, packed: &Fields<'_>) -> Result<(), OpError> {
        for pair in packed.pairs() {
            let deadline = pair.deadline.map_or(Deadline::Clear, Deadline::At);
            self.put_element(local, tree, &self.hashed(pair.field), pair.value.into(), deadline)?;
        }
        Ok(())
    }

    /// Sets fields of a tree. What has been done counts, too, if it ends with an error.
    fn hash_fill<'w>(
        &self,
        local: &mut Local,
        tree: Tree,
        write: &FieldWrite<'w>,
        filled: &mut Filled,
        expired: &mut Vec<Bytes<'w>>,
    ) -> Result<(), OpError> {
        for (field, value) in write.pairs {
            let (name, now) = (self.hashed_bytes(local, field)?, local.now);
            let is_kept = write.mode == FieldMode::Absent && self.live_deadline(tree, &name, now)?.is_some();
            if is_kept {
                continue;
            }
            let was = self.put_timed_element(local, tree, &name, *value, write.deadline)?;
            filled.note(was);
            if was == Was::Expired {
                expired.push(*field);
            }
        }
        Ok(())
    }

    pub(super) fn hash_set_grown(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
        mut grown: Grown,
        write: &FieldWrite<'_>,
    ) -> Result<u64, OpError> {
        // Nothing that is missing is met after the first change (C1).
        self.resolve_elements(grown.first, local, write.pairs.iter().map(|(field, _)| field))?;
        let (mut filled, mut expired) = (Filled::default(), Vec::new());
        let ended = self.hash_fill(local, grown.first, write, &mut filled, &mut expired);
        grown.element_count += filled.more_count;
        if filled.added_count == 0 && write.mode == FieldMode::Absent {
            return ended.map(|()| 0);
        }
        self.hash_note(local, at, opened, grown, write, &expired)?;
        ended.map(|()| filled.added_count)
    }

    /// Notes and announces what has been set in a tree.
    pub(super) fn hash_note(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
        grown: Grown,
        write: &FieldWrite<'_>,
        expired: &[Bytes<'_>],
    ) -> Result<(), OpError> {
        let encoding = self.hash_encoding(Some(opened), self.are_many_fields(&grown), write.pairs);
        let earliest = earlier(opened.earliest, write.given());
        self.note_field_deadline(grown.first, write.given());
        let now = Opened { encoding, earliest, grown: Some(grown) };
        if now != *opened {
            self.set_grown(local, at, &now)?;
        }
        self.announce_filled(local, at, false, write, (grown.first, earliest.is_some()), expired)
    }

    fn announce_expired(&self, local: &Local, at: &CollectionKey<'_>, fields: &[Bytes<'_>]) {
        for field in fields.iter().copied() {
            let change = Change::FieldExpired { field };
            self.announce(local, Effect::Element { db: at.db, key: at.key, change, is_new: false });
        }
    }

    fn announce_filled(
        &self,
        local: &Local,
        at: &CollectionKey<'_>,
        is_new: bool,
        write: &FieldWrite<'_>,
        (tree, is_timed): (Tree, bool),
        expired: &[Bytes<'_>],
    ) -> Result<(), OpError> {
        self.announce_expired(local, at, expired);
        let now = local.now;
        // They have just been written: nothing of them is missing.
        let kept = |field: &Bytes<'_>| {
            let field = self.hashed_bytes(local, field).ok()?;
            self.live_deadline(tree, &field, now).ok().flatten().flatten()
        };
        self.announce_fields(local, at, is_new, write, |field| if is_timed { kept(field) } else { None });
        Ok(())
    }

    fn announce_fields(
        &self,
        local: &Local,
        at: &CollectionKey<'_>,
        is_new: bool,
        write: &FieldWrite<'_>,
        kept: impl Fn(&Bytes<'_>) -> Option<UnixMillis>,
    ) {
        let tell = |change, is_new| {
            self.announce(local, Effect::Element { db: at.db, key: at.key, change, is_new });
        };
        for (index, &(field, value)) in write.pairs.iter().enumerate() {
            let deadline = match write.deadline {
                Deadline::At(deadline) => Some(deadline),
                Deadline::Clear => None,
                Deadline::Keep => kept(&field),
            };
            tell(Change::Field { field, value, deadline }, is_new && index == 0);
        }
        if let deadline @ Some(_) = write.given() {
            write.pairs.iter().for_each(|&(field, _)| tell(Change::FieldDeadline { field, deadline }, false));
        }
    }

    pub(super) fn hash_remove(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        fields: &[Bytes<'_>],
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let _lock = self.locks.lock_key(&local.holder, at.db, at.key.hash);
        let Some(opened) = self.open_to_change(local, at, run)? else { return Ok(0) };
        let (mut removed, mut removed_count) = (Vec::with_capacity(fields.len()), 0);
        let mut packed = opened.fields(run);
        let (left, ended) = match opened.grown {
            None => {
                for (field, name) in fields.iter().filter_map(|field| Some((field, field.here()?))) {
                    match packed.remove(name, local.now) {
                        WasPacked::Absent => {}
                        was => removed.push((*field, was == WasPacked::Expired)),
                    }
                }
                (packed.len(), Ok(()))
            }
            Some(grown) => {
                self.resolve_elements(grown.first, local, fields)?;
                let ended = self.remove_elements(local, grown.first, fields, &mut removed);
                (grown.element_count.saturating_sub(removed.len() as u64), ended)
            }
        };
        if removed.is_empty() {
            return ended.map(|()| 0);
        }
        for &(field, has_expired) in &removed {
            let change = match has_expired {
                true => Change::FieldExpired { field },
                false => Change::FieldRemoved { field },
            };
            removed_count += u64::from(!has_expired);
            self.announce(local, Effect::Element { db: at.db, key: at.key, change, is_new: false });
        }
        self.put_rest(local, at, &opened, left, &mut packed)?;
        ended.map(|()| removed_count)
    }

    /// Removes fields of a tree and notes which were there, and whether their time was over.
    fn remove_elements<'f>(
        &self,
        local: &mut Local,
        tree: Tree,
        fields: &'f [Bytes<'f>],
        removed: &mut Vec<(Bytes<'f>, bool)>,
    ) -> Result<(), OpError> {
        for field in fields {
            let element = self.hashed_bytes(local, field)?;
            match self.remove_timed_element(local, tree, &element)? {
                Was::Absent => {}
                was => removed.push((*field, was == Was::Expired)),
            }
        }
        Ok(())
    }

    /// Stores what fields have been removed from: without a field the key goes.
    pub(super) fn put_rest(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
        left: u64,
        packed: &mut Fields<'_>,
    ) -> Result<(), OpError> {
        if left == 0 {
            return self.remove_emptied(local, at);
        }
        match opened.grown {
            None => {
                let earliest = packed.settle();
                self.put_packed(local, at, opened.encoding, earliest, packed.run, Deadline::Keep)?;
                Ok(())
            }
            Some(grown) => {
                let grown = Some(Grown { element_count: left, ..grown });
                self.set_grown(local, at, &Opened { grown, ..*opened })
            }
        }
    }
}
