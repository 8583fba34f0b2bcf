//! What happens to whole databases and trees at once: all stand still meanwhile.

use super::state::Keyspace;
use super::steps::Acting;
use super::{read, sweep};
use crate::effect::{Before, Effect};
use crate::error::TreeError;
use crate::{DbId, Key, UnixMillis};

/// Exchanges two databases. Runs in the barrier.
pub fn swap(keyspace: &Keyspace, a: DbId, b: DbId, (acting, now): (&Acting, UnixMillis)) {
    if a == b {
        return;
    }
    tell_before(keyspace, (acting, now), |before| Effect::Swap { a, b, before });
    keyspace.counters.swap(a, b);
    keyspace.databases.swap(a, b);
    acting.end_operation();
}

/// Empties a database: its tree is garbage from now on. Runs in the barrier.
pub fn flush(keyspace: &Keyspace, db: DbId, (acting, now): (&Acting, UnixMillis)) {
    tell_before(keyspace, (acting, now), |before| Effect::Flush { db, before });
    if let Some(root) = keyspace.databases.take(db) {
        keyspace.garbage.push_tree(&keyspace.pool, root);
    }
    keyspace.counters.clear(db);
    if keyspace.databases.trees().next().is_none() {
        keyspace.tracker.begin_anew(now);
        keyspace.settle_stamps();
    }
    abandon_if_empty(keyspace);
    acting.end_operation();
}

/// Takes a named tree out of the list: it is garbage from now on. Whether there was one. Runs in the barrier.
///
/// # Errors
/// [`TreeError::Damaged`]: the list cannot be read.
pub fn drop_named(keyspace: &Keyspace, name: &[u8]) -> Result<bool, TreeError> {
    let root = keyspace.named.take(name)?;
    if let Some(root) = root {
        keyspace.garbage.push_tree(&keyspace.pool, root);
        abandon_if_empty(keyspace);
    }
    Ok(root.is_some())
}

/// Tells of what is about to happen to whole databases, because of a worker whose clock says `now`.
fn tell_before(
    keyspace: &Keyspace,
    (acting, now): (&Acting, UnixMillis),
    effect: impl for<'b> FnOnce(Before<'b>) -> Effect<'b>,
) {
    let may_have = |db, bytes: &[u8]| {
        let key = Key::new(bytes, keyspace.trees.order.hash(bytes));
        read::has(keyspace, now, db, &key).unwrap_or(true)
    };
    acting.tell(now, &effect(Before { may_have: &may_have }));
}

/// What damage keeps in use goes when there is no data left. Runs in the barrier.
fn abandon_if_empty(keyspace: &Keyspace) {
    if keyspace.pool.residency().has_damage()
        && keyspace.databases.trees().next().is_none()
        && keyspace.named.is_empty()
    {
        sweep::abandon_all(keyspace);
    }
}
