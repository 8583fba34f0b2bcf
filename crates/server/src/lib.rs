//! The Redis-protocol server over `stillframe-store`.
//!
//! It is not a store: no page, latch or file format is known here.
#![forbid(unsafe_code)]
