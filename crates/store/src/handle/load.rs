//! Filling an empty tree with records that come in order.
//!
//! ```text
//!   (none) ── begin ──▶ BUILT ASIDE, to a cut garbage ── all records are there ──▶ part of the data
//!                         │  ▲ a batch of records           │ an error
//!                         └──┘                              └─────────────────────▶ garbage
//! ```
//! The tree that is built has pages and a tag of its own; in one step it takes the empty one's place.

use stillframe_pagepool::PageId;

use super::tree::Tree;
use super::turn::Turn;
use super::values::{check_record, settled, NewValue};
use crate::blobs::Incoming;
use crate::error::{OpError, TreeError};
use crate::keyspace::Keyspace;
use crate::named::KeptOut;
use crate::stop::retry;
use crate::tree::ordered::Bulk;
use crate::tree::{self, NO_DATABASE};

/// Bytes and records that are added between two looks at the barrier.
const BATCH_BYTES: usize = 512 * 1024;
const BATCH_RECORDS: usize = 4096;

/// A record, with its value in its place if that is long.
type Placed<'b> = (&'b [u8], &'b [u8], Option<Incoming>);

/// A tree that is not part of the data yet; garbage when it is dropped.
struct Aside<'k> {
    keyspace: &'k Keyspace,
    root: PageId,
    is_used: bool,
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        self.keyspace.garbage.release_tree(self.root, self.is_used);
    }
}

impl Tree {
    /// Fills the tree, which is empty, with records whose keys ascend, from the leaves up: the leaves are nearly full. They
    /// are there all at once, in the end; meanwhile writers of this tree wait, and readers find it empty. How many they are.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`TreeError::NotEmpty`], [`TreeError::NotAscending`]; any other. The tree is empty then.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, TreeError> {
        drop(self.seat.begin()?);
        let _transacting = self.seat.begin_transaction()?;
        let keyspace = self.keyspace();
        let _loading = self.seat.idle(|| keyspace.named.loading.lock());
        let turn = Turn::take(self);
        if self.iter().next().transpose()?.is_some() {
            return Err(TreeError::NotEmpty);
        }
        let aside = self.begin_aside()?;
        let count = self.build(&aside, records)?;
        self.install(&turn, aside, count)?;
        Ok(count)
    }

    fn begin_aside(&self) -> Result<(Aside<'_>, tree::Tree), TreeError> {
        let keyspace = self.keyspace();
        let tag = keyspace.take_tag();
        // To a cut before this there is no such tree, and to one after this the tree is garbage.
        let _busy = self.seat.begin()?;
        let root = retry(|| keyspace.named.trees.create(tag))?;
        keyspace.garbage.hold_tree(root);
        Ok((Aside { keyspace, root, is_used: false }, tree::Tree { db: NO_DATABASE, root, tag }))
    }

    fn build<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        (_, tree): &(Aside<'_>, tree::Tree),
        records: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, TreeError> {
        let keyspace = self.keyspace();
        let mut bulk = retry(|| Bulk::begin(&keyspace.named.trees, *tree))?;
        let (mut records, mut count, mut batch) = (records.into_iter(), 0, Vec::new());
        loop {
            // The caller's code may look at the barrier: nothing is unfinished now.
            let mut batch_bytes = 0;
            while batch_bytes < BATCH_BYTES && batch.len() < BATCH_RECORDS {
                let Some((key, value)) = records.next() else { break };
                batch_bytes += key.as_ref().len() + value.as_ref().len();
                batch.push((key, value));
            }
            let is_last = batch.is_empty();
            let received = self.receive_batch(&batch);
            let busy = self.seat.begin()?;
            let added = received.and_then(|records| {
                self.make_room()?;
                add_batch(keyspace, &mut bulk, &records)
            });
            let sealed = added.and_then(|()| match is_last {
                true => Ok(bulk.finish().map_err(OpError::from)?),
                false => Ok(bulk.seal().map_err(OpError::from)?),
            });
            if let Err(error) = sealed {
                bulk.abandon(|value| value.blob().into_iter().for_each(|blob| keyspace.blobs.discard(&blob)));
                return Err(error);
            }
            drop(busy);
            count += batch.len() as u64;
            batch.clear();
            if is_last {
                return Ok(count);
            }
        }
    }

    /// Records with their long values in their places.
    fn receive_batch<'b, K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        batch: &'b [(K, V)],
    ) -> Result<Vec<Placed<'b>>, TreeError> {
        let records = batch.iter().map(|(key, value)| (key.as_ref(), value.as_ref()));
        records.map(|(key, value)| Ok((key, value, self.receive(value)?))).collect()
    }

    /// The tree that has been built takes the place of the empty one.
    fn install(
        &self,
        turn: &Turn<'_>,
        (mut aside, tree): (Aside<'_>, tree::Tree),
        count: u64,
    ) -> Result<(), TreeError> {
        let keyspace = self.keyspace();
        let _busy = self.seat.begin()?;
        turn.close(KeptOut::All);
        // Who waits is quiescent: it may have been dropped. From here on no cut comes between.
        let empty = self.named.open_tree()?;
        self.named.replace(tree);
        self.visitor.count(count as i64);
        keyspace.garbage.push_tree(&keyspace.pool, empty.root);
        // Before a cut may come: what has been built is garbage to it, or part of the data, and never both.
        aside.is_used = true;
        drop(aside);
        Ok(())
    }
}

/// Adds records, with what has been received of their values.
fn add_batch(keyspace: &Keyspace, bulk: &mut Bulk<'_>, records: &[Placed<'_>]) -> Result<(), TreeError> {
    for (key, value, received) in records {
        check_record(key, value)?;
        let new = settled(keyspace, || NewValue::make(keyspace, key, value, received.as_ref()))?;
        let added = bulk.add(key, new.stored()).map_err(OpError::from);
        match &added {
            Ok(true) => new.note_used(),
            Ok(false) | Err(_) => new.discard(keyspace),
        }
        if !added? {
            return Err(TreeError::NotAscending);
        }
    }
    Ok(())
}
