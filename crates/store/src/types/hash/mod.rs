//! Hashes: fields with values. A small one is a run of fields and values in turn; a large one is a tree of fields in the
//! order of their hashes.

mod packed;

pub(super) use packed::packed_fields;

use std::ops::ControlFlow;

use crate::effect::{Change, Effect};
use crate::keyspace::{CollectionKey, Keyspace, Local, Opened};
use crate::tree::hash::Grown;
use crate::tree::Tree;
use crate::types::packed::{packed_bytes, PACKED_MAX_BYTES};
use crate::value::{Encoding, ValueType};
use crate::worker::Worker;
use crate::{DbId, Deadline, Key, OpError};

/// Which fields a write sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldMode {
    All,
    /// The one field, if it is not there.
    Absent,
}

fn at<'k>(db: DbId, key: &Key<'k>) -> CollectionKey<'k> {
    CollectionKey { db, key: *key, value_type: ValueType::Hash }
}

impl Worker {
    /// Sets fields of a hash, which is made if there is none. Returns how many of them were not there before.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed, but for want of memory in the midst of it: then what has been set stays.
    pub fn hash_set(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        pairs: &[(&[u8], &[u8])],
        mode: FieldMode,
    ) -> Result<u64, OpError> {
        let (keyspace, local) = self.split();
        let mut run = std::mem::take(&mut local.run);
        let set = keyspace.hash_set(local, &at(db, key), pairs, mode, &mut run);
        local.run = run;
        set
    }

    /// Removes fields; with the last one the key goes. Returns how many were there.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn hash_remove(&mut self, db: DbId, key: &Key<'_>, fields: &[&[u8]]) -> Result<u64, OpError> {
        let (keyspace, local) = self.split();
        let mut run = std::mem::take(&mut local.run);
        let removed = keyspace.hash_remove(local, &at(db, key), fields, &mut run);
        local.run = run;
        removed
    }

    /// Gives `f` the value of each field, by the field's index, or `None`. Whether the hash is there.
    ///
    /// # Errors
    /// [`OpError`]; what `f` was given does not count then.
    pub fn hash_get<'f>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        fields: impl Iterator<Item = &'f [u8]>,
        f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<bool, OpError> {
        let (keyspace, local) = self.split();
        let mut run = std::mem::take(&mut local.run);
        let found = keyspace.hash_get(local, &at(db, key), fields, f, &mut run);
        local.run = run;
        found
    }

    /// Fields of a hash; 0 if there is none.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn hash_len(&mut self, db: DbId, key: &Key<'_>) -> Result<u64, OpError> {
        let (keyspace, local) = self.split();
        let mut run = std::mem::take(&mut local.run);
        let len = keyspace.hash_len(local, &at(db, key), &mut run);
        local.run = run;
        len
    }

    /// Gives all fields and values to `f`, after how many there are to `begin`, until `f` breaks. Whether the hash is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn hash_for_each(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        begin: impl FnOnce(u64),
        f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let (keyspace, local) = self.split();
        let mut run = std::mem::take(&mut local.run);
        let found = keyspace.hash_for_each(local, &at(db, key), begin, f, &mut run);
        local.run = run;
        found
    }
}

impl Keyspace {
    fn hash_set(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        pairs: &[(&[u8], &[u8])],
        mode: FieldMode,
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let _lock = self.locks.lock_key(&local.holder, at.db, at.key.hash);
        let opened = self.open_to_change(local, at, run)?;
        match opened.as_ref().and_then(|opened| Some((opened, opened.grown?))) {
            Some((opened, grown)) => self.hash_set_grown(local, at, opened, grown, pairs, mode),
            None => self.hash_set_packed(local, at, opened.as_ref(), pairs, mode, run),
        }
    }

    fn hash_set_packed(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: Option<&Opened>,
        pairs: &[(&[u8], &[u8])],
        mode: FieldMode,
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let more_bytes: usize =
            pairs.iter().map(|(field, value)| packed_bytes(field) + packed_bytes(value)).sum();
        if run.len() + more_bytes > PACKED_MAX_BYTES {
            return self.hash_grow(local, at, opened, pairs, mode, run);
        }
        let mut added = 0;
        for (field, value) in pairs {
            added += u64::from(packed::set(run, field, value, mode == FieldMode::All));
        }
        if added == 0 && mode == FieldMode::Absent {
            return Ok(0);
        }
        let encoding = self.hash_encoding(opened, packed::len(run), pairs);
        self.put_packed(local, at, encoding, None, run, Deadline::Keep)?;
        self.announce_fields(local, at, opened.is_none(), pairs);
        Ok(added)
    }

    /// What a hash is called now.
    fn hash_encoding(&self, opened: Option<&Opened>, len: u64, pairs: &[(&[u8], &[u8])]) -> Encoding {
        let limits = &self.limits;
        let is_long = |bytes: &[u8]| bytes.len() > limits.hash_value_bytes();
        let is_large = opened.is_some_and(|opened| opened.encoding == Encoding::HashTable)
            || len > limits.hash_entries() as u64
            || pairs.iter().any(|(field, value)| is_long(field) || is_long(value));
        if is_large {
            Encoding::HashTable
        } else {
            Encoding::ListPack
        }
    }

    /// Makes a tree of a packed hash, or of none, and sets the fields there.
    fn hash_grow(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: Option<&Opened>,
        pairs: &[(&[u8], &[u8])],
        mode: FieldMode,
        run: &[u8],
    ) -> Result<u64, OpError> {
        self.resolve_slabs(2 * (packed::pairs(run).count() + pairs.len()))?;
        let tree = self.create_elements()?;
        let mut grown = Grown { element_count: 0, first: tree, second: None };
        let filled = self.hash_fill(local, tree, run, pairs, mode);
        let added = filled.inspect_err(|_| self.drop_trees(&grown))?;
        let before = packed::len(run);
        grown.element_count = before + added;
        let encoding = self.hash_encoding(opened, grown.element_count, pairs);
        self.put_grown(local, at, encoding, None, grown, Deadline::Keep)?;
        self.announce_fields(local, at, opened.is_none(), pairs);
        Ok(added)
    }

    fn hash_fill(
        &self,
        local: &mut Local,
        tree: Tree,
        run: &[u8],
        pairs: &[(&[u8], &[u8])],
        mode: FieldMode,
    ) -> Result<u64, OpError> {
        for pair in packed::pairs(run) {
            self.put_element(local, tree, &self.hashed(pair.field), pair.value, Deadline::Clear)?;
        }
        let mut added = 0;
        for (field, value) in pairs {
            let field = self.hashed(field);
            if mode == FieldMode::All || !self.has_element(tree, &field)? {
                added += u64::from(!self.put_element(local, tree, &field, value, Deadline::Clear)?);
            }
        }
        Ok(added)
    }

    fn hash_set_grown(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
        mut grown: Grown,
        pairs: &[(&[u8], &[u8])],
        mode: FieldMode,
    ) -> Result<u64, OpError> {
        // Nothing that is missing is met after the first change (C1).
        if !self.pages.all_resident() {
            for (field, _) in pairs {
                self.has_element(grown.first, &self.hashed(field))?;
            }
            self.resolve_slabs(2 * pairs.len())?;
        }
        let filled = self.hash_fill(local, grown.first, &[], pairs, mode);
        let added = filled.as_ref().copied().unwrap_or(0);
        grown.element_count += added;
        let encoding = self.hash_encoding(Some(opened), grown.element_count, pairs);
        if added > 0 || encoding != opened.encoding {
            self.set_grown(local, at, &Opened { encoding, grown: Some(grown), ..*opened })?;
        }
        if added > 0 || mode == FieldMode::All {
            self.announce_fields(local, at, false, pairs);
        }
        filled
    }

    fn announce_fields(&self, local: &Local, at: &CollectionKey<'_>, is_new: bool, pairs: &[(&[u8], &[u8])]) {
        for (index, (field, value)) in pairs.iter().enumerate() {
            let change = Change::Field { field, value };
            let is_new = is_new && index == 0;
            self.announce(local, Effect::Element { db: at.db, key: at.key, change, is_new });
        }
    }

    fn hash_remove(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        fields: &[&[u8]],
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let _lock = self.locks.lock_key(&local.holder, at.db, at.key.hash);
        let Some(opened) = self.open_to_change(local, at, run)? else { return Ok(0) };
        let mut removed = Vec::with_capacity(fields.len());
        let left = match opened.grown {
            None => {
                removed.extend(fields.iter().filter(|field| packed::remove(run, field)));
                packed::len(run)
            }
            Some(grown) => {
                if !self.pages.all_resident() {
                    for field in fields {
                        self.has_element(grown.first, &self.hashed(field))?;
                    }
                    self.resolve_slabs(2 * fields.len())?;
                }
                for field in fields {
                    if self.remove_element(local, grown.first, &self.hashed(field))? {
                        removed.push(*field);
                    }
                }
                grown.element_count.saturating_sub(removed.len() as u64)
            }
        };
        if removed.is_empty() {
            return Ok(0);
        }
        for field in &removed {
            let change = Change::FieldRemoved { field };
            self.announce(local, Effect::Element { db: at.db, key: at.key, change, is_new: false });
        }
        if left == 0 {
            self.remove_emptied(local, at)?;
            return Ok(removed.len() as u64);
        }
        match opened.grown {
            None => drop(self.put_packed(local, at, opened.encoding, None, run, Deadline::Keep)?),
            Some(grown) => {
                let grown = Some(Grown { element_count: left, ..grown });
                self.set_grown(local, at, &Opened { grown, ..opened })?;
            }
        }
        Ok(removed.len() as u64)
    }

    fn hash_get<'f>(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        fields: impl Iterator<Item = &'f [u8]>,
        mut f: impl FnMut(usize, Option<&[u8]>),
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else {
            fields.enumerate().for_each(|(index, _)| f(index, None));
            return Ok(false);
        };
        for (index, field) in fields.enumerate() {
            match opened.grown {
                None => f(index, packed::find(run, field).map(|pair| pair.value)),
                Some(grown) => {
                    let found = self.element(grown.first, &self.hashed(field), |record| {
                        self.with_element_value(record, &mut local.bytes, |value| f(index, Some(value)))
                    })?;
                    if found.is_none() {
                        f(index, None);
                    }
                }
            }
        }
        Ok(true)
    }

    fn hash_len(&self, local: &mut Local, at: &CollectionKey<'_>, run: &mut Vec<u8>) -> Result<u64, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok(0) };
        Ok(opened.grown.map_or_else(|| packed::len(run), |grown| grown.element_count))
    }

    fn hash_for_each(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        begin: impl FnOnce(u64),
        mut f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok(false) };
        match opened.grown {
            None => {
                begin(packed::len(run));
                let _ = packed::pairs(run).try_for_each(|pair| f(pair.field, pair.value));
            }
            Some(grown) => {
                begin(grown.element_count);
                self.for_each_element(local, grown.first, |field, value, _| f(field, value))?;
            }
        }
        Ok(true)
    }
}
