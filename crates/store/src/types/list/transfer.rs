//! An item that goes from one list to another, or to the other end of its own.

use std::ops::ControlFlow;

use super::grown::Linking;
use super::place::{at, list_len};
use crate::blobs::{Bytes, Given, Sending, SlabNeeds, Taking};
use crate::effect::End;
use crate::keyspace::{CollectionKey, Keyspace, Local, Opened};
use crate::stop::retry;
use crate::tree::list::Element;
use crate::tree::Tree;
use crate::worker::Worker;
use crate::{DbId, Key, OpError};

/// What storing and dropping an item that lies outside may take of slabs.
const CHANGES: usize = 4;

/// An item at an end of a list.
enum EndItem {
    Here(Vec<u8>),
    /// It is long: its pages go over as they are. They are those of this item of a tree.
    Large(Sending, Tree, u64),
}

impl Worker {
    /// Takes an item from an end of one list, gives it to `f` and puts it to an end of another, or of the same. The caller holds
    /// locks on both; a waiting worker takes them. Whether there was one.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed, and what was given does not count.
    pub fn list_move(
        &mut self,
        db: DbId,
        from: (&Key<'_>, End),
        to: (&Key<'_>, End),
        f: impl FnOnce(&[u8]),
    ) -> Result<bool, OpError> {
        let mut f = Some(f);
        let mut give = |item: Given<'_>| {
            if let Some(f) = f.take() {
                f(item.held());
            }
        };
        let _locks = self.lock_if_waiting([(db, from.0), (db, to.0)]);
        self.with_run(|keyspace, local, run| {
            let (source, target) = (at(db, from.0), at(db, to.0));
            keyspace.list_move(local, (&source, from.1), (&target, to.1), &mut give, run)
        })
    }

    /// The same for a caller that takes a large item where it lies.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Worker::list_move`].
    pub fn list_send_moved(
        &mut self,
        db: DbId,
        from: (&Key<'_>, End),
        to: (&Key<'_>, End),
        f: impl FnOnce(Given<'_>),
    ) -> Result<bool, OpError> {
        let mut f = Some(f);
        let mut give = |item: Given<'_>| {
            if let Some(f) = f.take() {
                f(item);
            }
        };
        let _locks = self.lock_if_waiting([(db, from.0), (db, to.0)]);
        self.with_run_taking(|keyspace, local, run| {
            let (source, target) = (at(db, from.0), at(db, to.0));
            keyspace.list_move(local, (&source, from.1), (&target, to.1), &mut give, run)
        })
    }
}

impl Keyspace {
    fn list_move(
        &self,
        local: &mut Local,
        (source, from): (&CollectionKey<'_>, End),
        (target, to): (&CollectionKey<'_>, End),
        f: impl FnOnce(Given<'_>),
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some(item) = self.list_end(local, source, from, run)? else { return Ok(false) };
        // The pages at both ends are in memory, and the other key has a list or nothing: from here on nothing fails but
        // for want of memory, which the first step would meet.
        self.list_end(local, target, to, run)?;
        self.resolve_slabs(&SlabNeeds::any(CHANGES))?;
        match item {
            EndItem::Here(item) => {
                let opened = self.open_to_change(local, target, run)?;
                let items = (&[Bytes::Here(&item)][..], Linking::Copied);
                self.list_push(local, target, opened.as_ref(), to, items, run)?;
                self.list_drop_end(local, source, from, run)?;
                f(Given::Here(&item));
            }
            EndItem::Large(item, tree, index) => {
                let held = match local.taking {
                    Taking::Bytes => Some(Bytes::Stored(&item).to_vec()?),
                    Taking::Large => None,
                };
                // Its place is taken by nothing, so that its pages do not go with that.
                let replace = |element| retry(|| self.lists.set(tree, index, element, |_| ()));
                replace(Element::Inline(&[]))?;
                let items = (&[Bytes::Stored(&item)][..], Linking::Moved);
                let opened = self.open_to_change(local, target, run)?;
                self.list_push(local, target, opened.as_ref(), to, items, run).inspect_err(|_| {
                    // It has just been there.
                    let _ = replace(Element::Outside(item.blob()));
                })?;
                self.list_drop_end(local, source, from, run)?;
                f(held.as_ref().map_or(Given::Large(item), |held| Given::Here(held)));
            }
        }
        Ok(true)
    }

    fn list_drop_end(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        end: End,
        run: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        self.step_of_many(true, local, |local| match self.open_to_change(local, at, run)? {
            Some(opened) => self.list_pop(local, at, &opened, end, 1, |_| (), run),
            None => Ok(()),
        })
    }

    /// The item at an end of a list, if there is one.
    fn list_end(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        end: End,
        run: &mut Vec<u8>,
    ) -> Result<Option<EndItem>, OpError> {
        let Some(opened) = self.open_to_change(local, at, run)? else { return Ok(None) };
        let taking = std::mem::replace(&mut local.taking, Taking::Large);
        let found = self.list_item_at(local, &opened, end, run);
        local.taking = taking;
        found
    }

    fn list_item_at(
        &self,
        local: &mut Local,
        opened: &Opened,
        end: End,
        run: &[u8],
    ) -> Result<Option<EndItem>, OpError> {
        let Some(last) = list_len(opened, run).checked_sub(1) else { return Ok(None) };
        let index = if end == End::Left { 0 } else { last };
        let mut found = None;
        self.list_give(local, opened, index..index + 1, run, |item| {
            found = match (item, opened.grown) {
                (Given::Here(item), _) => Some(EndItem::Here(item.to_vec())),
                (Given::Large(item), Some(grown)) => Some(EndItem::Large(item, grown.first, index)),
                (Given::Large(_), None) => None,
            };
            ControlFlow::Break(())
        })?;
        Ok(found)
    }
}
