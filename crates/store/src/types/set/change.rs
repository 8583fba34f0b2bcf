//! Members that are added, removed and moved.

use super::packed;
use super::read::set_count;
use crate::blobs::{Bytes, SlabNeeds};
use crate::effect::{Change, Effect};
use crate::keyspace::{CollectionKey, Keyspace, Local, Opened, Rest};
use crate::tree::hash::Grown;
use crate::tree::Tree;
use crate::types::packed::{elements, packed_bytes_of, PACKED_MAX_BYTES};
use crate::value::Encoding;
use crate::{Deadline, OpError};

/// What storing a member, and both sets anew, may take of slabs.
const CHANGES: usize = 4;

impl Keyspace {
    pub(super) fn set_add(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        members: &[Bytes<'_>],
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let _lock = self.locks.lock_key(&local.holder, at.db, at.key.hash);
        let opened = self.open_to_change(local, at, run)?;
        let (added, done) = self.set_put(local, at, opened.as_ref(), members, run);
        self.announce_members(local, at, opened.is_none(), &added);
        done.map(|()| added.len() as u64)
    }

    /// Adds members; those that were not there before, also if it ends with an error.
    fn set_put<'m>(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: Option<&Opened>,
        members: &[Bytes<'m>],
        run: &mut Vec<u8>,
    ) -> (Vec<Bytes<'m>>, Result<(), OpError>) {
        match opened.and_then(|opened| Some((opened, opened.grown?))) {
            Some((opened, grown)) => self.set_put_grown(local, at, opened, grown, members),
            None => self.set_put_packed(local, at, opened, members, run),
        }
    }

    /// What a set is called that has so many members, with these among them.
    pub(super) fn set_encoding(&self, before: Option<Encoding>, len: u64, members: &[Bytes<'_>]) -> Encoding {
        let is_large = before == Some(Encoding::HashTable)
            || len > self.limits.intset_entries() as u64
            || members.iter().any(|member| member.here().and_then(packed::integer).is_none());
        if is_large {
            Encoding::HashTable
        } else {
            Encoding::IntSet
        }
    }

    fn set_put_packed<'m>(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: Option<&Opened>,
        members: &[Bytes<'m>],
        run: &mut Vec<u8>,
    ) -> (Vec<Bytes<'m>>, Result<(), OpError>) {
        let before = opened.map(|opened| opened.encoding);
        let more_bytes: usize = members.iter().map(packed_bytes_of).sum();
        if run.len() + more_bytes > PACKED_MAX_BYTES {
            return match self.set_grow(local, at, opened, members, run) {
                Ok(added) => (added, Ok(())),
                Err(error) => (Vec::new(), Err(error)),
            };
        }
        let is_sorted = self.set_encoding(before, 0, members) == Encoding::IntSet;
        let mut added = members.to_vec();
        // None of so few bytes lie in pages.
        added.retain(|member| member.here().is_some_and(|member| packed::add(run, member, is_sorted)));
        if added.is_empty() {
            return (added, Ok(()));
        }
        let encoding = self.set_encoding(before, packed::len(run), &added);
        match self.put_packed(local, at, encoding, None, run, Deadline::Keep) {
            Ok(_) => (added, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        }
    }

    /// Makes a tree of a packed set, or of none, with more members.
    fn set_grow<'m>(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: Option<&Opened>,
        members: &[Bytes<'m>],
        run: &[u8],
    ) -> Result<Vec<Bytes<'m>>, OpError> {
        let old = elements(run).map(|member| member.bytes.len());
        self.resolve_stored(old.chain(members.iter().map(Bytes::unstored_bytes)))?;
        let tree = self.create_elements()?;
        let mut grown = Grown { element_count: 0, first: tree, second: None };
        let old =
            elements(run).try_for_each(|member| self.put_member(local, tree, &member.bytes.into()).map(drop));
        let (added, new) = self.put_members(local, tree, members);
        old.and(new).inspect_err(|_| self.drop_trees(&grown))?;
        grown.element_count = packed::len(run) + added.len() as u64;
        let encoding = self.set_encoding(opened.map(|opened| opened.encoding), grown.element_count, members);
        self.put_grown(local, at, encoding, None, grown, Deadline::Keep)?;
        Ok(added)
    }

    /// Puts a member into a tree; whether it is new.
    pub(super) fn put_member(
        &self,
        local: &mut Local,
        tree: Tree,
        member: &Bytes<'_>,
    ) -> Result<bool, OpError> {
        let element = self.hashed_bytes(local, member)?;
        Ok(!self.put_element(local, tree, &element, Bytes::Here(&[]), Deadline::Clear)?)
    }

    fn put_members<'m>(
        &self,
        local: &mut Local,
        tree: Tree,
        members: &[Bytes<'m>],
    ) -> (Vec<Bytes<'m>>, Result<(), OpError>) {
        let mut added = Vec::with_capacity(members.len());
        let done = members.iter().try_for_each(|member| {
            if self.step_of_many(!added.is_empty(), local, |local| self.put_member(local, tree, member))? {
                added.push(*member);
            }
            Ok(())
        });
        (added, done)
    }

    fn set_put_grown<'m>(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
        mut grown: Grown,
        members: &[Bytes<'m>],
    ) -> (Vec<Bytes<'m>>, Result<(), OpError>) {
        let lengths = || members.iter().map(Bytes::unstored_bytes);
        let admitted = self
            .resolve_elements(local, grown.first, members)
            .and_then(|()| self.resolve_stored(lengths()))
            .and_then(|()| self.admit_elements(members.len(), lengths()));
        let _admitted = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return (Vec::new(), Err(error)),
        };
        let (added, done) = self.put_members(local, grown.first, members);
        if added.is_empty() {
            return (added, done);
        }
        grown.element_count += added.len() as u64;
        let encoding = self.set_encoding(Some(opened.encoding), grown.element_count, &added);
        let noted = self.set_grown(local, at, &Opened { encoding, grown: Some(grown), ..*opened });
        (added, done.and(noted))
    }

    fn announce_members(&self, local: &Local, at: &CollectionKey<'_>, is_new: bool, members: &[Bytes<'_>]) {
        for (index, &member) in members.iter().enumerate() {
            let (change, is_new) = (Change::Member { member }, is_new && index == 0);
            self.announce(local, Effect::Element { db: at.db, key: at.key, change, is_new });
        }
    }

    pub(super) fn set_remove(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        members: &[Bytes<'_>],
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let _lock = self.locks.lock_key(&local.holder, at.db, at.key.hash);
        let Some(opened) = self.open_to_change(local, at, run)? else { return Ok(0) };
        self.set_take(local, at, &opened, members, run)
    }

    /// Removes members of a set that has been opened, and the key with the last one. How many were there.
    pub(super) fn set_take(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
        members: &[Bytes<'_>],
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let (len, mut ended) = (set_count(opened, run), Ok(()));
        let mut removed = Vec::with_capacity(members.len());
        match opened.grown {
            None => {
                let mut remove =
                    |member: &Bytes<'_>| member.here().is_some_and(|name| packed::remove(run, name));
                removed.extend(members.iter().copied().filter(|member| remove(member)));
            }
            Some(grown) => {
                self.resolve_elements(local, grown.first, members)?;
                ended = members.iter().try_for_each(|member| {
                    let element = self.hashed_bytes(local, member)?;
                    if self.remove_element(local, grown.first, &element)? {
                        removed.push(*member);
                    }
                    Ok(())
                });
            }
        }
        if removed.is_empty() {
            return ended.map(|()| 0);
        }
        let left = len.saturating_sub(removed.len() as u64);
        self.set_put_rest(local, at, opened, left, run, removed.iter().copied())?;
        ended.map(|()| removed.len() as u64)
    }

    /// Stores what is left of a set, of which a packed one's members are in the run, and announces what has been removed.
    pub(super) fn set_put_rest<'m>(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
        left: u64,
        run: &[u8],
        removed: impl Iterator<Item = Bytes<'m>>,
    ) -> Result<(), OpError> {
        let rest = match opened.grown {
            _ if left == 0 => Rest::Nothing,
            None => Rest::Packed { encoding: opened.encoding, earliest: None, run },
            Some(grown) => {
                Rest::Grown(Opened { grown: Some(Grown { element_count: left, ..grown }), ..*opened })
            }
        };
        self.put_rest(local, at, rest, |local| {
            removed.for_each(|member| self.announce_member_removed(local, at, member));
        })
    }

    pub(super) fn announce_member_removed(&self, local: &Local, at: &CollectionKey<'_>, member: Bytes<'_>) {
        let change = Change::MemberRemoved { member };
        self.announce(local, Effect::Element { db: at.db, key: at.key, change, is_new: false });
    }

    pub(super) fn set_move(
        &self,
        local: &mut Local,
        from: &CollectionKey<'_>,
        to: &CollectionKey<'_>,
        is_same: bool,
        member: Bytes<'_>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some(source) = self.open_to_change(local, from, run)? else { return Ok(false) };
        let is_there = self.set_has(local, &source, run, &member)?;
        let target = self.open_to_change(local, to, run)?;
        if !is_there || is_same {
            return Ok(is_there);
        }
        for grown in [Some(&source), target.as_ref()].into_iter().flatten().filter_map(|set| set.grown) {
            self.resolve_elements(local, grown.first, &[member])?;
        }
        self.resolve_slabs(&SlabNeeds::any(CHANGES))?;
        // First where it is to be, so that it is not lost for want of memory; it is told of as Redis does.
        let (added, done) = self.set_put(local, to, target.as_ref(), &[member], run);
        let mut take = |local: &mut Local| match self.open_to_change(local, from, run)? {
            Some(source) => self.set_take(local, from, &source, &[member], run).map(drop),
            None => Ok(()),
        };
        let moved = done.and_then(|()| self.step_of_many(true, local, &mut take));
        self.announce_members(local, to, target.is_none(), &added);
        moved.map(|()| true)
    }
}
