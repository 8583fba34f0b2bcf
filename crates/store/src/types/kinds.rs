//! The one list of the types of collections. A new type is an entry here; what is said of it is [`Kind`], in its own folder.

use crate::rdb::CollectionKind;
use crate::types::kind::Kind;
use crate::types::{hash, list, set, sorted_set, stream};
use crate::value::ValueType;

pub(super) static KINDS: [(ValueType, &dyn Kind); 5] = [
    (ValueType::List, &list::Lists),
    (ValueType::Set, &set::Sets),
    (ValueType::SortedSet, &sorted_set::SortedSets),
    (ValueType::Hash, &hash::Hashes),
    (ValueType::Stream, &stream::Streams),
];

/// What a type of values is made of; `None` of a string, and of what no command makes.
pub(super) fn of(value_type: ValueType) -> Option<&'static dyn Kind> {
    KINDS.iter().find(|(listed, _)| *listed == value_type).map(|(_, kind)| *kind)
}

/// The type that a collection of a dump becomes.
pub(super) fn of_dumped(kind: CollectionKind) -> Option<&'static dyn Kind> {
    KINDS.iter().map(|(_, listed)| *listed).find(|listed| listed.dumped_as() == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_collection_is_listed_once() {
        for value_type in ValueType::ALL {
            let listed = KINDS.iter().filter(|(listed, _)| *listed == value_type).count();
            let is_made = value_type != ValueType::String;
            assert_eq!(listed, usize::from(is_made), "{value_type:?}");
        }
        let all = KINDS.iter().map(|(_, kind)| kind.dumped_as());
        for kind in all.clone() {
            assert_eq!(all.clone().filter(|other| *other == kind).count(), 1, "{kind:?}");
        }
    }
}
