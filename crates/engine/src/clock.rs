//! The clock that deadlines and log lines go by.

use std::time::{SystemTime, UNIX_EPOCH};

use stillframe_store::UnixMillis;

/// Milliseconds since the Unix epoch.
pub fn unix_ms() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis::try_from(since.as_millis()).unwrap_or(UnixMillis::MAX)
}
