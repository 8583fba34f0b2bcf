//! What a library has registered.

use mlua::Function;
use stillframe_script_header::Flags;

/// A function of a library, as it was registered.
#[derive(Clone, Debug)]
pub struct LibraryFunction {
    pub name: String,
    pub description: Option<Vec<u8>>,
    pub flags: Flags,
    pub(crate) callback: Function,
}

/// What has been registered so far.
#[derive(Default)]
pub(crate) struct Loading {
    pub(crate) functions: Vec<LibraryFunction>,
}
