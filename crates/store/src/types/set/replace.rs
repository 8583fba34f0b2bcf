//! Whole sets: the result of a combination.

use crate::blobs::Bytes;
use crate::effect::{Change, Effect};
use crate::keyspace::{CollectionKey, Keyspace, Local, Was};
use crate::tree::hash::Grown;
use crate::types::packed::{check_twins, packed_bytes, push as push_element, PACKED_MAX_BYTES};
use crate::value::Encoding;
use crate::{Deadline, OpError};

use super::packed;

fn as_bytes<'b>(members: &[&'b [u8]]) -> Vec<Bytes<'b>> {
    members.iter().map(|member| Bytes::Here(member)).collect()
}

impl Keyspace {
    pub(super) fn set_replace(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        members: &[&[u8]],
        begun_as: Option<Encoding>,
    ) -> Result<(), OpError> {
        let encoding = self.set_encoding(begun_as, members.len() as u64, &as_bytes(members));
        let _lock = self.locks.lock_key(&local.holder, at.db, at.key.hash);
        let was = self.set_put_whole(local, at, encoding, members, Deadline::Clear)?;
        self.announce(local, Effect::Replace { db: at.db, key: at.key });
        for (index, member) in members.iter().enumerate() {
            let (change, is_new) =
                (Change::Member { member: member.into() }, was != Was::There && index == 0);
            self.announce(local, Effect::Element { db: at.db, key: at.key, change, is_new });
        }
        Ok(())
    }

    /// Puts a set of these members over whatever is there.
    pub(super) fn set_put_whole(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        encoding: Encoding,
        members: &[&[u8]],
        deadline: Deadline,
    ) -> Result<Was, OpError> {
        let bytes: usize = members.iter().map(|member| packed_bytes(member)).sum();
        if bytes > PACKED_MAX_BYTES {
            let grown = self.set_tree_of(local, members)?;
            return self.put_grown(local, at, encoding, None, grown, deadline);
        }
        check_twins(members.iter().copied())?;
        let mut run = Vec::with_capacity(bytes);
        match encoding {
            Encoding::IntSet => packed::add_integers(&mut run, members),
            _ => members.iter().for_each(|member| push_element(&mut run, member)),
        }
        self.put_packed(local, at, encoding, None, &run, deadline)
    }

    fn set_tree_of(&self, local: &mut Local, members: &[&[u8]]) -> Result<Grown, OpError> {
        self.resolve_stored(members.iter().map(|member| member.len()))?;
        let grown =
            Grown { element_count: members.len() as u64, first: self.create_elements()?, second: None };
        let filled = members.iter().try_for_each(|member| {
            match self.put_member(local, grown.first, &member.into())? {
                true => Ok(()),
                false => Err(OpError::Twice),
            }
        });
        filled.inspect_err(|_| self.drop_trees(&grown))?;
        Ok(grown)
    }
}
