//! Keys and elements chosen at random, each as likely as any other.
//!
//! A hash that is drawn evenly leads to a leaf in proportion to the leaf's width. The leaf is accepted in proportion to its density,
//! and then one of its records is taken: so its width does not matter. How many are turned down depends on how much denser
//! than the average one may be. The numbers of hashes in ranges of equal width scatter, the less the more there are.

use stillframe_pagepool::{is_looking, PageId};

use super::op::Op;
use super::scan::{self, CURSOR_SHIFT};
use super::state::{Drawn, Keyspace};
use super::write::{self, Remains};
use super::{damage, elements};
use crate::blobs::{Given, Taking};
use crate::stop::{retry, Follow, Stop};
use crate::tree::hash::{as_leaf, At, Hashed, Inner, Leaf, LeafGuard, Links, FANOUT};
use crate::tree::{bad_record, Joining, Tree, Words};
use crate::{DbId, Key, OpError};

/// How much denser than the average a leaf may be and still be chosen without bias, if leaves have few records.
const DENSITY_MAX: f64 = 4.0;
/// The same if they have many, by how far their numbers scatter: a leaf above that is not to be expected.
const DEVIATIONS_MAX: f64 = 7.0;
/// Children that an inner node is expected to have.
const USUAL_CHILDREN: f64 = (FANOUT * 2 / 3) as f64;
/// Draws before a random choice gives up on rejection.
const DRAWS_MAX: u32 = 400;

/// By what a leaf is accepted; the same for all leaves of a tree.
#[derive(Clone, Copy)]
struct Odds {
    record_count: f64,
    density_max: f64,
}

impl Odds {
    /// Whether a leaf that has so many records with its chain is accepted, this time.
    fn accept(&self, head: Leaf<'_>, in_leaf: usize) -> bool {
        let share = ((head.hi() - head.lo()) as f64 + 1.0) / 2f64.powi(64);
        // A leaf that has everything is always the right one.
        let density = in_leaf as f64 / (self.record_count * share);
        in_leaf > 0 && (share >= 1.0 || fastrand::f64() * self.density_max <= density)
    }
}

/// Draws a hash ahead of its use, and asks for its leaf.
fn draw_ahead(keyspace: &Keyspace, tree: Tree) -> Drawn {
    let mut key = Key::new(&[], fastrand::u64(..));
    keyspace.trees.prefetch_leaf(tree, &mut key);
    Drawn { hash: key.hash, leaf_hint: key.leaf_hint }
}

/// A key chosen evenly among those that have not expired.
pub fn random_key(op: &mut Op<'_>, db: DbId) -> Result<Option<Vec<u8>>, OpError> {
    let Some(tree) = op.keyspace.tree(db) else {
        op.keyspace.check_database(db)?;
        return Ok(None);
    };
    match random_element(op, tree, op.keyspace.db_stats(db).key_count)? {
        None => first_key_from(op, db, fastrand::u64(..) >> CURSOR_SHIFT),
        drawn => Ok(drawn),
    }
}

/// A key or an element chosen evenly among `record_count`, if one is met that has not expired.
pub fn random_element(op: &mut Op<'_>, tree: Tree, record_count: u64) -> Result<Option<Vec<u8>>, OpError> {
    choose(op, tree, record_count, |op, drawn, odds| {
        draw(op, tree, drawn, odds, Taking::Bytes, &mut |key: Given<'_>| key.held().to_vec())
    })
}

/// Gives an element that is chosen evenly among `element_count` to `f`, if one is met that has not expired.
pub fn give_random_element<R>(
    op: &mut Op<'_>,
    tree: Tree,
    element_count: u64,
    mut f: impl FnMut(Given<'_>) -> R,
) -> Result<Option<R>, OpError> {
    let taking = op.local.taking;
    choose(op, tree, element_count, |op, drawn, odds| draw(op, tree, drawn, odds, taking, &mut f))
}

/// Removes an element that is chosen evenly among `element_count`, none of which has a deadline, and gives it to `f`, perhaps
/// not for the first time. Whether there was one.
pub fn take_random_element(
    op: &mut Op<'_>,
    tree: Tree,
    element_count: u64,
    mut f: impl FnMut(Given<'_>),
) -> Result<bool, OpError> {
    if is_looking() {
        // The same numbers lead to the same leaf.
        return match random_element(op, tree, element_count)? {
            Some(_) => Err(OpError::Looking),
            None => element_from_anywhere(op, tree).and(Err(OpError::Looking)),
        };
    }
    let taken = choose(op, tree, element_count, |op, drawn, odds| draw_out(op, tree, drawn, odds, &mut f))?;
    if let Some((hash, remains, is_sparse)) = taken {
        write::after_removal(op, tree, hash, &remains, is_sparse, Joining::Sparse);
        return Ok(true);
    }
    let Some(element) = element_from_anywhere(op, tree)? else { return Ok(false) };
    f(Given::Here(&element));
    elements::remove_element(op, tree, &elements::hashed(op.keyspace, &element))
}

/// Draws hashes until one is accepted.
fn choose<R>(
    op: &mut Op<'_>,
    tree: Tree,
    record_count: u64,
    mut draw: impl FnMut(&mut Op<'_>, Drawn, Odds) -> Result<Option<R>, Stop>,
) -> Result<Option<R>, OpError> {
    if record_count == 0 {
        return Ok(None);
    }
    let odds = Odds {
        record_count: record_count as f64,
        density_max: retry(|| density_max(op.keyspace, tree, record_count))?,
    };
    for _ in 0..DRAWS_MAX {
        let drawn = op.local.drawn.take().unwrap_or_else(|| draw_ahead(op.keyspace, tree));
        op.local.drawn = Some(draw_ahead(op.keyspace, tree));
        let chosen = match retry(|| draw(op, drawn, odds)) {
            Err(OpError::Damaged(reason))
                if damage::pass_over(op.keyspace, tree, drawn.hash, &reason)?.is_some() =>
            {
                None
            }
            Err(OpError::Fault(fault)) => {
                // Where its page is in memory then; another one's is not.
                op.local.drawn = Some(drawn);
                return Err(OpError::Fault(fault));
            }
            chosen => chosen?,
        };
        if chosen.is_some() {
            return Ok(chosen);
        }
    }
    Ok(None)
}

/// How much denser than the average the leaves of a tree may be, by how many it has about.
fn density_max(keyspace: &Keyspace, tree: Tree, record_count: u64) -> Result<f64, Stop> {
    let root = keyspace.pool.optimistic(tree.root)?;
    let (level, child_count) = (root.level(), root.child_count());
    root.validate()?;
    let leaf_count = child_count as f64 * USUAL_CHILDREN.powi(i32::from(level.saturating_sub(1)));
    let in_leaf = record_count as f64 / leaf_count;
    Ok(DENSITY_MAX.min(1.0 + DEVIATIONS_MAX / in_leaf.sqrt()))
}

/// Gives a record of the leaf of a hash to `f`, if that is accepted.
fn draw<R>(
    op: &mut Op<'_>,
    tree: Tree,
    drawn: Drawn,
    odds: Odds,
    taking: Taking,
    f: &mut impl FnMut(Given<'_>) -> R,
) -> Result<Option<R>, Stop> {
    let mut guard = op.keyspace.trees.leaf_shared(tree, drawn.hash, drawn.leaf_hint)?;
    let head = as_leaf(guard.id(), guard.page())?;
    let (mut count, mut links) = (head.count(), Links::default());
    let mut next = links.after(guard.id(), head)?;
    while let Some(link) = next {
        let guard = op.keyspace.pool.follow_shared(link)?;
        let leaf = as_leaf(link, guard.page())?;
        count += leaf.count();
        next = links.after(link, leaf)?;
    }
    if !odds.accept(head, count) {
        return Ok(None);
    }
    let mut nth = fastrand::usize(..count);
    loop {
        let leaf = as_leaf(guard.id(), guard.page())?;
        if nth < leaf.count() {
            let record = leaf.record(nth).ok_or_else(|| bad_record(guard.id()))?;
            if record.deadline.is_some_and(|deadline| deadline <= op.local.now) {
                return Ok(None);
            }
            return scan::give_key(op.keyspace, &record, taking, &mut op.local.bytes, f).map(Some);
        }
        nth -= leaf.count();
        match leaf.chain() {
            0 => return Ok(None),
            next => guard = op.keyspace.pool.follow_shared(PageId(next))?,
        }
    }
}

/// Removes a record from the leaf of a hash, if that is accepted: the record's hash, what is left of it, and whether its leaf has
/// become sparse.
fn draw_out(
    op: &mut Op<'_>,
    tree: Tree,
    drawn: Drawn,
    odds: Odds,
    f: &mut impl FnMut(Given<'_>),
) -> Result<Option<(u64, Remains, bool)>, Stop> {
    let mut leaf = op.keyspace.trees.chain_exclusive(tree, drawn.hash, drawn.leaf_hint)?;
    let mut count = 0;
    for page in 0..leaf.page_count() {
        count += leaf.leaf(page)?.count();
    }
    if !odds.accept(leaf.leaf(0)?, count) {
        return Ok(None);
    }
    let at = nth_of(&leaf, fastrand::usize(..count))?;
    let record = leaf.record(at)?;
    let (hash, remains) = (op.keyspace.trees.order.hash_of(&record), Remains::of(&record));
    write::check_discardable(op.keyspace, &remains)?;
    scan::give_key(op.keyspace, &record, op.local.taking, &mut op.local.bytes, f)?;
    write::remove_from_chain(op.keyspace, &mut leaf, at)?;
    Ok(Some((hash, remains, Joining::Sparse.is_due::<Hashed>(leaf.leaf(0)?))))
}

/// The first element from a random hash on, round the end.
#[cold]
pub fn element_from_anywhere(op: &mut Op<'_>, tree: Tree) -> Result<Option<Vec<u8>>, OpError> {
    let (mut cursor, mut is_round) = (fastrand::u64(..) >> CURSOR_SHIFT, false);
    loop {
        let mut first = None;
        cursor = elements::scan_elements(op, tree, cursor, 1, |element, _| {
            first.get_or_insert_with(|| element.to_vec());
        })?;
        if first.is_some() || (cursor == 0 && std::mem::replace(&mut is_round, true)) {
            return Ok(first);
        }
    }
}

/// The first unexpired key at or after a cursor, round the end; for databases that are mostly expired.
pub(super) fn first_key_from(op: &mut Op<'_>, db: DbId, start: u64) -> Result<Option<Vec<u8>>, OpError> {
    for (mut cursor, end) in [(start, u64::MAX), (0, start)] {
        loop {
            let mut first = None;
            let next = scan::scan(op, db, cursor, 100, |key, _| {
                first.get_or_insert_with(|| key.to_vec());
            })?;
            if first.is_some() {
                return Ok(first);
            }
            if next == 0 || next > end {
                break;
            }
            cursor = next;
        }
    }
    Ok(None)
}

/// The `nth` record of a leaf with its chain.
fn nth_of(leaf: &LeafGuard<'_>, mut nth: usize) -> Result<At, Stop> {
    for page in 0..leaf.page_count() {
        let count = leaf.leaf(page)?.count();
        if nth < count {
            return Ok(At { page, slot: nth });
        }
        nth -= count;
    }
    Err(bad_record(leaf.head.id()))
}
