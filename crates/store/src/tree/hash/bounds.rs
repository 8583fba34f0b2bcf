//! Lower bounds above values that others change: a tree of minima which may be too low for a while, never too high.
//!
//! Whoever lowers a value lowers the bounds above it afterwards; whoever raises a bound first opens it, then looks at
//! the values. Of the two fences between, one comes first: either the raiser sees the lower value, or its owner sees the
//! open bound. Both then go on to the bounds above, so the same holds there.

use crate::sync::atomic::{fence, AtomicU32, Ordering};

/// Above nothing.
pub(crate) const OPEN: u32 = u32::MAX;

/// The caller has stored `value` below the first of `bounds`, each of which is below the next.
pub(crate) fn lower(bounds: &[&AtomicU32], value: u32) {
    for bound in bounds {
        fence(Ordering::SeqCst);
        if bound.load(Ordering::Relaxed) > value {
            bound.fetch_min(value, Ordering::Relaxed);
        }
    }
}

/// Makes the first of `bounds` the least of the values below it.
pub(crate) fn raise(bounds: &[&AtomicU32], values: impl Iterator<Item = u32>) {
    let Some((bound, above)) = bounds.split_first() else { return };
    bound.swap(OPEN, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let least = values.min().unwrap_or(OPEN);
    bound.fetch_min(least, Ordering::Relaxed);
    // Somebody may have raised them while this one was open.
    lower(above, least);
}
