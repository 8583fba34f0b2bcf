//! Function libraries: their sources by their names, in a tree that no caller's name leads to. The store runs none of them: a
//! source is bytes, whose first line says the library's name.
//!
//! There is a tree as long as there are libraries, so a page file without any is one that programs open which know none. It is changed while
//! everybody else stands still, and told in effects: other than the trees of callers, libraries are in the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stillframe_pagepool::{is_looking, PageId};

use super::commit::apply_alone;
use super::overlay::Overlay;
use super::values::{is_long, read_value};
use crate::effect::Effect;
use crate::error::{Fault, OpError, TreeError};
use crate::keyspace::{resolve, whole, Keyspace, Op};
use crate::library::{check_library, LibraryError, LIBRARY_NAME_MAX_BYTES};
use crate::named::{NamedTree, LIBRARIES_NAME};
use crate::page::PAGE_SIZE;
use crate::stop::{retry, Stop};
use crate::tree::ordered::{Next, Stored};
use crate::worker::Worker;
use crate::Store;

/// A store's function libraries, for operations of one worker.
///
/// An operation sees the libraries as of one instant. One that changes them runs while all other workers and handles stand still: at
/// once if the worker is [`Alone`](crate::Alone), and else it waits for that itself, unless a step is open. It is part of the
/// worker's open step, or one of its own.
///
/// # Errors
/// All operations: [`OpError::Fault`] of a worker that does not wait; [`OpError::LargerThanMemory`]; [`OpError::Damaged`]. Those that
/// change something: [`OpError::Library`], [`OpError::OutOfMemory`]; [`OpError::Busy`] within an open step of a worker that is not alone;
/// [`OpError::Looking`]. After an error nothing has been changed.
pub struct Libraries<'w>(&'w mut Worker);

impl Worker {
    /// The function libraries.
    pub fn libraries(&mut self) -> Libraries<'_> {
        Libraries(self)
    }
}

/// [`Libraries::version`] for a thread without a worker.
#[inline]
pub fn libraries_version(store: &Store) -> u64 {
    store.keyspace().named.libraries_version()
}

impl Libraries<'_> {
    /// A number that rises with each change, whatever makes it, and that is not 0 if there are libraries: as long as it stays the
    /// same, so do they. One load; any thread may ask at any time ([`libraries_version`](crate::libraries_version)).
    #[inline]
    pub fn version(&self) -> u64 {
        self.0.keyspace().named.libraries_version()
    }

    /// Names and sources, by ascending names. Sources of 256 KB and more are read past memory if they
    /// are not there, and the thread waits for the device; pages of shorter ones are needed together.
    ///
    /// # Errors
    /// As of [`Libraries`]; [`OpError::LargerThanMemory`] if those pages cannot be in memory together: [`Libraries::names`] and
    /// [`Libraries::get`] take one after the other.
    pub fn list(&mut self) -> Result<Vec<(String, Vec<u8>)>, OpError> {
        self.0.run(|op| list(op.keyspace))
    }

    /// All names, ascending.
    ///
    /// # Errors
    /// As of [`Libraries`].
    pub fn names(&mut self) -> Result<Vec<String>, OpError> {
        self.0.run(|op| match libraries(op.keyspace)? {
            Some(tree) => names(op.keyspace, &tree)?.into_iter().map(text).collect(),
            None => Ok(Vec::new()),
        })
    }

    /// The source of a library.
    ///
    /// # Errors
    /// As of [`Libraries`].
    pub fn get(&mut self, name: &str) -> Result<Option<Vec<u8>>, OpError> {
        self.0.run(|op| get(op.keyspace, name.as_bytes()))
    }

    /// Keeps a library, in place of one of the same name; whether there was one.
    /// Durable from the next checkpoint on, or with the log ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Libraries`].
    pub fn set(&mut self, name: &str, source: &[u8]) -> Result<bool, OpError> {
        self.set_all(&[(name, source)]).map(|replaced_count| replaced_count > 0)
    }

    /// Keeps several libraries, all or none, in place of those of the same names; how many there were of these. The others stay.
    /// Durable from the next checkpoint on, or with the log ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Libraries`].
    pub fn set_all(&mut self, libraries: &[(&str, &[u8])]) -> Result<u64, OpError> {
        let mut overlay = overlay_of(libraries)?;
        self.alone(|op| change(op, &mut overlay, Others::Stay))
    }

    /// Keeps these libraries, all or none, and no others; how many there were before.
    /// Durable from the next checkpoint on, or with the log ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Libraries`].
    pub fn replace_all(&mut self, libraries: &[(&str, &[u8])]) -> Result<u64, OpError> {
        let mut overlay = overlay_of(libraries)?;
        self.alone(|op| change(op, &mut overlay, Others::Go))
    }

    /// Removes a library; whether there was one.
    /// Durable from the next checkpoint on, or with the log ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Libraries`].
    pub fn remove(&mut self, name: &str) -> Result<bool, OpError> {
        self.alone(|op| {
            let mut overlay = Overlay::default();
            overlay.writes.insert(name.as_bytes().to_vec(), None);
            change(op, &mut overlay, Others::Stay).map(|removed_count| removed_count > 0)
        })
    }

    /// Removes all libraries; whether there were some. Needs no page, and no memory.
    /// Durable from the next checkpoint on, or with the log ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Libraries`].
    pub fn clear(&mut self) -> Result<bool, OpError> {
        self.alone(|op| {
            let is_there = libraries(op.keyspace)?.is_some();
            if is_there {
                check_not_looking()?;
                drop_tree(op.keyspace)?;
                op.keyspace.named.note_libraries_changed();
                op.announce(Effect::LibrariesRemoved);
            }
            Ok(is_there)
        })
    }

    /// Runs an operation while everybody else stands still.
    fn alone<R>(&mut self, operation: impl FnMut(&mut Op<'_>) -> Result<R, OpError>) -> Result<R, OpError> {
        let is_alone = self.0.keyspace().pool.barrier().is_held_here();
        if !is_alone && self.0.op().local.holder.acting.is_open() {
            // Locks of keys may be held, for which others wait within their commands.
            return Err(OpError::Busy);
        }
        let _alone = (!is_alone).then(|| self.0.stop_others()).transpose()?;
        self.0.run(operation)
    }
}

fn overlay_of(libraries: &[(&str, &[u8])]) -> Result<Overlay, LibraryError> {
    let mut overlay = Overlay::default();
    for (name, source) in libraries {
        check_library(name, source)?;
        if overlay.writes.insert(name.as_bytes().to_vec(), Some(source.to_vec())).is_some() {
            return Err(LibraryError::Twice { name: (*name).to_owned() });
        }
    }
    Ok(overlay)
}

/// What becomes of libraries that are not named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Stay,
    Go,
}

fn check_not_looking() -> Result<(), OpError> {
    match is_looking() {
        true => Err(OpError::Looking),
        false => Ok(()),
    }
}

fn of_tree(error: TreeError) -> OpError {
    match error {
        TreeError::Damaged(reason) => OpError::Damaged(reason),
        other => OpError::Damaged(other.to_string().into()),
    }
}

/// Their tree, if there are some.
fn libraries(keyspace: &Keyspace) -> Result<Option<Arc<NamedTree>>, OpError> {
    keyspace.named.libraries().map_err(of_tree)
}

fn drop_tree(keyspace: &Keyspace) -> Result<(), OpError> {
    whole::drop_named(keyspace, LIBRARIES_NAME).map(drop).map_err(of_tree)
}

fn text(name: Vec<u8>) -> Result<String, OpError> {
    let wrong = |_| OpError::Damaged("the name of a function library is malformed".into());
    String::from_utf8(name).map_err(wrong)
}

/// Gives all records to `f`. Some may come twice.
fn for_each(
    keyspace: &Keyspace,
    tree: &NamedTree,
    mut f: impl FnMut(&[u8], Stored<'_>) -> Result<(), Stop>,
) -> Result<(), OpError> {
    if let Some(why) = tree.torn() {
        return Err(OpError::Damaged(why.clone()));
    }
    let (tree, mut from) = (tree.tree(), Vec::new());
    loop {
        let take = |key: &[u8], value: Stored<'_>| f(key, value).map(|()| true);
        let mut take = take;
        match retry(|| keyspace.named.trees.walk_up(tree, &from, &mut take))? {
            Next::End => return Ok(()),
            Next::From(next) => from = next,
        }
    }
}

fn names(keyspace: &Keyspace, tree: &NamedTree) -> Result<BTreeSet<Vec<u8>>, OpError> {
    let mut names = BTreeSet::new();
    for_each(keyspace, tree, |name, _| {
        names.insert(name.to_vec());
        Ok(())
    })?;
    Ok(names)
}

fn list(keyspace: &Keyspace) -> Result<Vec<(String, Vec<u8>)>, OpError> {
    let Some(tree) = libraries(keyspace)? else { return Ok(Vec::new()) };
    let (mut sources, mut missing, mut needed_bytes) = (BTreeMap::new(), Vec::<PageId>::new(), 0);
    let walked = for_each(keyspace, &tree, |name, value| {
        let mut source = Vec::new();
        // Long ones are read past memory.
        needed_bytes +=
            value.blob().filter(|blob| !is_long(blob)).map_or(0, |blob| u64::from(blob.len_bytes));
        match read_value(keyspace, value, &mut source, &mut missing) {
            // What else is missing is asked for with it.
            Ok(()) | Err(Stop::Missing(_)) => drop(sources.insert(name.to_vec(), source)),
            Err(Stop::Fault(first)) => {
                missing.push(first);
                value.blob().iter().for_each(|blob| resolve::resolve_blob(keyspace, blob, &mut missing));
            }
            Err(stop) => return Err(stop),
        }
        Ok(())
    });
    match walked {
        Ok(()) => {}
        Err(OpError::Fault(fault)) => fault.add_to(&mut missing),
        Err(error) => return Err(error),
    }
    if !missing.is_empty() {
        // Also of those that are there: the next attempt needs all of them again.
        retry(|| keyspace.pages.check_together(needed_bytes))?;
        return Err(fault_of(keyspace, missing));
    }
    sources.into_iter().map(|(name, source)| Ok((text(name)?, source))).collect()
}

/// Of pages that are needed together.
fn fault_of(keyspace: &Keyspace, mut missing: Vec<PageId>) -> OpError {
    missing.sort_unstable();
    missing.dedup();
    let needed_bytes = (missing.len() * PAGE_SIZE) as u64;
    match retry(|| keyspace.pages.check_together(needed_bytes)) {
        Ok(()) => Fault::of(missing).into(),
        Err(error) => error,
    }
}

fn get(keyspace: &Keyspace, name: &[u8]) -> Result<Option<Vec<u8>>, OpError> {
    let Some(tree) = libraries(keyspace)?.filter(|_| name.len() <= LIBRARY_NAME_MAX_BYTES) else {
        return Ok(None);
    };
    if let Some(why) = tree.torn() {
        return Err(OpError::Damaged(why.clone()));
    }
    let mut missing = Vec::new();
    let found = retry(|| {
        keyspace.named.trees.look(tree.tree(), name, |found| {
            let Some(value) = found else { return Ok(None) };
            let mut source = Vec::new();
            read_value(keyspace, value, &mut source, &mut missing)?;
            Ok(Some(source))
        })
    });
    match found {
        Err(OpError::Fault(_)) if !missing.is_empty() => Err(fault_of(keyspace, missing)),
        found => found,
    }
}

/// Which of the names that are to be written are there.
fn known(keyspace: &Keyspace, tree: &NamedTree, overlay: &Overlay) -> Result<BTreeSet<Vec<u8>>, OpError> {
    let mut known = BTreeSet::new();
    for name in overlay.writes.keys().filter(|name| name.len() <= LIBRARY_NAME_MAX_BYTES) {
        if retry(|| keyspace.named.trees.look(tree.tree(), name, |found| Ok(found.is_some())))? {
            known.insert(name.clone());
        }
    }
    Ok(known)
}

/// Puts and removes what is written; how many libraries went, or have been replaced. Everybody else stands still.
fn change(op: &mut Op<'_>, overlay: &mut Overlay, others: Others) -> Result<u64, OpError> {
    let (keyspace, found) = (op.keyspace, libraries(op.keyspace)?);
    let mut gone = BTreeSet::new();
    if let Some(tree) = &found {
        gone = match others {
            Others::Go => names(keyspace, tree)?,
            Others::Stay => known(keyspace, tree, overlay)?,
        };
    }
    overlay.writes.retain(|name, source| source.is_some() || gone.contains(name));
    for name in &gone {
        overlay.writes.entry(name.clone()).or_insert(None);
    }
    if overlay.writes.is_empty() {
        return Ok(0);
    }
    apply(op, found.as_deref(), overlay)?;
    keyspace.named.note_libraries_changed();
    tell(op, overlay, &gone, others);
    Ok(gone.len() as u64)
}

/// Applies writes, to a new tree if there is none, and lets the tree go if it has become empty.
///
/// # Errors
/// [`OpError`]; nothing has been changed.
fn apply(op: &mut Op<'_>, found: Option<&NamedTree>, overlay: &Overlay) -> Result<(), OpError> {
    let keyspace = op.keyspace;
    let Some(tree) = found else {
        check_not_looking()?;
        let tag = keyspace.take_tag();
        let root = retry(|| keyspace.named.trees.create(tag))?;
        let tree = keyspace.named.begin_libraries(root, tag);
        return put(op, &tree, overlay).inspect_err(|_| drop(drop_tree(keyspace)));
    };
    put(op, tree, overlay)?;
    let mut is_empty = true;
    let walked = for_each(keyspace, tree, |_, _| {
        is_empty = false;
        Ok(())
    });
    // An empty tree that stays for a page that cannot be read costs no library.
    if walked.is_ok() && is_empty {
        let _ = drop_tree(keyspace);
    }
    Ok(())
}

fn put(op: &mut Op<'_>, tree: &NamedTree, overlay: &Overlay) -> Result<(), OpError> {
    let record_delta = apply_alone(op.keyspace, tree, &mut op.local.scratch, overlay)?;
    let visitor = tree.join();
    visitor.count(record_delta);
    tree.retire(&visitor);
    Ok(())
}

/// What goes is told first: functions of one library may have been another's before.
fn tell(op: &Op<'_>, overlay: &Overlay, gone: &BTreeSet<Vec<u8>>, others: Others) {
    let is_single = overlay.writes.len() == 1 && others == Others::Stay;
    let name_of = |name: &'_ [u8]| String::from_utf8_lossy(name).into_owned();
    if others == Others::Go && !gone.is_empty() {
        op.announce(Effect::LibrariesRemoved);
    }
    for name in gone.iter().filter(|_| others == Others::Stay) {
        // One that takes another's place alone is told at once.
        if !(is_single && overlay.writes.get(name).is_some_and(Option::is_some)) {
            op.announce(Effect::LibraryRemoved { name: &name_of(name) });
        }
    }
    for (name, source) in &overlay.writes {
        if let Some(source) = source {
            op.announce(Effect::LibrarySet { name: &name_of(name), source });
        }
    }
}
