//! A handle on a hash.

use std::ops::ControlFlow;
use std::rc::Rc;

use super::desk::Desk;
use crate::{DbId, FieldMode, OpError, Store};

/// A thread's access to the hash at a key of database 0: fields with values. It is there as long as it has a field.
///
/// Fields and values have up to 512 MB. Operations wait for pages that are missing. With
/// [`crate::Options::worker_count`] above 1 several threads may work on the same hash.
///
/// ```
/// # use stillframe_store::{Options, Store};
/// # let dir = std::env::temp_dir().join(format!("stillframe-doc-hash-{}", std::process::id()));
/// let store = Store::open(&dir, Options::default())?;
/// let user = store.hash("user:7");
/// user.set("name", "Ada")?;
/// user.set("language", "en")?;
/// assert_eq!(user.get("name")?.as_deref(), Some(&b"Ada"[..]));
/// assert_eq!(user.len()?, 2);
/// # drop((user, store));
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Hash {
    desk: Rc<Desk>,
    key: Vec<u8>,
}

const DB: DbId = DbId(0);

impl Store {
    /// A handle on the hash at a key, for this thread. Nothing is made before the first field is set.
    pub fn hash(&self, key: impl AsRef<[u8]>) -> Hash {
        Hash { desk: Desk::of(self), key: key.as_ref().to_vec() }
    }
}

impl Hash {
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Sets a field; whether it is new.
    ///
    /// # Errors
    /// [`OpError`]; [`OpError::WrongType`]: the key has a value of another type.
    pub fn set(&self, field: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, OpError> {
        Ok(self.set_all(&[(field.as_ref(), value.as_ref())])? == 1)
    }

    /// Sets several fields as one step to every cut and view; how many are new.
    ///
    /// # Errors
    /// As of [`Hash::set`].
    pub fn set_all(&self, pairs: &[(&[u8], &[u8])]) -> Result<u64, OpError> {
        self.desk.write(|worker| {
            let key = worker.key(&self.key);
            worker.hash_set(DB, &key, pairs, FieldMode::All)
        })
    }

    /// Sets a field unless it is there; whether it has.
    ///
    /// # Errors
    /// As of [`Hash::set`].
    pub fn set_new(&self, field: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, OpError> {
        let pair = [(field.as_ref(), value.as_ref())];
        self.desk.write(|worker| {
            let key = worker.key(&self.key);
            Ok(worker.hash_set(DB, &key, &pair, FieldMode::Absent)? == 1)
        })
    }

    /// The value of a field.
    ///
    /// # Errors
    /// As of [`Hash::set`].
    pub fn get(&self, field: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, OpError> {
        self.get_with(field, <[u8]>::to_vec)
    }

    /// Gives the value of a field to `f`, where it lies: nothing is copied.
    ///
    /// # Errors
    /// As of [`Hash::set`]; then what `f` has been given does not count.
    pub fn get_with<R>(
        &self,
        field: impl AsRef<[u8]>,
        mut f: impl FnMut(&[u8]) -> R,
    ) -> Result<Option<R>, OpError> {
        self.desk.read(|worker| {
            let (key, mut found) = (worker.key(&self.key), None);
            worker.hash_get(DB, &key, [field.as_ref()].into_iter(), |_, value| found = value.map(&mut f))?;
            Ok(found)
        })
    }

    /// Removes a field; whether it was there.
    ///
    /// # Errors
    /// As of [`Hash::set`].
    pub fn remove(&self, field: impl AsRef<[u8]>) -> Result<bool, OpError> {
        self.desk.write(|worker| {
            let key = worker.key(&self.key);
            Ok(worker.hash_remove(DB, &key, &[field.as_ref()])? == 1)
        })
    }

    /// Fields that there are.
    ///
    /// # Errors
    /// As of [`Hash::set`].
    pub fn len(&self) -> Result<u64, OpError> {
        self.desk.read(|worker| {
            let key = worker.key(&self.key);
            worker.hash_len(DB, &key)
        })
    }

    /// # Errors
    /// As of [`Hash::set`].
    pub fn is_empty(&self) -> Result<bool, OpError> {
        Ok(self.len()? == 0)
    }

    /// Gives all fields and values to `f`, in no order, until it breaks. Where pages are missing it may begin anew: `begin` is
    /// called then, and what was given before does not count.
    ///
    /// # Errors
    /// As of [`Hash::set`].
    pub fn for_each(
        &self,
        mut begin: impl FnMut(),
        mut f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), OpError> {
        self.desk.read(|worker| {
            begin();
            let key = worker.key(&self.key);
            worker.hash_for_each(DB, &key, |_| (), &mut f).map(drop)
        })
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hash({})", String::from_utf8_lossy(&self.key))
    }
}
