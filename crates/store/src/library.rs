//! What can be kept as a function library: a source of bounded length whose first line says its name. Whether it compiles is no
//! affair of the store.

use stillframe_script_header::{library_header, HeaderError};

/// Why a function library is none that a store keeps.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum LibraryError {
    /// Its first line does not say its name.
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("the library was given as '{given}', and its first line says that it is '{own}'")]
    OtherName { given: String, own: String },
    #[error(
        "the name of a library has at most {LIBRARY_NAME_MAX_BYTES} bytes, and this one has {len_bytes}"
    )]
    NameTooLong { len_bytes: usize },
    #[error("a library has at most {LIBRARY_MAX_BYTES} bytes, and '{name}' has {len_bytes}")]
    TooLong { name: String, len_bytes: u64 },
    #[error("library '{name}' was given twice")]
    Twice { name: String },
}

/// Bytes of the source of a function library, at most.
pub const LIBRARY_MAX_BYTES: u64 = 16 << 20;
/// Bytes of the name of a function library, at most.
pub const LIBRARY_NAME_MAX_BYTES: usize = 512;

/// The name of a library that can be kept, as its first line says.
///
/// # Errors
/// [`LibraryError`]: it has no name, or is too long.
pub fn library_name(source: &[u8]) -> Result<String, LibraryError> {
    let name = library_header(source)?.name;
    if name.len() > LIBRARY_NAME_MAX_BYTES {
        return Err(LibraryError::NameTooLong { len_bytes: name.len() });
    }
    match source.len() as u64 {
        len_bytes if len_bytes > LIBRARY_MAX_BYTES => Err(LibraryError::TooLong { name, len_bytes }),
        _ => Ok(name),
    }
}

/// # Errors
/// [`LibraryError`]: it cannot be kept under this name.
pub(crate) fn check_library(given: &str, source: &[u8]) -> Result<(), LibraryError> {
    let own = library_name(source)?;
    match own == given {
        true => Ok(()),
        false => Err(LibraryError::OtherName { given: given.to_owned(), own }),
    }
}
