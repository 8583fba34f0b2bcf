//! Whole sets: the result of a combination.

use super::change;
use crate::blobs::Bytes;
use crate::effect::{Change, Effect};
use crate::keyspace::{collections, elements, CollectionKey, Op, Was};
use crate::tree::hash::Grown;
use crate::types::packed::{check_twins, packed_bytes, push as push_element, PACKED_MAX_BYTES};
use crate::value::Encoding;
use crate::{Deadline, OpError};

use super::packed;

fn as_bytes<'b>(members: &[&'b [u8]]) -> Vec<Bytes<'b>> {
    members.iter().map(|member| Bytes::Here(member)).collect()
}

pub(super) fn replace(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    members: &[&[u8]],
    begun_as: Option<Encoding>,
) -> Result<(), OpError> {
    let encoding = change::encoding(op.keyspace, begun_as, members.len() as u64, &as_bytes(members));
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let was = put_whole(op, at, encoding, members, Deadline::Clear)?;
    op.announce(Effect::Replace { db: at.db, key: at.key });
    for (index, member) in members.iter().enumerate() {
        let (change, is_new) = (Change::Member { member: member.into() }, was != Was::There && index == 0);
        op.announce(Effect::Element { db: at.db, key: at.key, change, is_new });
    }
    Ok(())
}

/// Puts a set of these members over whatever is there.
pub(super) fn put_whole(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    encoding: Encoding,
    members: &[&[u8]],
    deadline: Deadline,
) -> Result<Was, OpError> {
    let bytes: usize = members.iter().map(|member| packed_bytes(member)).sum();
    if bytes > PACKED_MAX_BYTES {
        let grown = tree_of(op, members)?;
        return collections::put_grown(op, at, encoding, None, grown, deadline);
    }
    check_twins(members.iter().copied())?;
    let mut run = Vec::with_capacity(bytes);
    match encoding {
        Encoding::IntSet => packed::add_integers(&mut run, members),
        _ => members.iter().for_each(|member| push_element(&mut run, member)),
    }
    collections::put_packed(op, at, encoding, None, &run, deadline)
}

fn tree_of(op: &mut Op<'_>, members: &[&[u8]]) -> Result<Grown, OpError> {
    collections::resolve_stored(op.keyspace, members.iter().map(|member| member.len()))?;
    let grown = Grown {
        element_count: members.len() as u64,
        first: elements::create_elements(op.keyspace)?,
        second: None,
    };
    let filled =
        members.iter().try_for_each(|member| match change::put_member(op, grown.first, &member.into())? {
            true => Ok(()),
            false => Err(OpError::Twice),
        });
    filled.inspect_err(|_| collections::drop_trees(op.keyspace, &grown))?;
    Ok(grown)
}
