//! Who hears of what changes in the store.

use std::sync::Arc;

use stillframe_store::{Effect, Listener};

use crate::state::notify::Notifier;
use crate::state::waiting::Waiters;
use crate::state::watch::WatchTable;

/// The server's one listener.
pub struct Changes {
    pub watches: Arc<WatchTable>,
    pub notifier: Arc<Notifier>,
    pub waiters: Arc<Waiters>,
}

impl Listener for Changes {
    #[inline]
    fn announce(&self, effect: &Effect<'_>) {
        self.watches.announce(effect);
        self.notifier.hear(effect);
        self.waiters.hear(effect);
    }
}
