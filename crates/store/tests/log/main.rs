//! The log of a store: what was acknowledged as durable is there after any crash, and nothing that never was. A failure is replayed with
//! `STILLFRAME_SEED=<seed>`; `STILLFRAME_SEQUENCES` sets how many sequences run.

#[path = "../stream/content.rs"]
mod content;
mod lives;
mod machine;
#[path = "../stream/ops.rs"]
mod ops;
mod starts;
