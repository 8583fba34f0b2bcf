//! What a store has, to be held against what another one has.

use std::collections::BTreeMap;

use stillframe_store::{Element, SaveError, Store, UnixMillis, Value, ValueType};

/// An element: what it is called, its value or score, its deadline.
type Part = (Vec<u8>, Vec<u8>, Option<UnixMillis>);

#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    pub value_type: ValueType,
    pub deadline: Option<UnixMillis>,
    pub parts: Vec<Part>,
}

pub type Content = BTreeMap<(u32, Vec<u8>), Found>;

fn part_of(element: &Element<'_>) -> Part {
    match *element {
        Element::Item(name) | Element::Member(name) => (name.to_vec(), Vec::new(), None),
        Element::Scored { member, score } => (member.to_vec(), score.to_bits().to_be_bytes().to_vec(), None),
        Element::Field { field, value, deadline } => (field.to_vec(), value.to_vec(), deadline),
        Element::Record { key, value } => (key.to_vec(), without_times(key, value), None),
    }
}

/// When a consumer of a stream was seen is in no unit.
fn without_times(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    let is_consumer = key[0] == 2 && key.len().checked_sub(5).is_some_and(|at| key[at] == 3);
    if is_consumer && value.len() > 16 {
        value[..16].fill(0);
    }
    value
}

/// All keys of a store, also those whose time is over.
pub fn content_of(store: &Store) -> Content {
    let mut content = Content::new();
    let view = store.view().unwrap();
    view.for_each(|entry| {
        let value_type = entry.value.value_type();
        let mut parts = Vec::new();
        match &entry.value {
            Value::String(value) => parts.push((value.to_vec(), Vec::new(), None)),
            Value::Collection(collection) => collection.for_each(&mut |element| {
                parts.push(part_of(&element));
                Ok(())
            })?,
        }
        if value_type != ValueType::List {
            parts.sort();
        }
        let found = Found { value_type, deadline: entry.deadline, parts };
        content.insert((entry.db.0, entry.key.to_vec()), found);
        Ok::<(), SaveError>(())
    })
    .unwrap();
    content
}
