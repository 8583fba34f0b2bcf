//! Collections in dumps and payloads, written from a view.

use std::io::Write;

use stillframe_store::rdb::{
    self, Compressor, KeyMeta, PayloadWriter, RdbString, SmallLimits, StringRef, WriteError, Writer,
};
use stillframe_store::{CollectionView, Element, SaveError, StrRef, UnixMillis};

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

/// Before all deadlines.
const EVER: UnixMillis = UnixMillis::MIN;

/// Gives the elements that are there.
fn for_each_written(
    view: &CollectionView<'_>,
    now: UnixMillis,
    mut write: impl FnMut(Element<'_>) -> Result<(), WriteError>,
) -> Result<(), CollectionError> {
    let mut written = Ok(());
    let walked = view.for_each(&mut |element| {
        if element.is_live(now) {
            written = write(element);
        }
        match &written {
            Ok(()) => Ok(()),
            Err(_) => Err(SaveError::Ended),
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
    writer.begin_collection(key, view.announced(limits, EVER)?, meta)?;
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
        let announced = view.announced(&self.limits, now)?;
        let version = announced.oldest_version();
        let mut writer = PayloadWriter::begin(out, announced, self.compresses, version, self.limits)?;
        for_each_written(view, now, |element| writer.element(element))?;
        Ok(writer.finish()?)
    }
}
