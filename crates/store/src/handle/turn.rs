//! A thread's turn at a tree: others are kept out as far as it wants.

use parking_lot::MutexGuard;

use super::tree::Tree;
use crate::named::{KeptOut, NamedTree};

/// Writers of the tree are out, and nobody else has a turn, as long as it is there.
pub(super) struct Turn<'t> {
    tree: &'t Tree,
    // After the gate has been opened.
    _turn: MutexGuard<'t, ()>,
}

impl<'t> Turn<'t> {
    /// Waits for other transactions, and for writers to leave. Who waits is quiescent.
    pub fn take(tree: &'t Tree) -> Turn<'t> {
        let turn = Turn { tree, _turn: tree.seat.idle(|| tree.named.turn.lock()) };
        turn.close(KeptOut::Writers);
        turn
    }

    /// Keeps others out, and waits for those who are inside. True if it has waited: a cut may have come meanwhile.
    pub fn close(&self, kept_out: KeptOut) -> bool {
        let named: &NamedTree = &self.tree.named;
        named.gate.set(kept_out);
        let visitors = named.visitors();
        let is_anybody_inside = || visitors.iter().any(|visitor| !visitor.place.is_out(kept_out));
        let waits = is_anybody_inside();
        if waits {
            self.tree.seat.idle(|| {
                while is_anybody_inside() {
                    std::thread::yield_now();
                }
            });
        }
        waits
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.tree.named.gate.set(KeptOut::Nobody);
    }
}
