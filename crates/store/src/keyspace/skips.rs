//! What is left out or given up because of damage.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::tree::Tree;

/// Places that are told apart; what is passed over beyond that is not counted.
const PLACES_MAX: usize = 1 << 16;
/// Notes that are kept until somebody takes them.
const NOTES_MAX: usize = 16;

/// What has been left out or given up because of damage.
#[derive(Default)]
pub(crate) struct Skips {
    is_on: AtomicBool,
    met: Mutex<Met>,
}

#[derive(Default)]
struct Met {
    /// Trees and least hashes of what walks have passed over.
    places: HashSet<(u32, u64)>,
    given_up_count: u64,
    notes: VecDeque<String>,
}

/// Counters for `INFO`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SkipStats {
    /// Places that walks over keys have passed over.
    pub passed_count: u64,
    /// Leaves and nodes that have been given up for new ones.
    pub given_up_count: u64,
}

impl Skips {
    pub fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// A walk leaves out what is at `hash`.
    pub fn note_passed(&self, tree: Tree, hash: u64, reason: &str) {
        let mut met = self.met.lock();
        if met.places.len() < PLACES_MAX && met.places.insert((tree.tag, hash)) {
            met.note(format!("SCAN, KEYS and RANDOMKEY leave out keys of database {}: {reason}", tree.db.0));
        }
    }

    pub fn note_given_up(&self, tree: Tree, reason: &str) {
        let mut met = self.met.lock();
        met.given_up_count += 1;
        met.note(format!("Keys of database {} are given up, as one of them is written: {reason}", tree.db.0));
    }

    pub fn stats(&self) -> SkipStats {
        let met = self.met.lock();
        SkipStats { passed_count: met.places.len() as u64, given_up_count: met.given_up_count }
    }

    /// What there is to tell of, once.
    pub fn take_notes(&self) -> Vec<String> {
        self.met.lock().notes.drain(..).collect()
    }
}

impl Met {
    fn note(&mut self, text: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push_back(text);
        }
    }
}
