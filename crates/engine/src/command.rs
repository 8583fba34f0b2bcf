//! What a command is: its row, the registry of rows, its errors. What it works with is further up, in `dispatch`.

mod error;
mod flags;
mod id;
pub mod operand;
mod registry;
mod row;
pub mod stream_id;
mod touch;

pub use error::{CmdError, CmdResult};
pub use flags::{acl, flag, key_flag};
pub use id::CommandId;
pub use registry::{Found, Registry};
pub use row::{Begin, Find, Group, KeySpec, Row};
pub use touch::Touch;
