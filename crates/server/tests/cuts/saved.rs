//! What a save has written.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_store::rdb::{OnUnsupported, RdbString, RdbValue, Reader, ReaderOptions};
use stillframe_store::{Options, SaveError, Store, ViewEntry};

use crate::model::{Entry, Keyspace};

/// All databases, by number.
pub type Saved = BTreeMap<u32, Keyspace>;

/// The last checkpoint of a page file that nobody saves into just now.
pub fn of_page_file(path: &Path) -> Saved {
    let image = std::fs::read(path).expect("a page file");
    let options = Options { huge_pages: false, ..Options::default() };
    let store = Store::open_on(Arc::new(SimDevice::from_image(0, image)), options).expect("a checkpoint");
    let mut saved = Saved::new();
    let view = store.view().expect("a view");
    let read = view.for_each(|entry: ViewEntry<'_>| -> Result<(), SaveError> {
        let key = String::from_utf8(entry.key.to_vec()).expect("keys are text");
        let value = entry.value.as_string().expect("a string").to_vec();
        let entry_of_key = Entry { value: Arc::new(value), deadline_ms: entry.deadline };
        let is_new = saved.entry(entry.db.0).or_default().insert(key, entry_of_key).is_none();
        assert!(is_new, "a key twice");
        Ok(())
    });
    read.expect("a checkpoint that can be read");
    saved
}

pub fn of_dump(path: &Path) -> Saved {
    let options = ReaderOptions {
        file_name: path.display().to_string(),
        on_unsupported: OnUnsupported::Fail,
        verify_checksum: true,
        db_count: 16,
    };
    let mut reader = Reader::new(File::open(path).expect("a dump"), options);
    let mut saved = Saved::new();
    while let Some(entry) = reader.next_entry().expect("a dump that can be read") {
        let value = match entry.value {
            RdbValue::String(RdbString::Int(number)) => number.to_string().into_bytes(),
            RdbValue::String(RdbString::Bytes(bytes)) => bytes.to_vec(),
            other => panic!("{other:?}"),
        };
        let key = String::from_utf8(entry.key).expect("keys are text");
        let deadline_ms = entry.meta.expire_at_ms.map(|ms| ms as i64);
        saved.entry(entry.db).or_default().insert(key, Entry { value: Arc::new(value), deadline_ms });
    }
    saved
}
