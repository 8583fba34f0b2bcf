//! A handle on a sorted set.

use std::ops::ControlFlow;

use super::place::HandleKey;
use crate::{OpError, RangeLimit, Rank, ScoreChanges, ScoreRule, ScoredRange, Store};

/// A thread's access to the sorted set at a key of database 0: members with scores, in the order of score and name. It is
/// there as long as it has a member.
///
/// Ranks, and ranges by rank, score and name, take O(log n). For the rest see [`crate::Hash`].
///
/// ```
/// # use stillframe_store::{Options, Store};
/// # let dir = std::env::temp_dir().join(format!("stillframe-doc-zset-{}", std::process::id()));
/// let store = Store::open(&dir, Options::default())?;
/// let board = store.sorted_set("board");
/// board.insert("ada", 30.0)?;
/// board.insert("bob", 20.0)?;
/// board.add("bob", 15.0)?;
/// assert_eq!(board.score("bob")?, Some(35.0));
/// assert_eq!(board.rank("ada")?.map(|place| place.rank), Some(0));
/// # drop((board, store));
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SortedSet(HandleKey);

impl Store {
    /// A handle on the sorted set at a key, for this thread. Nothing is made before the first member is inserted.
    pub fn sorted_set(&self, key: impl AsRef<[u8]>) -> SortedSet {
        SortedSet(HandleKey::new(self, key.as_ref()))
    }
}

impl SortedSet {
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Gives members scores, as the rule says, as one step to every cut and view.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; [`OpError::WrongType`]: the key has a value of another type.
    pub fn put_all(&self, scored: &[(f64, &[u8])], rule: &ScoreRule) -> Result<ScoreChanges, OpError> {
        self.0.write(|worker, db, key| worker.sorted_set_at(db, key).put(scored, rule))
    }

    /// Gives a member a score, which is a number; whether it is new.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`SortedSet::put_all`].
    pub fn insert(&self, member: impl AsRef<[u8]>, score: f64) -> Result<bool, OpError> {
        Ok(self.put_all(&[(score, member.as_ref())], &ScoreRule::default())?.added == 1)
    }

    /// Adds to the score of a member, which is 0 if it is not there; the score then, unless it would be no number.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`SortedSet::put_all`].
    pub fn add(&self, member: impl AsRef<[u8]>, more: f64) -> Result<Option<f64>, OpError> {
        let rule = ScoreRule { adds: true, ..ScoreRule::default() };
        Ok(self.put_all(&[(more, member.as_ref())], &rule)?.score)
    }

    /// Removes a member; whether it was there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`SortedSet::put_all`].
    pub fn remove(&self, member: impl AsRef<[u8]>) -> Result<bool, OpError> {
        self.0.write(|worker, db, key| Ok(worker.sorted_set_at(db, key).remove(&[member.as_ref()])? == 1))
    }

    /// # Errors
    /// As of [`SortedSet::put_all`].
    pub fn score(&self, member: impl AsRef<[u8]>) -> Result<Option<f64>, OpError> {
        self.0.read(|worker, db, key| {
            let (members, mut found) = ([member.as_ref()].into_iter(), None);
            worker.sorted_set_at(db, key).scores(members, |_, score| found = score)?;
            Ok(found)
        })
    }

    /// How many members are before this one, and its score.
    ///
    /// # Errors
    /// As of [`SortedSet::put_all`].
    pub fn rank(&self, member: impl AsRef<[u8]>) -> Result<Option<Rank>, OpError> {
        self.0.read(|worker, db, key| Ok(worker.sorted_set_at(db, key).rank(member.as_ref(), false)?.1))
    }

    /// # Errors
    /// As of [`SortedSet::put_all`].
    pub fn len(&self) -> Result<u64, OpError> {
        self.0.read(|worker, db, key| worker.sorted_set_at(db, key).len())
    }

    /// # Errors
    /// As of [`SortedSet::put_all`].
    pub fn is_empty(&self) -> Result<bool, OpError> {
        Ok(self.len()? == 0)
    }

    /// Gives the members of a range to `f`, the greatest first if `is_downwards`, until it breaks. Where pages are missing it
    /// may begin anew: `begin` is called then, and what was given before does not count.
    ///
    /// # Errors
    /// As of [`SortedSet::put_all`].
    pub fn for_each(
        &self,
        range: &ScoredRange<'_>,
        is_downwards: bool,
        mut begin: impl FnMut(),
        mut f: impl FnMut(&[u8], f64) -> ControlFlow<()>,
    ) -> Result<(), OpError> {
        self.0.read(|worker, db, key| {
            begin();
            let all = RangeLimit::NONE;
            worker.sorted_set_at(db, key).range(range, is_downwards, all, |_| (), &mut f).map(drop)
        })
    }
}

impl std::fmt::Debug for SortedSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SortedSet({})", String::from_utf8_lossy(self.key()))
    }
}
