//! A handle on a hash.

use std::convert::Infallible;
use std::ops::ControlFlow;

use super::place::HandleKey;
use crate::{Deadline, FieldMode, OpError, Store};

/// A thread's access to the hash at a key of database 0: fields with values. It is there as long as it has a field.
///
/// Fields and values have up to 512 MB. Operations wait for pages that are missing. Several threads may work on the same hash.
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
pub struct Hash(HandleKey);

impl Store {
    /// A handle on the hash at a key, for this thread. Nothing is made before the first field is set.
    pub fn hash(&self, key: impl AsRef<[u8]>) -> Hash {
        Hash(HandleKey::new(self, key.as_ref()))
    }
}

impl Hash {
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Sets a field; whether it is new.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; [`OpError::WrongType`]: the key has a value of another type.
    pub fn set(&self, field: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, OpError> {
        Ok(self.set_all(&[(field.as_ref(), value.as_ref())])? == 1)
    }

    /// Sets several fields as one step to every cut and view; how many are new.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Hash::set`].
    pub fn set_all(&self, pairs: &[(&[u8], &[u8])]) -> Result<u64, OpError> {
        self.0.write(|worker, db, key| worker.hash_at(db, key).set(pairs, FieldMode::All, Deadline::Clear))
    }

    /// Sets a field unless it is there; whether it has.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Hash::set`].
    pub fn set_new(&self, field: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, OpError> {
        let pair = [(field.as_ref(), value.as_ref())];
        self.0.write(|worker, db, key| {
            Ok(worker.hash_at(db, key).set(&pair, FieldMode::Absent, Deadline::Clear)? == 1)
        })
    }

    /// Sets a field to what `renew` makes of its value, as one step to all others and to every cut; `None`: it is not there.
    /// A deadline of the field stays. `renew` is called under a latch: every use of the store in it is [`OpError::Busy`]. It may be
    /// called again.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Hash::set`].
    ///
    /// ```
    /// # use stillframe_store::{Options, Store};
    /// # let dir = std::env::temp_dir().join(format!("stillframe-doc-renew-{}", std::process::id()));
    /// let store = Store::open(&dir, Options::default())?;
    /// let visits = store.hash("visits");
    /// let next = |old: Option<&[u8]>| old.map_or(1, |old| u64::from(old[0]) + 1).to_le_bytes();
    /// visits.renew("home", next)?;
    /// visits.renew("home", next)?;
    /// assert_eq!(visits.get("home")?, Some(2_u64.to_le_bytes().to_vec()));
    /// # drop((visits, store));
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn renew<T: AsRef<[u8]>>(
        &self,
        field: impl AsRef<[u8]>,
        mut renew: impl FnMut(Option<&[u8]>) -> T,
    ) -> Result<(), OpError> {
        self.0.write(|worker, db, key| {
            let Ok(()) =
                worker.hash_at(db, key).renew(field.as_ref(), |old| Ok::<_, Infallible>(renew(old)))?;
            Ok(())
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
        self.0.read(|worker, db, key| {
            let mut found = None;
            worker
                .hash_at(db, key)
                .get([field.as_ref()].into_iter(), |_, value| found = value.map(&mut f))?;
            Ok(found)
        })
    }

    /// Removes a field; whether it was there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Hash::set`].
    pub fn remove(&self, field: impl AsRef<[u8]>) -> Result<bool, OpError> {
        self.0.write(|worker, db, key| Ok(worker.hash_at(db, key).remove(&[field.as_ref()])? == 1))
    }

    /// Fields that there are.
    ///
    /// # Errors
    /// As of [`Hash::set`].
    pub fn len(&self) -> Result<u64, OpError> {
        self.0.read(|worker, db, key| worker.hash_at(db, key).len())
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
        self.0.read(|worker, db, key| {
            begin();
            worker.hash_at(db, key).for_each(|_| (), |found| f(found.field, found.value)).map(drop)
        })
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hash({})", String::from_utf8_lossy(self.key()))
    }
}
