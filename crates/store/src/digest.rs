//! `DEBUG DIGEST` and `DIGEST-VALUE`: those of Redis 7.0, byte for byte, so that data can be held against that of other servers.
//!
//! ```text
//!   value    what has an order is mixed in: D = sha1(D ^ sha1(bytes));   what has none is added: D = D ^ sha1(bytes)
//!   data     for each database: mix its number;   for each key: add the digest of its name and value
//! ```

use std::collections::BTreeMap;

use sha1::{Digest as _, Sha1};

use crate::entries::block::Block;
use crate::entries::group::{self, Consumer, Part};
use crate::entries::{base_of, Head, StreamId, HEAD_KEY};
use crate::error::SaveError;
use crate::rdb::{score_text, CollectionKind, Element, Parts};
use crate::store::Store;
use crate::view::View;
use crate::walk::{CollectionView, Value, ViewEntry};
use crate::{DbId, StrRef, UnixMillis, ValueType};

const DIGEST_BYTES: usize = 20;
/// Added for a key that has a deadline, whichever.
const HAS_DEADLINE: &[u8] = b"!!expire!!";

/// A digest on its way.
#[derive(Default)]
struct Digest([u8; DIGEST_BYTES]);

impl Digest {
    fn add_hash(&mut self, hash: [u8; DIGEST_BYTES]) {
        self.0.iter_mut().zip(hash).for_each(|(byte, other)| *byte ^= other);
    }

    fn add(&mut self, bytes: &[u8]) {
        self.add_hash(Sha1::digest(bytes).into());
    }

    fn mix_hash(&mut self, hash: [u8; DIGEST_BYTES]) {
        self.add_hash(hash);
        self.0 = Sha1::digest(self.0).into();
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.mix_hash(Sha1::digest(bytes).into());
    }

    fn text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn mix_string(digest: &mut Digest, value: &StrRef<'_>) {
    if let Some(number) = value.as_int() {
        return digest.mix(number.to_string().as_bytes());
    }
    let mut hash = Sha1::new();
    value.chunks(0, value.len(), |chunk| hash.update(chunk));
    digest.mix_hash(hash.finalize().into());
}

fn take_element(digest: &mut Digest, element: &Element<'_>) {
    let (kind, parts) = (element.kind(), element.parts());
    let mut of_pair = |second: &[u8]| {
        let mut pair = Digest::default();
        pair.mix(parts.name);
        pair.mix(second);
        digest.add(&pair.0);
    };
    if kind == CollectionKind::Hash {
        of_pair(parts.value);
    } else if kind == CollectionKind::SortedSet {
        of_pair(score_text(parts.score).as_bytes());
    } else if kind == CollectionKind::List {
        digest.mix(parts.name);
    } else if kind == CollectionKind::Stream {
        take_record(digest, parts.name, parts.value);
    } else {
        digest.add(parts.name);
    }
}

/// Of a stream its entries: what its groups have is in no digest of Redis.
fn take_record(digest: &mut Digest, key: &[u8], value: &[u8]) {
    let Some(base) = base_of(key) else { return };
    for entry in Block::new(base, value).entries().flatten() {
        digest.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
        entry.parts.iter().for_each(|part| digest.mix(part));
    }
}

fn take_collection(
    digest: &mut Digest,
    collection: &CollectionView<'_>,
    now: UnixMillis,
) -> Result<(), SaveError> {
    collection.for_each(&mut |element| {
        if element.is_live(now) {
            take_element(digest, &element);
        }
        Ok(())
    })
}

/// What a digest leaves out: of a stream what it says of itself, and its groups, but for times at which consumers were seen.
fn take_groups(digest: &mut Digest, entry: &ViewEntry<'_>) -> Result<(), SaveError> {
    let Value::Collection(collection) = &entry.value else { return Ok(()) };
    if entry.value.value_type() != ValueType::Stream {
        return Ok(());
    }
    collection.for_each(&mut |element| {
        let Parts { name, value, .. } = element.parts();
        match (Head::parse(value), group::of_key(name)) {
            (Some(head), None) if name == HEAD_KEY => {
                let marks = [head.last, head.first, head.max_deleted].map(StreamId::to_bytes).concat();
                digest.mix(&marks);
                digest.mix(&head.added_count.to_le_bytes());
            }
            (_, Some((_, Part::Consumer(_)))) => {
                let consumer = Consumer::parse(value).unwrap_or_default();
                digest.mix(&consumer.pending_count.to_le_bytes());
                digest.mix(&consumer.name);
            }
            (_, Some(_)) => {
                digest.mix(name);
                digest.mix(value);
            }
            _ => {}
        }
        Ok(())
    })
}

/// Takes a value in, with whether its key has a deadline.
fn take_value(digest: &mut Digest, entry: &ViewEntry<'_>, now: UnixMillis) -> Result<(), SaveError> {
    digest.mix(&entry.value.value_type().number().to_be_bytes());
    match &entry.value {
        Value::String(value) => mix_string(digest, value),
        Value::Collection(collection) => take_collection(digest, collection, now)?,
    }
    if entry.deadline.is_some() {
        digest.add(HAS_DEADLINE);
    }
    Ok(())
}

fn is_live(entry: &ViewEntry<'_>, now: UnixMillis) -> bool {
    entry.deadline.is_none_or(|deadline| deadline > now)
}

/// The digest of all data, as hexadecimal digits.
///
/// # Errors
/// A page cannot be read.
pub fn of_all(view: &View, now: UnixMillis) -> Result<String, SaveError> {
    let (mut all, mut of_db) = (Digest::default(), None);
    view.for_each(|entry| {
        if !is_live(&entry, now) {
            return Ok(());
        }
        if of_db.replace(entry.db) != Some(entry.db) {
            all.mix(&entry.db.0.to_be_bytes());
        }
        let mut digest = Digest::default();
        digest.mix(entry.key);
        take_value(&mut digest, &entry, now)?;
        all.add(&digest.0);
        Ok::<(), SaveError>(())
    })?;
    Ok(all.text())
}

/// What two stores do not have alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    Key {
        db: DbId,
        key: Vec<u8>,
    },
    /// A function library.
    Library {
        name: String,
    },
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Difference::Key { db, key } => write!(f, "key '{}' of database {}", key.escape_ascii(), db.0),
            Difference::Library { name } => write!(f, "the function library '{name}'"),
        }
    }
}

/// The hashes of the sources of all function libraries.
fn libraries_of(view: &View) -> Result<BTreeMap<String, [u8; DIGEST_BYTES]>, SaveError> {
    let mut hashes = BTreeMap::new();
    view.for_each_library(|name, source| {
        hashes.insert(name.to_owned(), Sha1::digest(source).into());
        Ok::<(), SaveError>(())
    })?;
    Ok(hashes)
}

/// The first key, in the order of the views, that two stores have with other values or only one of them has; if there is none, the first such
/// function library; `None` if they are equal.
///
/// # Errors
/// A page cannot be read.
pub fn first_difference(
    one: (&Store, &View),
    other: (&Store, &View),
    now: UnixMillis,
) -> Result<Option<Difference>, SaveError> {
    let mut found = None;
    for ((_, from), (store, view)) in [(one, other), (other, one)] {
        let walked = from.for_each(|entry| {
            let mut digest = Digest::default();
            if is_live(&entry, now) {
                take_value(&mut digest, &entry, now)?;
                take_groups(&mut digest, &entry)?;
            }
            let there = store.with_viewed(view, entry.db, entry.key, |entry| {
                let mut digest = Digest::default();
                if let Some(entry) = entry.filter(|entry| is_live(entry, now)) {
                    take_value(&mut digest, &entry, now)?;
                    take_groups(&mut digest, &entry)?;
                }
                Ok::<_, SaveError>(digest.text())
            })??;
            if there != digest.text() {
                found = Some(Difference::Key { db: entry.db, key: entry.key.to_vec() });
                return Err(SaveError::Ended);
            }
            Ok(())
        });
        match walked {
            Ok(()) => {}
            Err(SaveError::Ended) => return Ok(found),
            Err(error) => return Err(error),
        }
    }
    let (here, there) = (libraries_of(one.1)?, libraries_of(other.1)?);
    let mut names: Vec<&String> = here.keys().chain(there.keys()).collect();
    names.sort_unstable();
    let other = names.into_iter().find(|name| here.get(*name) != there.get(*name));
    Ok(other.map(|name| Difference::Library { name: name.clone() }))
}

/// The digests of the values of keys; zeros where there is no key.
///
/// # Errors
/// A page cannot be read.
pub fn of_values<'k>(
    store: &Store,
    view: &View,
    db: DbId,
    keys: impl Iterator<Item = &'k [u8]>,
    now: UnixMillis,
) -> Result<Vec<String>, SaveError> {
    let digest_of = |key: &[u8]| {
        store.with_viewed(view, db, key, |entry| {
            let mut digest = Digest::default();
            if let Some(entry) = entry.filter(|entry| is_live(entry, now)) {
                take_value(&mut digest, &entry, now)?;
            }
            Ok(digest.text())
        })?
    };
    keys.map(digest_of).collect()
}
