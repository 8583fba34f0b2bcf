//! Going through both trees of a sorted set, to check them, and that they say the same.

use stillframe_pagepool::PageId;

use super::key::{hash_in, parse, Member};
use super::trees::{malformed, Roots};
use crate::blobs::Blob;
use crate::page::{Page, PAGE_SIZE};
use crate::stop::Stop;
use crate::tree::hash::{as_leaf, index_hash, Hashed, Inner, Leaf, RecordKey, RecordValue, SLOT_BYTES};
use crate::tree::order::{bad_record, not_inner};
use crate::tree::ordered::{check_tree, Stored, Visitor};
use crate::tree::trees::Tree;
use crate::tree::words::Words;

/// Deepest tree that is believed.
const LEVEL_MAX: u8 = 16;

/// A member as the index knows it: its hash, and the bits of its score.
type Pair = (u64, u64);

fn ensure(holds: bool, pid: PageId, what: &str) -> Result<(), Stop> {
    match holds {
        true => Ok(()),
        false => Err(Stop::Damaged(format!("page {}: {what}", pid.0).into())),
    }
}

/// Goes through the order as another visitor does, and notes its members.
struct Members<'a, V> {
    visitor: &'a mut V,
    hashes: &'a Hashed,
    pairs: Vec<Pair>,
}

impl<V: Visitor> Visitor for Members<'_, V> {
    fn read(&mut self, pid: PageId, into: &mut Page) -> Result<(), Stop> {
        self.visitor.read(pid, into)
    }

    fn page(&mut self, pid: PageId) -> Result<(), Stop> {
        self.visitor.page(pid)
    }

    fn blob(&mut self, blob: Blob) -> Result<(), Stop> {
        self.visitor.blob(blob)
    }

    fn record(&mut self, key: &[u8], value: Stored<'_>) -> Result<(), Stop> {
        let scored = parse(key, value).ok_or_else(malformed)?;
        let hash = match scored.member {
            Member::Whole(member) => self.hashes.hash(member),
            Member::Long(_) => hash_in(key).ok_or_else(malformed)?,
        };
        self.pairs.push((index_hash(hash), scored.score.to_bits()));
        Ok(())
    }
}

/// Goes through the index.
struct Index<'a, V> {
    visitor: &'a mut V,
    hashes: &'a Hashed,
    tag: u32,
    pairs: Vec<Pair>,
}

impl<V: Visitor> Index<'_, V> {
    fn node(&mut self, pid: PageId, level: u8, lo: u64, hi: u64) -> Result<(), Stop> {
        self.visitor.page(pid)?;
        let mut page = Box::new([0; PAGE_SIZE]);
        self.visitor.read(pid, &mut page)?;
        let is_one = page.is_inner(self.tag) && page.level() == level && (1..=LEVEL_MAX).contains(&level);
        if !is_one {
            return Err(not_inner(pid));
        }
        ensure(Inner::lo(&*page) == lo && Inner::hi(&*page) == hi, pid, "other bounds than its parent's")?;
        for index in 0..page.child_count() {
            let (child, lo, hi) = (PageId(page.child(index)), page.separator(index), page.child_hi(index));
            ensure(lo <= hi, pid, "separators are out of order")?;
            match level {
                1 => self.leaves(child, lo, hi)?,
                _ => self.node(child, level - 1, lo, hi)?,
            }
        }
        Ok(())
    }

    /// A leaf and its chain.
    fn leaves(&mut self, head: PageId, lo: u64, hi: u64) -> Result<(), Stop> {
        let (mut pid, first) = (head, self.pairs.len());
        let mut page = Box::new([0; PAGE_SIZE]);
        loop {
            self.visitor.page(pid)?;
            self.visitor.read(pid, &mut page)?;
            let leaf = as_leaf(pid, &page)?;
            let is_here = leaf.tag() == self.tag && (pid != head || (leaf.lo(), leaf.hi()) == (lo, hi));
            ensure(is_here, pid, "other bounds than its parent's")?;
            ensure(pid == head || leaf.count() > 0, pid, "empty in a chain")?;
            self.leaf(pid, leaf, lo, hi)?;
            if leaf.chain() == 0 {
                break;
            }
            pid = PageId(leaf.chain());
        }
        let of_one_hash = self.pairs[first..].windows(2).all(|pair| pair[0].0 == pair[1].0);
        ensure(pid == head || of_one_hash, head, "several hashes in a chain")
    }

    fn leaf(&mut self, pid: PageId, leaf: Leaf<'_>, lo: u64, hi: u64) -> Result<(), Stop> {
        let mut extents = Vec::with_capacity(leaf.count());
        for slot in 0..leaf.count() {
            let record = leaf.record(slot).ok_or_else(|| bad_record(pid))?;
            let (RecordKey::Hash(_), RecordValue::Int(value)) = (record.key, record.value) else {
                return Err(bad_record(pid));
            };
            let hash = self.hashes.hash_of(&record);
            let is_placed = (lo..=hi).contains(&hash)
                && leaf.first_at_or_above(hash) <= slot
                && leaf.least_hash(slot) <= hash;
            ensure(is_placed, pid, "a hash belongs elsewhere")?;
            self.pairs.push((hash, value as u64));
            extents.push(leaf.record_offset(slot)..leaf.record_offset(slot) + record.encoded_bytes());
        }
        extents.sort_unstable_by_key(|extent| extent.start);
        let are_apart = extents.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let bytes: usize = extents.iter().map(|extent| extent.len() + SLOT_BYTES).sum();
        let adds_up = leaf.live_bytes() == bytes && leaf.deadline_count() + leaf.outside_count() == 0;
        ensure(are_apart && adds_up, pid, "its header miscounts")
    }
}

fn check_index(tree: Tree, hashes: &Hashed, visitor: &mut impl Visitor) -> Result<Vec<Pair>, Stop> {
    let mut page = [0; PAGE_SIZE];
    visitor.read(tree.root, &mut page)?;
    let mut index = Index { visitor, hashes, tag: tree.tag, pairs: Vec::new() };
    index.node(tree.root, page.level(), 0, u64::MAX)?;
    Ok(index.pairs)
}

/// Goes through both trees of a sorted set and checks them; returns its members.
///
/// # Errors
/// Those of the visitor; [`Stop::Damaged`] says what is wrong and where.
pub(crate) fn check_sorted_set(
    roots: Roots,
    hashes: &Hashed,
    visitor: &mut impl Visitor,
) -> Result<u64, Stop> {
    let mut indexed = check_index(roots.index, hashes, visitor)?;
    let mut members = Members { visitor, hashes, pairs: Vec::new() };
    let count = check_tree(roots.order.root, roots.order.tag, true, &mut members)?;
    let mut ordered = members.pairs;
    indexed.sort_unstable();
    ordered.sort_unstable();
    ensure(indexed == ordered, roots.index.root, "the index has other members than the order")?;
    Ok(count)
}
