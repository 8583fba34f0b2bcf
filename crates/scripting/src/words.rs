//! The words of a command, as a host gets them.

use mlua::{MultiValue, Value};
use smallvec::SmallVec;

use crate::number::format_exact;

/// The words of a command, one behind the other. Copied: to borrow each from Lua costs more than most words have bytes.
#[derive(Default)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

/// What is kept of an allocation between two commands, in bytes.
pub(crate) const KEPT_BYTES: usize = 64 << 10;

impl Words {
    /// Takes arguments for words; says what is wrong with them if they are none.
    pub(crate) fn fill(&mut self, args: &MultiValue) -> std::result::Result<(), &'static str> {
        self.bytes.clear();
        self.ends.clear();
        if args.is_empty() {
            return Err("Please specify at least one argument for this redis lib call");
        }
        for value in args.iter() {
            match value {
                Value::String(string) => self.bytes.extend_from_slice(&string.as_bytes()),
                Value::Number(number) => self.bytes.extend_from_slice(format_exact(*number).as_bytes()),
                Value::Integer(number) => {
                    self.bytes.extend_from_slice(format_exact(*number as f64).as_bytes())
                }
                _ => return Err("Lua redis lib command arguments must be strings or integers"),
            }
            self.ends.push(self.bytes.len());
        }
        Ok(())
    }

    /// What they take while they are kept.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    pub(crate) fn with_slices<R>(&self, with: impl FnOnce(&[&[u8]]) -> R) -> R {
        let mut slices: SmallVec<[&[u8]; 16]> = SmallVec::new();
        let mut begin = 0;
        for &end in &self.ends {
            slices.push(&self.bytes[begin..end]);
            begin = end;
        }
        with(&slices)
    }
}
