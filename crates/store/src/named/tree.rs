//! One named tree, as all its handles share it.
//!
//! ```text
//!   OPEN ── drop_tree, between two operations of everybody ──▶ DROPPED
//!     └──── a transaction can be neither completed nor undone ──▶ TORN: nobody gets in, and no cut is taken
//! ```

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use stillframe_pagepool::{PageId, Reason};

use super::gate::{Gate, GateSeat};
use super::names::NameEntry;
use crate::error::TreeError;
use crate::tree::{Tree, NO_DATABASE};

/// A handle, as the others see it.
pub(crate) struct Visitor {
    pub place: GateSeat,
    /// Records that it has added, less those that it has removed. Only its own thread writes it.
    record_delta: AtomicI64,
    /// Changes that it has made. Only its own thread writes it.
    change_count: AtomicU64,
}

impl Visitor {
    /// Counts a change, and by how much the number of records has changed.
    #[inline(always)]
    pub fn count(&self, delta: i64) {
        self.change_count.store(self.change_count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.record_delta.store(self.record_delta.load(Ordering::Relaxed) + delta, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Visitors {
    here: Vec<Arc<Visitor>>,
    /// Records that there were at the start, and what visitors that are gone have added.
    record_count: i64,
    /// Changes by visitors that are gone.
    change_count: u64,
}

pub(crate) struct NamedTree {
    name: Vec<u8>,
    /// Root page and, in the high half, tag.
    identity: AtomicU64,
    is_dropped: AtomicBool,
    torn: OnceLock<Reason>,
    pub gate: Gate,
    /// Held for a transaction.
    pub turn: Mutex<()>,
    visitors: Mutex<Visitors>,
}

fn pack(root: PageId, tag: u32) -> u64 {
    u64::from(root.0) | u64::from(tag) << 32
}

impl NamedTree {
    pub fn new(entry: NameEntry) -> NamedTree {
        let visitors =
            Visitors { here: Vec::new(), record_count: entry.record_count as i64, change_count: 0 };
        NamedTree {
            identity: AtomicU64::new(pack(entry.root, entry.tag)),
            name: entry.name,
            is_dropped: AtomicBool::new(false),
            torn: OnceLock::new(),
            gate: Gate::new(),
            turn: Mutex::default(),
            visitors: Mutex::new(visitors),
        }
    }

    pub fn name(&self) -> &[u8] {
        &self.name
    }

    pub fn tree(&self) -> Tree {
        let word = self.identity.load(Ordering::Acquire);
        Tree { db: NO_DATABASE, root: PageId(word as u32), tag: (word >> 32) as u32 }
    }

    /// Another tree takes the place of this one's pages. For who has the turn, with everybody out.
    pub fn replace(&self, tree: Tree) {
        self.identity.store(pack(tree.root, tree.tag), Ordering::Release);
    }

    /// OPEN → DROPPED. Runs in the barrier.
    pub fn drop_it(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    /// OPEN → TORN
    pub fn tear(&self, why: Reason) {
        self.torn.get_or_init(|| why);
    }

    pub fn torn(&self) -> Option<&Reason> {
        self.torn.get()
    }

    /// The tree, if it is OPEN.
    ///
    /// # Errors
    /// [`TreeError::Dropped`], [`TreeError::Damaged`].
    #[inline(always)]
    pub fn open_tree(&self) -> Result<Tree, TreeError> {
        match self.is_dropped.load(Ordering::Acquire) || self.torn.get().is_some() {
            true => Err(self.not_open()),
            false => Ok(self.tree()),
        }
    }

    #[cold]
    fn not_open(&self) -> TreeError {
        self.torn().map_or(TreeError::Dropped, |why| TreeError::Damaged(why.clone()))
    }

    pub fn join(&self) -> Arc<Visitor> {
        let visitor = Arc::new(Visitor {
            place: GateSeat::new(),
            record_delta: AtomicI64::new(0),
            change_count: AtomicU64::new(0),
        });
        self.visitors.lock().here.push(visitor.clone());
        visitor
    }

    pub fn retire(&self, visitor: &Arc<Visitor>) {
        let mut visitors = self.visitors.lock();
        visitors.record_count += visitor.record_delta.load(Ordering::Relaxed);
        visitors.change_count += visitor.change_count.load(Ordering::Relaxed);
        visitors.here.retain(|other| !Arc::ptr_eq(other, visitor));
    }

    pub fn visitors(&self) -> Vec<Arc<Visitor>> {
        self.visitors.lock().here.clone()
    }

    /// Records in the tree.
    pub fn record_count(&self) -> u64 {
        let visitors = self.visitors.lock();
        let deltas = visitors.here.iter().map(|visitor| visitor.record_delta.load(Ordering::Relaxed));
        (visitors.record_count + deltas.sum::<i64>()).max(0) as u64
    }

    /// Changes since the store was opened.
    pub fn change_count(&self) -> u64 {
        let visitors = self.visitors.lock();
        let counts = visitors.here.iter().map(|visitor| visitor.change_count.load(Ordering::Relaxed));
        visitors.change_count + counts.sum::<u64>()
    }

    /// Corrects the count by what was found missing in it.
    pub fn correct(&self, delta: i64) {
        self.visitors.lock().record_count += delta;
    }

    pub fn entry(&self) -> NameEntry {
        let Tree { root, tag, .. } = self.tree();
        NameEntry { name: self.name.clone(), root, tag, record_count: self.record_count() }
    }
}
