//! Which named trees a store has.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_pagepool::{PageId, Reason};

use super::names::{self, NameEntry, NamesPlace, LIBRARIES_NAME, NAME_MAX_BYTES, TREES_MAX};
use super::tree::NamedTree;
use crate::error::{OpError, TreeError};
use crate::pages::Pages;
use crate::stop::Stop;
use crate::tree::ordered::Ordered;
use crate::tree::Trees;
use crate::Options;

/// All named trees.
pub(crate) struct Named {
    pub trees: Trees<Ordered>,
    /// The same trees for what must not be refused any more, whatever `maxmemory` says.
    pub unbounded: Trees<Ordered>,
    list: Mutex<List>,
    /// Held for a bulk load: to a cut its pages are garbage, and there is room for one such tree.
    pub loading: Mutex<()>,
    /// Whether the last cut had function libraries, as the catalog says: the list may not be there to be asked.
    had_libraries: bool,
    /// See [`Named::libraries_version`].
    libraries_version: AtomicU64,
}

struct List {
    /// Or why the list cannot be read: then it stays where it is.
    trees: Result<BTreeMap<Vec<u8>, Arc<NamedTree>>, Reason>,
    /// Where the last cut has it, and what it wrote there.
    place: Option<NamesPlace>,
    written: Vec<u8>,
    /// Trees that have come and gone, and the changes of those that have gone.
    change_count: u64,
}

impl List {
    fn trees(&self) -> Result<&BTreeMap<Vec<u8>, Arc<NamedTree>>, TreeError> {
        self.trees.as_ref().map_err(|why| TreeError::Damaged(why.clone()))
    }

    /// Adds an empty tree.
    fn add(&mut self, name: &[u8], root: PageId, tag: u32) -> Arc<NamedTree> {
        let entry = NameEntry { name: name.to_vec(), root, tag, record_count: 0 };
        let tree = Arc::new(NamedTree::new(entry));
        if let Ok(trees) = &mut self.trees {
            trees.insert(name.to_vec(), tree.clone());
        }
        self.change_count += 1;
        tree
    }
}

impl Named {
    /// Trees whose list is at `place`; it waits for the list's pages. What cannot be read is an error to who asks for it.
    pub fn new(pages: &Arc<Pages>, place: Option<NamesPlace>, has_libraries: bool) -> Named {
        let read = place.map_or(Ok(Vec::new()), |place| {
            let entries = names::read(&pages.pool, place)?;
            let are_among_them = entries.first().is_some_and(|first| first.name == LIBRARIES_NAME);
            if are_among_them == has_libraries {
                Ok(entries)
            } else {
                Err(names::not_names(place.pid))
            }
        });
        let by_name = |entry: NameEntry| (entry.name.clone(), Arc::new(NamedTree::new(entry)));
        let trees = read.map(|entries| entries.into_iter().map(by_name).collect());
        let trees = trees.map_err(|stop| {
            let error = OpError::from(stop);
            Reason::of(&error).said_as(format!("the named trees cannot be had: {error}"))
        });
        let unbounded = Arc::new(Pages::new(pages.pool.clone(), &Options::default(), false));
        Named {
            trees: Trees::new(pages, Ordered { counts: false }),
            unbounded: Trees::new(&unbounded, Ordered { counts: false }),
            list: Mutex::new(List { trees, place, written: Vec::new(), change_count: 0 }),
            loading: Mutex::default(),
            had_libraries: has_libraries,
            libraries_version: AtomicU64::new(u64::from(has_libraries)),
        }
    }

    /// The tree of a name, made if there is none. For a member of the barrier; may meet pages that are missing.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn open(&self, name: &[u8], next_tag: impl FnOnce() -> u32) -> Result<Arc<NamedTree>, TreeError> {
        if !(1..=NAME_MAX_BYTES).contains(&name.len()) {
            return Err(TreeError::Name);
        }
        let mut list = self.list.lock();
        if let Some(tree) = list.trees()?.get(name) {
            return Ok(tree.clone());
        }
        let trees = list.trees()?;
        if trees.len() - usize::from(trees.contains_key(LIBRARIES_NAME)) >= TREES_MAX {
            return Err(TreeError::TooMany);
        }
        let tag = next_tag();
        let root = self.trees.create(tag).map_err(OpError::from)?;
        Ok(list.add(name, root, tag))
    }

    /// Takes a tree out of the list; its root. Runs in the barrier.
    ///
    /// # Errors
    /// [`TreeError::Damaged`].
    pub fn take(&self, name: &[u8]) -> Result<Option<PageId>, TreeError> {
        let mut list = self.list.lock();
        list.trees()?;
        let taken = list.trees.as_mut().ok().and_then(|trees| trees.remove(name));
        Ok(taken.map(|tree| {
            list.change_count += 1 + tree.change_count();
            tree.drop_it();
            tree.tree().root
        }))
    }

    /// The tree of function libraries; `None`: there are no libraries.
    ///
    /// # Errors
    /// [`TreeError::Damaged`].
    pub fn libraries(&self) -> Result<Option<Arc<NamedTree>>, TreeError> {
        Ok(self.list.lock().trees()?.get(LIBRARIES_NAME).cloned())
    }

    /// Makes the empty tree of this root that of the function libraries, of which there are none yet. While everybody else stands
    /// still.
    pub fn begin_libraries(&self, root: PageId, tag: u32) -> Arc<NamedTree> {
        self.list.lock().add(LIBRARIES_NAME, root, tag)
    }

    /// Whether the next cut has function libraries.
    pub fn has_libraries(&self) -> bool {
        let list = self.list.lock();
        list.trees.as_ref().map_or(self.had_libraries, |trees| trees.contains_key(LIBRARIES_NAME))
    }

    /// A number that rises with each change of the function libraries; 0 as long as there have been none.
    pub fn libraries_version(&self) -> u64 {
        self.libraries_version.load(Ordering::Acquire)
    }

    pub fn note_libraries_changed(&self) {
        self.libraries_version.fetch_add(1, Ordering::AcqRel);
    }

    /// All trees, by name, that of the function libraries first.
    ///
    /// # Errors
    /// [`TreeError::Damaged`].
    pub fn all(&self) -> Result<Vec<Arc<NamedTree>>, TreeError> {
        Ok(self.list.lock().trees()?.values().cloned().collect())
    }

    /// Changes of trees and of their list since the store was opened; it never falls.
    pub fn change_count(&self) -> u64 {
        let list = self.list.lock();
        let trees =
            list.trees.as_ref().map_or(0, |trees| trees.values().map(|tree| tree.change_count()).sum());
        list.change_count + trees
    }

    /// Whether there is no tree, for sure.
    pub fn is_empty(&self) -> bool {
        self.list.lock().trees.as_ref().is_ok_and(BTreeMap::is_empty)
    }

    /// Where the list was at the last cut.
    pub fn place(&self) -> Option<NamesPlace> {
        self.list.lock().place
    }

    /// Writes the list, elsewhere, if it has changed; where it is. Runs in the barrier, just before a cut.
    ///
    /// # Errors
    /// There are no pages for it, or a tree is torn, which no cut may show.
    pub fn write(&self) -> Result<Option<NamesPlace>, Stop> {
        let mut list = self.list.lock();
        let Ok(trees) = &list.trees else { return Ok(list.place) };
        if let Some(why) = trees.values().find_map(|tree| tree.torn()) {
            return Err(Stop::Damaged(why.clone()));
        }
        let entries: Vec<NameEntry> = trees.values().map(|tree| tree.entry()).collect();
        let bytes = names::encode(&entries);
        if list.place.is_some() != entries.is_empty() && list.written == bytes {
            return Ok(list.place);
        }
        let place = match entries.is_empty() {
            true => None,
            false => Some(names::write(&self.trees.pool, &bytes)?),
        };
        if let Some(old) = std::mem::replace(&mut list.place, place) {
            self.free_list(old);
        }
        list.written = bytes;
        Ok(place)
    }

    fn free_list(&self, place: NamesPlace) {
        match self.trees.pool.exclusive(place.pid) {
            Ok(guard) => self.trees.pool.free(guard, place.page_count),
            // Nobody needs to know what was in it.
            Err(_) => drop(self.trees.pool.free_unread(place.pid, place.page_count)),
        }
    }
}
