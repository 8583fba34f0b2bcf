//! The value types that are not stored yet: their names, and the way past them.

use super::error::ReadErrorKind;
use super::format::{is_valkey, TYPE_MODULE_1, TYPE_PATH_HASH};
use super::source::Source;
use std::io::Read;

type Result<T> = std::result::Result<T, ReadErrorKind>;

mod module_opcode {
    pub const EOF: u64 = 0;
    pub const SINT: u64 = 1;
    pub const UINT: u64 = 2;
    pub const FLOAT: u64 = 3;
    pub const DOUBLE: u64 = 4;
    pub const STRING: u64 = 5;
}

/// How a type is laid out behind its key.
#[derive(Clone, Copy)]
enum Layout {
    Module2,
    Unknowable,
}

/// A type of the format that is not stored.
#[derive(Clone, Copy)]
pub(super) struct OtherType {
    pub code: u8,
    pub family: &'static str,
    pub encoding: &'static str,
    layout: Layout,
}

impl OtherType {
    /// The type with this code; `None` if there is none up to this version.
    pub fn from_code(code: u8, version: u32) -> Option<OtherType> {
        use Layout::*;
        let (family, encoding, layout) = match code {
            TYPE_MODULE_1 => ("module", "version 1", Unknowable),
            7 => ("module", "version 2", Module2),
            TYPE_PATH_HASH if is_valkey(version) => ("path hash", "paths", Unknowable),
            _ => return None,
        };
        Some(OtherType { code, family, encoding, layout })
    }

    /// Whether the end of such a value can be found.
    pub fn can_be_skipped(self) -> bool {
        !matches!(self.layout, Layout::Unknowable)
    }

    /// Passes over a value of this type. The caller has asked `can_be_skipped`.
    pub fn skip<R: Read>(self, source: &mut Source<R>) -> Result<()> {
        match self.layout {
            Layout::Module2 => {
                source.count()?;
                skip_module_fields(source)
            }
            Layout::Unknowable => Err(ReadErrorKind::BadModuleData),
        }
    }
}

/// Passes over the fields of a module's value or auxiliary data, to their end mark.
fn skip_module_fields<R: Read>(source: &mut Source<R>) -> Result<()> {
    loop {
        match source.count()? {
            module_opcode::EOF => return Ok(()),
            module_opcode::SINT | module_opcode::UINT => source.count().map(drop)?,
            module_opcode::FLOAT => source.skip(4)?,
            module_opcode::DOUBLE => source.skip(8)?,
            module_opcode::STRING => source.skip_string()?,
            _ => return Err(ReadErrorKind::BadModuleData),
        }
    }
}

/// Passes over a module's auxiliary data behind its module ID.
pub(super) fn skip_module_aux<R: Read>(source: &mut Source<R>) -> Result<()> {
    if source.count()? != module_opcode::UINT {
        return Err(ReadErrorKind::BadModuleData);
    }
    source.count()?;
    skip_module_fields(source)
}

/// Name and encoding version of a module, packed as nine characters of 6 bits and 10 bits.
pub(super) fn module_name(module_id: u64) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let name: String =
        (0..9).map(|i| char::from(ALPHABET[(module_id >> (58 - 6 * i)) as usize & 0x3f])).collect();
    format!("{name} (version {})", module_id & 0x3ff)
}
