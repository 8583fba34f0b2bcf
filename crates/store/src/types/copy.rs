//! Copies of values, whatever their type.

use crate::effect::Effect;
use crate::keyspace::{CollectionKey, Keyspace, Local};
use crate::tree::hash::Grown;
use crate::value::ValueType;
use crate::worker::Worker;
use crate::{DbId, Deadline, Key, OpError};

impl Worker {
    /// Copies an entry, deadline included, over whatever is at `to`. Returns false if `from` is absent. The caller
    /// holds locks on both.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn copy(&mut self, from: (DbId, &Key<'_>), to: (DbId, &Key<'_>)) -> Result<bool, OpError> {
        let (keyspace, local) = self.split();
        let Some(entry) = keyspace.entry(local, from.0, from.1)? else { return Ok(false) };
        if entry.value_type == ValueType::String {
            return keyspace.copy(local, from, to, None);
        }
        let mut run = std::mem::take(&mut local.run);
        let deadline = entry.deadline.map_or(Deadline::Clear, Deadline::At);
        let copied = keyspace.copy_collection(local, entry.value_type, from, to, deadline, &mut run);
        local.run = run;
        copied
    }
}

impl Keyspace {
    fn copy_collection(
        &self,
        local: &mut Local,
        value_type: ValueType,
        from: (DbId, &Key<'_>),
        to: (DbId, &Key<'_>),
        deadline: Deadline,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let source = CollectionKey { db: from.0, key: *from.1, value_type };
        let target = CollectionKey { db: to.0, key: *to.1, value_type };
        let Some(opened) = self.open_to_change(local, &source, run)? else { return Ok(false) };
        match opened.grown {
            None => self.put_packed(local, &target, opened.encoding, opened.earliest, run, deadline)?,
            Some(grown) => {
                let copy = self.copy_trees(local, value_type, &grown)?;
                self.put_grown(local, &target, opened.encoding, opened.earliest, copy, deadline)?
            }
        };
        self.announce(local, Effect::Copy { from: (from.0, *from.1), to: (to.0, *to.1) });
        Ok(true)
    }

    fn copy_trees(&self, local: &mut Local, value_type: ValueType, grown: &Grown) -> Result<Grown, OpError> {
        match value_type {
            ValueType::Hash | ValueType::Set => {
                Ok(Grown { first: self.copy_elements(local, grown)?, ..*grown })
            }
            ValueType::SortedSet => self.copy_sorted_set(local, grown),
            ValueType::List => self.copy_list(local, grown),
            ValueType::String | ValueType::Stream => Err(OpError::WrongType),
        }
    }
}
