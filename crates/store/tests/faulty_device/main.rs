//! The store on a device that fails: what was saved is there, whatever happens, and what was not written is never
//! served. Replay a failure with `STILLFRAME_SEED=<seed>`; `STILLFRAME_SEEDS` says how many from that one on where there are
//! several.

mod collections;
#[path = "../collections/model/mod.rs"]
mod collections_model;
mod crashes;
mod damage;
mod lost;
mod model;
mod together;
