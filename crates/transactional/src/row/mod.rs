//! A row: its words, its lock, and the flags that the algorithms keep for it.

mod array;
mod lock;
mod shape;
mod side;
mod status;
mod touched;

pub use array::{copy_row, RowArray};
pub use lock::{Mode, RowLock};
pub use shape::{Change, RowId, Shape, ShapeError};
pub use side::{RowSide, Side};
pub use status::{Parity, RowStatus, Taken};
pub use touched::RowTouched;
