//! Writer and recovery over a simulated machine: crashes between any two operations, torn, lost and reordered blocks, stale ones
//! in segments that are used again, I/O errors, syncs that fail once, no space, damage.
//!
//! `STILLFRAME_SEQUENCES=n` says how many random programs are tried, `STILLFRAME_SEED=n` which is the first.

mod damage;
mod programs;
mod rewinding;
mod support;
mod waits;
