//! The databases: where each has its tree.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use stillframe_pagepool::PageId;

use crate::stop::Stop;
use crate::tree::Tree;
use crate::DbId;

pub(super) struct Databases {
    /// Root page and, in the high half, tag of each database; 0 while it has no tree.
    trees: Box<[AtomicU64]>,
    next_tag: AtomicU32,
    creation: Mutex<()>,
}

fn pack(root: u32, tag: u32) -> u64 {
    u64::from(root) | u64::from(tag) << 32
}

impl Databases {
    /// Databases with these roots and tags; 0 is no tree.
    pub fn new(trees: impl Iterator<Item = (u32, u32)>, next_tag: u32) -> Databases {
        Databases {
            trees: trees.map(|(root, tag)| AtomicU64::new(pack(root, tag))).collect(),
            next_tag: AtomicU32::new(next_tag),
            creation: Mutex::new(()),
        }
    }

    pub fn count(&self) -> usize {
        self.trees.len()
    }

    pub fn next_tag(&self) -> u32 {
        self.next_tag.load(Ordering::Relaxed)
    }

    /// A tag that no tree has had.
    pub fn take_tag(&self) -> u32 {
        let _creating = self.creation.lock();
        self.next_tag.fetch_add(1, Ordering::Relaxed)
    }

    /// # Errors
    /// [`Stop::NoDatabase`].
    pub fn check(&self, db: DbId) -> Result<(), Stop> {
        match (db.0 as usize) < self.count() {
            true => Ok(()),
            false => Err(Stop::NoDatabase { db, database_count: self.count() as u32 }),
        }
    }

    /// The tree of a database; `None` while it is empty from the start, and if there is no such database.
    #[inline(always)]
    pub fn tree(&self, db: DbId) -> Option<Tree> {
        let word = self.trees.get(db.0 as usize)?.load(Ordering::Acquire);
        (word != 0).then_some(Tree { db, root: PageId(word as u32), tag: (word >> 32) as u32 })
    }

    pub fn trees(&self) -> impl Iterator<Item = Tree> + '_ {
        (0..self.count()).filter_map(|db| self.tree(DbId(db as u32)))
    }

    /// The tree of a database, made of the root that `make` gives for a new tag if there is none.
    ///
    /// # Errors
    /// [`Stop::NoDatabase`]; those of `make`.
    pub fn tree_or_create(
        &self,
        db: DbId,
        make: impl FnOnce(u32) -> Result<PageId, Stop>,
    ) -> Result<Tree, Stop> {
        if let Some(tree) = self.tree(db) {
            return Ok(tree);
        }
        self.check(db)?;
        let _creating = self.creation.lock();
        if let Some(tree) = self.tree(db) {
            return Ok(tree);
        }
        let tag = self.next_tag();
        let root = make(tag)?;
        self.next_tag.store(tag + 1, Ordering::Relaxed);
        self.trees[db.0 as usize].store(pack(root.0, tag), Ordering::Release);
        Ok(Tree { db, root, tag })
    }

    /// Takes a database's tree, of one that there is, away from it. Runs in the barrier.
    pub fn take(&self, db: DbId) -> Option<PageId> {
        let word = self.trees[db.0 as usize].swap(0, Ordering::AcqRel);
        (word != 0).then_some(PageId(word as u32))
    }

    /// Exchanges two databases that there are. Runs in the barrier.
    pub fn swap(&self, a: DbId, b: DbId) {
        let (a, b) = (&self.trees[a.0 as usize], &self.trees[b.0 as usize]);
        let was = a.load(Ordering::Relaxed);
        a.store(b.load(Ordering::Relaxed), Ordering::Release);
        b.store(was, Ordering::Release);
    }
}
