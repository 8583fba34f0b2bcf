//! The simplest store that could be right: what the others are held against.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::seam::{
    Access, Body, Done, KeyValue, Order, Session, Settings, Show, Transaction, TreeId, TreeRow, Verdict,
};
use crate::error::Result;

type Trees = Vec<BTreeMap<Vec<u8>, Vec<u8>>>;

pub struct Model(Mutex<Trees>);

impl Model {
    pub fn new(tree_count: usize) -> Model {
        Model(Mutex::new(vec![BTreeMap::new(); tree_count]))
    }

    pub fn trees(&self) -> MutexGuard<'_, Trees> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyValue for Model {
    fn settings(&self) -> Settings {
        let none = || "none".to_owned();
        Settings { version: "model".to_owned(), memory: none(), durability: none() }
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }

    fn bulk_load(&self, rows: &mut dyn Iterator<Item = TreeRow>) -> Result<()> {
        rows.for_each(|(tree, key, value)| drop(self.trees()[tree.0].insert(key, value)));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn has_many_writers(&self) -> bool {
        false
    }
}

impl Session for &Model {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.trees()[tree.0].get(key).map(|value| found(value)).is_some())
    }

    fn transaction(&mut self, access: Access, body: &mut Body<'_>) -> Result<Done> {
        let mut trees = self.trees();
        let mut changing = Changing { trees: &mut trees, access, before: Vec::new() };
        let result = body(&mut changing);
        if !matches!(result, Ok(Verdict::Commit)) {
            changing.undo();
        }
        Ok(Done::at_once(result?))
    }
}

struct Changing<'t> {
    trees: &'t mut Trees,
    access: Access,
    /// What was there, latest last.
    before: Vec<(TreeId, Vec<u8>, Option<Vec<u8>>)>,
}

impl Changing<'_> {
    fn undo(&mut self) {
        for (tree, key, value) in self.before.drain(..).rev() {
            match value {
                Some(value) => self.trees[tree.0].insert(key, value),
                None => self.trees[tree.0].remove(&key),
            };
        }
    }
}

impl Transaction for Changing<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.trees[tree.0].get(key).map(|value| found(value)).is_some())
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.access.check_write()?;
        let before = self.trees[tree.0].insert(key.to_vec(), value.to_vec());
        self.before.push((tree, key.to_vec(), before));
        Ok(())
    }

    fn remove(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.access.check_write()?;
        let before = self.trees[tree.0].remove(key);
        self.before.push((tree, key.to_vec(), before));
        Ok(())
    }

    fn scan(&mut self, tree: TreeId, keys: Range<&[u8]>, order: Order, row: &mut Show<'_>) -> Result<()> {
        let mut rows =
            self.trees[tree.0].range::<[u8], _>((Bound::Included(keys.start), Bound::Excluded(keys.end)));
        let mut next = || match order {
            Order::Ascending => rows.next(),
            Order::Descending => rows.next_back(),
        };
        while let Some((key, value)) = next() {
            if row(key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}
