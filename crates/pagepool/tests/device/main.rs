//! One contract for every device: what has been written is read, an operation fails alone and as its own, and nothing is
//! left under way.
//!
//! Each random test runs with a fixed seed and with a fresh one; replay a failure with `STILLFRAME_SEED=<seed>`.

mod contract;
mod errors;
mod exmap;
mod figures;
mod lent;
mod refused;
mod simulated;
mod streams;
mod support;
