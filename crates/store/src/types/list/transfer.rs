//! An item that goes from one list to another, or to the other end of its own.

use std::ops::ControlFlow;

use super::ends;
use super::grown::{self, Linking};
use super::place::{list_len, ListAt};
use crate::blobs::{Bytes, Given, Sending, SlabNeeds, Taking};
use crate::effect::End;
use crate::keyspace::{collections, CollectionKey, Op, Opened};
use crate::stop::retry;
use crate::tree::list::Element;
use crate::tree::Tree;
use crate::worker::lock_if_waiting;
use crate::{Key, OpError};

/// What storing and dropping an item that lies outside may take of slabs.
const CHANGES: usize = 4;

/// An item at an end of a list.
enum EndItem {
    Here(Vec<u8>),
    /// It is long: its pages go over as they are. They are those of this item of a tree.
    Large(Sending, Tree, u64),
}

impl ListAt<'_, '_> {
    /// Takes an item from an end of one list, gives it to `f` and puts it to an end of another, or of the same. The caller holds
    /// locks on both; a waiting worker takes them. Whether there was one.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed, and what was given does not count.
    pub fn move_to(&mut self, end: End, to: (&Key<'_>, End), f: impl FnOnce(&[u8])) -> Result<bool, OpError> {
        let mut f = Some(f);
        let mut give = |item: Given<'_>| {
            if let Some(f) = f.take() {
                f(item.held());
            }
        };
        let (source, target) = (self.at, CollectionKey { key: *to.0, ..self.at });
        let _locks = lock_if_waiting(self.worker, [(source.db, &source.key), (target.db, to.0)]);
        self.worker.with_run(|op, run| move_end(op, (&source, end), (&target, to.1), &mut give, run))
    }

    /// The same for a caller that takes a large item where it lies.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`ListAt::move_to`].
    pub fn send_moved(
        &mut self,
        end: End,
        to: (&Key<'_>, End),
        f: impl FnOnce(Given<'_>),
    ) -> Result<bool, OpError> {
        let mut f = Some(f);
        let mut give = |item: Given<'_>| {
            if let Some(f) = f.take() {
                f(item);
            }
        };
        let (source, target) = (self.at, CollectionKey { key: *to.0, ..self.at });
        let _locks = lock_if_waiting(self.worker, [(source.db, &source.key), (target.db, to.0)]);
        self.worker.with_run_taking(|op, run| move_end(op, (&source, end), (&target, to.1), &mut give, run))
    }
}

fn move_end(
    op: &mut Op<'_>,
    (source, from): (&CollectionKey<'_>, End),
    (target, to): (&CollectionKey<'_>, End),
    f: impl FnOnce(Given<'_>),
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some(item) = end(op, source, from, run)? else { return Ok(false) };
    // The pages at both ends are in memory, and the other key has a list or nothing: from here on nothing fails but
    // for want of memory, which the first step would meet.
    end(op, target, to, run)?;
    collections::resolve_slabs(op.keyspace, &SlabNeeds::any(CHANGES))?;
    match item {
        EndItem::Here(item) => {
            let opened = collections::open_to_change(op, target, run)?;
            let items = (&[Bytes::Here(&item)][..], Linking::Copied);
            ends::push(op, target, opened.as_ref(), to, items, run)?;
            drop_end(op, source, from, run)?;
            f(Given::Here(&item));
        }
        EndItem::Large(item, tree, index) => {
            let held = match op.local.taking {
                Taking::Bytes => Some(Bytes::Stored(&item).to_vec()?),
                Taking::Large => None,
            };
            // Its place is taken by nothing, so that its pages do not go with that.
            let replace = |element| retry(|| op.keyspace.lists.set(tree, index, element, |_| ()));
            replace(Element::Inline(&[]))?;
            let items = (&[Bytes::Stored(&item)][..], Linking::Moved);
            let opened = collections::open_to_change(op, target, run)?;
            ends::push(op, target, opened.as_ref(), to, items, run).inspect_err(|_| {
                // It has just been there.
                let _ = replace(Element::Outside(item.blob()));
            })?;
            drop_end(op, source, from, run)?;
            f(held.as_ref().map_or(Given::Large(item), |held| Given::Here(held)));
        }
    }
    Ok(true)
}

fn drop_end(op: &mut Op<'_>, at: &CollectionKey<'_>, end: End, run: &mut Vec<u8>) -> Result<(), OpError> {
    collections::step_of_many(op, true, |op| match collections::open_to_change(op, at, run)? {
        Some(opened) => ends::pop(op, at, &opened, end, 1, |_| (), run),
        None => Ok(()),
    })
}

/// The item at an end of a list, if there is one.
fn end(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    end: End,
    run: &mut Vec<u8>,
) -> Result<Option<EndItem>, OpError> {
    let Some(opened) = collections::open_to_change(op, at, run)? else { return Ok(None) };
    let taking = std::mem::replace(&mut op.local.taking, Taking::Large);
    let found = item_at(op, &opened, end, run);
    op.local.taking = taking;
    found
}

fn item_at(op: &mut Op<'_>, opened: &Opened, end: End, run: &[u8]) -> Result<Option<EndItem>, OpError> {
    let Some(last) = list_len(opened, run).checked_sub(1) else { return Ok(None) };
    let index = if end == End::Left { 0 } else { last };
    let mut found = None;
    grown::give(op, opened, index..index + 1, run, |item| {
        found = match (item, opened.grown) {
            (Given::Here(item), _) => Some(EndItem::Here(item.to_vec())),
            (Given::Large(item), Some(grown)) => Some(EndItem::Large(item, grown.first, index)),
            (Given::Large(_), None) => None,
        };
        ControlFlow::Break(())
    })?;
    Ok(found)
}
