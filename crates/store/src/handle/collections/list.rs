//! A handle on a list.

use std::ops::ControlFlow;

use super::place::HandleKey;
use crate::{End, Insertion, OpError, Setting, Store};

/// A thread's access to the list at a key of database 0. It is there as long as it has an item.
///
/// Both ends, any index and any insertion take O(log n). For the rest see [`crate::Hash`].
///
/// ```
/// # use stillframe_store::{Options, Store};
/// # let dir = std::env::temp_dir().join(format!("stillframe-doc-list-{}", std::process::id()));
/// let store = Store::open(&dir, Options::default())?;
/// let jobs = store.list("jobs");
/// jobs.push_back("first")?;
/// jobs.push_back("second")?;
/// assert_eq!(jobs.get(-1)?.as_deref(), Some(&b"second"[..]));
/// assert_eq!(jobs.pop_front()?.as_deref(), Some(&b"first"[..]));
/// # drop((jobs, store));
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct List(HandleKey);

impl Store {
    /// A handle on the list at a key, for this thread. Nothing is made before the first item is pushed.
    pub fn list(&self, key: impl AsRef<[u8]>) -> List {
        List(HandleKey::new(self, key.as_ref()))
    }
}

impl List {
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Puts items to an end, one after the other; the list's length then.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; [`OpError::WrongType`]: the key has a value of another type.
    pub fn push_all(&self, end: End, items: &[&[u8]]) -> Result<u64, OpError> {
        self.0.write(|worker, db, key| worker.list_at(db, key).push(end, items, false))
    }

    /// Puts an item to the front; the list's length then.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`List::push_all`].
    pub fn push_front(&self, item: impl AsRef<[u8]>) -> Result<u64, OpError> {
        self.push_all(End::Left, &[item.as_ref()])
    }

    /// Puts an item to the back; the list's length then.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`List::push_all`].
    pub fn push_back(&self, item: impl AsRef<[u8]>) -> Result<u64, OpError> {
        self.push_all(End::Right, &[item.as_ref()])
    }

    fn pop(&self, end: End) -> Result<Option<Vec<u8>>, OpError> {
        self.0.write(|worker, db, key| {
            let mut popped = None;
            worker.list_at(db, key).pop(end, 1, |_| (), |item| popped = Some(item.to_vec()))?;
            Ok(popped)
        })
    }

    /// Takes the first item, if there is one.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`List::push_all`].
    pub fn pop_front(&self) -> Result<Option<Vec<u8>>, OpError> {
        self.pop(End::Left)
    }

    /// Takes the last item, if there is one.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`List::push_all`].
    pub fn pop_back(&self) -> Result<Option<Vec<u8>>, OpError> {
        self.pop(End::Right)
    }

    /// # Errors
    /// As of [`List::push_all`].
    pub fn len(&self) -> Result<u64, OpError> {
        self.0.read(|worker, db, key| worker.list_at(db, key).len())
    }

    /// # Errors
    /// As of [`List::push_all`].
    pub fn is_empty(&self) -> Result<bool, OpError> {
        Ok(self.len()? == 0)
    }

    /// The item with an index, which counts from the end if it is below 0.
    ///
    /// # Errors
    /// As of [`List::push_all`].
    pub fn get(&self, index: i64) -> Result<Option<Vec<u8>>, OpError> {
        self.0.read(|worker, db, key| {
            let mut found = None;
            worker.list_at(db, key).index(index, |item| found = Some(item.to_vec()))?;
            Ok(found)
        })
    }

    /// Puts another item in the place of one.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`List::push_all`].
    pub fn set(&self, index: i64, item: impl AsRef<[u8]>) -> Result<Setting, OpError> {
        self.0.write(|worker, db, key| worker.list_at(db, key).set(index, item.as_ref()))
    }

    /// Inserts an item before, or behind, the first that is like `pivot`.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`List::push_all`].
    pub fn insert(
        &self,
        is_before: bool,
        pivot: impl AsRef<[u8]>,
        item: impl AsRef<[u8]>,
    ) -> Result<Insertion, OpError> {
        self.0
            .write(|worker, db, key| worker.list_at(db, key).insert(is_before, pivot.as_ref(), item.as_ref()))
    }

    /// Leaves the list the items from one index to another alone. Indices below 0 count from the end.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`List::push_all`].
    pub fn trim(&self, first: i64, last: i64) -> Result<(), OpError> {
        self.0.write(|worker, db, key| worker.list_at(db, key).trim(first, last).map(drop))
    }

    /// Gives the items from one index to another to `f` until it breaks. Where pages are missing it may begin anew: `begin` is
    /// called then, and what was given before does not count.
    ///
    /// # Errors
    /// As of [`List::push_all`].
    pub fn for_each(
        &self,
        first: i64,
        last: i64,
        mut begin: impl FnMut(),
        mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), OpError> {
        self.0.read(|worker, db, key| {
            begin();
            worker.list_at(db, key).range(first, last, |_| (), &mut f).map(drop)
        })
    }
}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "List({})", String::from_utf8_lossy(self.key()))
    }
}
