//! What a transaction has written and the tree does not have yet.

use std::collections::BTreeMap;
use std::ops::Bound;

/// By key, the new value, or none for a key that is removed.
#[derive(Default)]
pub(super) struct Overlay {
    pub writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Overlay {
    /// Writes to keys from `lo` up to, not including, `hi`.
    pub fn between(
        &self,
        lo: &[u8],
        hi: Option<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>)> {
        let hi = hi.map_or(Bound::Unbounded, |hi| Bound::Excluded(hi.max(lo)));
        let writes = self.writes.range::<[u8], _>((Bound::Included(lo), hi));
        writes.map(|(key, value)| (&key[..], value.as_deref()))
    }
}
