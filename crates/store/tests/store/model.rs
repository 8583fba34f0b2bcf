//! What a store should be: maps.

use std::collections::BTreeMap;

use stillframe_store::{DbId, Deadline, Encoding, NewValue, UnixMillis, Worker};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Int(i64),
    Bytes { bytes: Vec<u8>, raw: bool },
}

impl Value {
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Value::Int(value) => value.to_string().into_bytes(),
            Value::Bytes { bytes, .. } => bytes.clone(),
        }
    }

    pub fn encoding(&self) -> Encoding {
        match self {
            Value::Int(_) => Encoding::Int,
            Value::Bytes { bytes, raw } if *raw || bytes.len() > 44 => Encoding::Raw,
            Value::Bytes { .. } => Encoding::Embstr,
        }
    }

    pub fn as_new(&self) -> NewValue<'_> {
        match self {
            Value::Int(value) => NewValue::Int(*value),
            Value::Bytes { bytes, raw } => NewValue::Bytes { bytes, raw: *raw },
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub value: Value,
    pub deadline: Option<UnixMillis>,
}

pub type Db = BTreeMap<Vec<u8>, Entry>;

/// The model; expired entries stay until they are looked at, and count as absent.
#[derive(Clone)]
pub struct Model {
    pub dbs: Vec<Db>,
    pub now: UnixMillis,
}

impl Model {
    pub fn new(database_count: usize) -> Model {
        Model { dbs: vec![Db::new(); database_count], now: 1_000_000 }
    }

    pub fn db(&mut self, db: DbId) -> &mut Db {
        &mut self.dbs[db.0 as usize]
    }

    /// Drops what has expired.
    pub fn expire(&mut self) {
        let now = self.now;
        for db in &mut self.dbs {
            db.retain(|_, entry| entry.deadline.is_none_or(|deadline| deadline > now));
        }
    }

    pub fn set(&mut self, db: DbId, key: &[u8], value: Value, deadline: Deadline) -> bool {
        let now = self.now;
        let old = self.db(db).remove(key);
        let deadline = match deadline {
            Deadline::Keep => old.as_ref().and_then(|entry| entry.deadline),
            Deadline::Clear => None,
            Deadline::At(at) => Some(at),
        };
        if deadline.is_none_or(|deadline| deadline > now) {
            self.db(db).insert(key.to_vec(), Entry { value, deadline });
        }
        old.is_some()
    }

    pub fn write_range(&mut self, db: DbId, key: &[u8], offset: usize, bytes: &[u8]) -> u64 {
        let entry = self.db(db).entry(key.to_vec()).or_insert_with(|| Entry {
            value: Value::Bytes { bytes: Vec::new(), raw: true },
            deadline: None,
        });
        let mut content = entry.value.to_bytes();
        content.resize(content.len().max(offset + bytes.len()), 0);
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
        let len_bytes = content.len() as u64;
        entry.value = Value::Bytes { bytes: content, raw: true };
        len_bytes
    }
}

/// Compares a whole database through the worker, key by key and by a full scan.
pub fn compare_db(worker: &mut Worker, db: DbId, model: &Db) {
    for (key, entry) in model {
        let key = worker.key(key);
        let found = worker.get(db, &key, |value| (value.to_vec(), value.encoding(), value.len())).unwrap();
        let bytes = entry.value.to_bytes();
        let len_bytes = bytes.len() as u64;
        assert!(found == Some((bytes, entry.value.encoding(), len_bytes)), "{:?}", key.bytes);
    }
    let mut scanned = BTreeMap::new();
    let mut cursor = 0;
    loop {
        cursor = worker
            .database(db)
            .scan(cursor, 10, |key, info| {
                let before = scanned.insert(key.to_vec(), (info.value_bytes, info.deadline));
                assert!(before.is_none(), "{key:?} was given twice");
            })
            .unwrap();
        if cursor == 0 {
            break;
        }
    }
    let expected: BTreeMap<_, _> =
        model.iter().map(|(key, e)| (key.clone(), (e.value.to_bytes().len() as u64, e.deadline))).collect();
    assert!(scanned == expected, "{} keys scanned, {} expected", scanned.len(), expected.len());
}
