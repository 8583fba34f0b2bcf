//! Collections in dumps and payloads, written from a view.

use std::io::Write;

use stillframe_store::rdb::{
    self, Announced, Compressor, KeyMeta, ListNodes, PayloadWriter, RdbString, SmallLimits, StringRef,
    WriteError, WriteVersion, Writer,
};
use stillframe_store::{CollectionView, Element, Encoding, SaveError, StrRef, UnixMillis, ValueType};

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

/// Before all deadlines.
const EVER: UnixMillis = UnixMillis::MIN;

/// Whether an element's time is not over.
pub fn is_there(element: &Element<'_>, now: UnixMillis) -> bool {
    match element {
        Element::Field { deadline: Some(deadline), .. } => *deadline > now,
        _ => true,
    }
}

/// What a collection is announced as, with the elements that are there: a dump says it before the elements, which takes a
/// round over those of a list, and of a hash with deadlines.
fn announced(
    view: &CollectionView<'_>,
    limits: &SmallLimits,
    now: UnixMillis,
) -> Result<Announced, SaveError> {
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
        ValueType::Hash | ValueType::String | ValueType::Stream => announced_hash(view, is_small, now)?,
    })
}

fn announced_hash(
    view: &CollectionView<'_>,
    is_small: bool,
    now: UnixMillis,
) -> Result<Announced, SaveError> {
    if !view.is_timed() {
        let field_count = view.element_count()?;
        return Ok(Announced::Hash { field_count, is_small, least_deadline_ms: None });
    }
    let (mut field_count, mut least_deadline_ms) = (0, None::<u64>);
    view.for_each(&mut |element| {
        if !is_there(&element, now) {
            return Ok(());
        }
        field_count += 1;
        if let rdb::Element::Field { deadline_ms: Some(at_ms), .. } = as_written(element) {
            least_deadline_ms = Some(least_deadline_ms.map_or(at_ms, |least| least.min(at_ms)));
        }
        Ok(())
    })?;
    Ok(Announced::Hash { field_count, is_small, least_deadline_ms })
}

/// Gives the elements that are there.
fn for_each_written(
    view: &CollectionView<'_>,
    now: UnixMillis,
    mut write: impl FnMut(rdb::Element<'_>) -> Result<(), WriteError>,
) -> Result<(), CollectionError> {
    let mut written = Ok(());
    let walked = view.for_each(&mut |element| {
        if is_there(&element, now) {
            written = write(as_written(element));
        }
        match &written {
            Ok(()) => Ok(()),
            Err(error) => Err(SaveError::Io(error.to_string())),
        }
    });
    written?;
    Ok(walked?)
}

/// Writes a collection.
///
/// # Errors
/// Its pages cannot be read, or the dump cannot be written.
pub fn write_collection<W: Write>(
    writer: &mut Writer<W>,
    key: &[u8],
    view: &CollectionView<'_>,
    meta: KeyMeta,
    limits: &SmallLimits,
) -> Result<(), CollectionError> {
    writer.begin_collection(key, announced(view, limits, EVER)?, meta)?;
    for_each_written(view, EVER, |element| writer.element(element))
}

/// A string as a dump has it.
pub fn held(value: &StrRef<'_>) -> RdbString {
    match value.as_int() {
        Some(int) => RdbString::Int(int),
        None => RdbString::Bytes(value.to_vec()),
    }
}

/// In what form a payload of `DUMP` is written.
#[derive(Clone, PartialEq, Debug)]
pub struct PayloadForm {
    pub limits: SmallLimits,
    pub compresses: bool,
}

impl PayloadForm {
    pub fn of(settings: &Settings) -> PayloadForm {
        PayloadForm { limits: small_limits(settings), compresses: settings.rdb_compression }
    }

    /// The payload of a string.
    pub fn string(&self, string: StringRef<'_>) -> Vec<u8> {
        rdb::dump_string(string, self.compresses.then(Compressor::new).as_mut())
    }

    /// Writes the payload of a collection without fields whose time is over; of the same view it is the same again.
    ///
    /// # Errors
    /// Its pages cannot be read, `out` takes nothing more, or all fields are gone.
    pub fn write<W: Write>(
        &self,
        out: W,
        view: &CollectionView<'_>,
        now: UnixMillis,
    ) -> Result<W, CollectionError> {
        let announced = announced(view, &self.limits, now)?;
        let has_deadlines = matches!(announced, Announced::Hash { least_deadline_ms: Some(_), .. });
        let version = if has_deadlines { WriteVersion::Redis7_4 } else { WriteVersion::Redis7_0 };
        let mut writer = PayloadWriter::begin(out, announced, self.compresses, version, self.limits)?;
        for_each_written(view, now, |element| writer.element(element))?;
        Ok(writer.finish()?)
    }
}
