//! Collections in dumps, written from a view.

use std::fs::File;

use stillframe_store::rdb::{self, Announced, KeyMeta, ListNodes, SmallLimits, WriteError, Writer};
use stillframe_store::{CollectionView, Element, Encoding, SaveError, ValueType};

use crate::config::Settings;

/// Up to which size collections have small forms in a dump.
pub fn small_limits(settings: &Settings) -> SmallLimits {
    let limits = &settings.collection_limits;
    SmallLimits {
        hash_max_listpack_entries: limits.hash_entries as u64,
        hash_max_listpack_value_bytes: limits.hash_value_bytes as u64,
        set_max_intset_entries: limits.intset_entries as u64,
        zset_max_listpack_entries: limits.sorted_set_entries as u64,
        zset_max_listpack_value_bytes: limits.sorted_set_value_bytes as u64,
        list_max_listpack_size: settings.list_max_listpack_size,
    }
}

/// Why a collection was not written.
#[derive(thiserror::Error, Debug)]
pub enum CollectionError {
    #[error(transparent)]
    Save(#[from] SaveError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

fn as_written(element: Element<'_>) -> rdb::Element<'_> {
    match element {
        Element::Field { field, value, deadline } => {
            let deadline_ms = deadline.map(|at| u64::try_from(at).unwrap_or(0));
            rdb::Element::Field { field, value, deadline_ms }
        }
        Element::Member(member) => rdb::Element::Member(member),
        Element::Scored { member, score } => rdb::Element::Scored { member, score },
        Element::Item(item) => rdb::Element::Item(item),
    }
}

/// What a collection is announced as: a dump says it before the elements, which takes a round over those of a list, and of a
/// hash with deadlines.
fn announced(view: &CollectionView<'_>, limits: &SmallLimits) -> Result<Announced, SaveError> {
    let is_small = matches!(view.encoding(), Encoding::ListPack | Encoding::IntSet);
    Ok(match view.value_type() {
        ValueType::List => {
            let mut nodes = ListNodes::new(limits);
            view.for_each(&mut |element| {
                if let Element::Item(item) = element {
                    nodes.add(item);
                }
                Ok(())
            })?;
            nodes.announced()
        }
        ValueType::Set => Announced::Set { member_count: view.element_count()?, is_small },
        ValueType::SortedSet => Announced::SortedSet { member_count: view.element_count()?, is_small },
        ValueType::Hash | ValueType::String | ValueType::Stream => {
            let mut least_deadline_ms: Option<u64> = None;
            if view.is_timed() {
                view.for_each(&mut |element| {
                    if let rdb::Element::Field { deadline_ms: Some(at_ms), .. } = as_written(element) {
                        least_deadline_ms = Some(least_deadline_ms.map_or(at_ms, |least| least.min(at_ms)));
                    }
                    Ok(())
                })?;
            }
            Announced::Hash { field_count: view.element_count()?, is_small, least_deadline_ms }
        }
    })
}

/// Writes a collection.
///
/// # Errors
/// Its pages cannot be read, or the dump cannot be written.
pub fn write_collection(
    writer: &mut Writer<File>,
    key: &[u8],
    view: &CollectionView<'_>,
    meta: KeyMeta,
    limits: &SmallLimits,
) -> Result<(), CollectionError> {
    writer.begin_collection(key, announced(view, limits)?, meta)?;
    let mut written = Ok(());
    let walked = view.for_each(&mut |element| {
        written = writer.element(as_written(element));
        match &written {
            Ok(()) => Ok(()),
            Err(error) => Err(SaveError::Io(error.to_string())),
        }
    });
    written?;
    Ok(walked?)
}
