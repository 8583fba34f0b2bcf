//! What this program and the loaded module have to agree on.

pub const MODULE: &str = "async_fork";
pub const VERSION: u32 = 1;
pub const STATISTICS_BYTES: usize = 920;
