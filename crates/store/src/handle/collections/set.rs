//! A handle on a set.

use std::cell::RefCell;
use std::ops::ControlFlow;

use super::place::HandleKey;
use crate::{Draw, OpError, Store};

/// A thread's access to the set at a key of database 0: members, in no order. It is there as long as it has a member.
///
/// Looking for a member takes the same time whatever the size, and so does drawing one. For the rest see [`crate::Hash`].
///
/// ```
/// # use stillframe_store::{Options, Store};
/// # let dir = std::env::temp_dir().join(format!("stillframe-doc-set-{}", std::process::id()));
/// let store = Store::open(&dir, Options::default())?;
/// let seen = store.set("seen");
/// assert!(seen.add("ada")?);
/// assert!(!seen.add("ada")?);
/// assert!(seen.contains("ada")? && !seen.contains("bob")?);
/// assert_eq!(seen.pop()?.as_deref(), Some(&b"ada"[..]));
/// assert!(seen.is_empty()?);
/// # drop((seen, store));
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Set(HandleKey);

impl Store {
    /// A handle on the set at a key, for this thread. Nothing is made before the first member is added.
    pub fn set(&self, key: impl AsRef<[u8]>) -> Set {
        Set(HandleKey::new(self, key.as_ref()))
    }
}

impl Set {
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Adds members as one step to every cut and view; how many are new.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; [`OpError::WrongType`]: the key has a value of another type.
    pub fn add_all(&self, members: &[&[u8]]) -> Result<u64, OpError> {
        self.0.write(|worker, db, key| worker.set_at(db, key).add(members))
    }

    /// Adds a member; whether it is new.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Set::add_all`].
    pub fn add(&self, member: impl AsRef<[u8]>) -> Result<bool, OpError> {
        Ok(self.add_all(&[member.as_ref()])? == 1)
    }

    /// Removes a member; whether it was there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Set::add_all`].
    pub fn remove(&self, member: impl AsRef<[u8]>) -> Result<bool, OpError> {
        self.0.write(|worker, db, key| Ok(worker.set_at(db, key).remove(&[member.as_ref()])? == 1))
    }

    /// # Errors
    /// As of [`Set::add_all`].
    pub fn contains(&self, member: impl AsRef<[u8]>) -> Result<bool, OpError> {
        self.0.read(|worker, db, key| {
            let (members, mut found) = ([member.as_ref()].into_iter(), false);
            worker.set_at(db, key).contains(members, |_, is_there| found = is_there)?;
            Ok(found)
        })
    }

    /// Members that there are.
    ///
    /// # Errors
    /// As of [`Set::add_all`].
    pub fn len(&self) -> Result<u64, OpError> {
        self.0.read(|worker, db, key| worker.set_at(db, key).len())
    }

    /// # Errors
    /// As of [`Set::add_all`].
    pub fn is_empty(&self) -> Result<bool, OpError> {
        Ok(self.len()? == 0)
    }

    /// Removes members that are drawn evenly, and gives them: so many, as far as there are.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Set::add_all`].
    pub fn pop_many(&self, count: u64) -> Result<Vec<Vec<u8>>, OpError> {
        self.0.write(|worker, db, key| {
            let mut popped = Vec::new();
            worker.set_at(db, key).pop(count, |_| (), |member| popped.push(member.to_vec()))?;
            Ok(popped)
        })
    }

    /// Removes a member that is drawn evenly.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Set::add_all`].
    pub fn pop(&self) -> Result<Option<Vec<u8>>, OpError> {
        Ok(self.pop_many(1)?.pop())
    }

    /// Members that are drawn evenly, and stay.
    ///
    /// # Errors
    /// As of [`Set::add_all`].
    pub fn draw(&self, draw: Draw) -> Result<Vec<Vec<u8>>, OpError> {
        self.0.read(|worker, db, key| {
            let mut drawn = Vec::new();
            let take = |member: &[u8]| {
                drawn.push(member.to_vec());
                ControlFlow::Continue(())
            };
            worker.set_at(db, key).random(draw, |_| (), take)?;
            Ok(drawn)
        })
    }

    /// A member that is drawn evenly, and stays.
    ///
    /// # Errors
    /// As of [`Set::add_all`].
    pub fn random(&self) -> Result<Option<Vec<u8>>, OpError> {
        Ok(self.draw(Draw::Repeated(1))?.pop())
    }

    /// Gives all members to `f`, in no order, until it breaks. Where pages are missing it may begin anew: `begin` is called then,
    /// and what was given before does not count.
    ///
    /// # Errors
    /// As of [`Set::add_all`].
    pub fn for_each(
        &self,
        mut begin: impl FnMut(),
        mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), OpError> {
        self.0.read(|worker, db, key| {
            begin();
            worker.set_at(db, key).for_each(|_| (), &mut f).map(drop)
        })
    }

    /// All members, in no order.
    ///
    /// # Errors
    /// As of [`Set::add_all`].
    pub fn members(&self) -> Result<Vec<Vec<u8>>, OpError> {
        let members = RefCell::new(Vec::new());
        self.for_each(
            || members.borrow_mut().clear(),
            |member| {
                members.borrow_mut().push(member.to_vec());
                ControlFlow::Continue(())
            },
        )?;
        Ok(members.into_inner())
    }
}

impl std::fmt::Debug for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Set({})", String::from_utf8_lossy(self.key()))
    }
}
