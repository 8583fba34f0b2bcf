//! What the suites share: a history of what was committed, and images that are held against it.
#![allow(dead_code)]

pub mod history;
pub mod images;
pub mod scenarios;

use stillframe_transactional::Probe;

/// A store without mistakes.
pub fn sound() -> Probe {
    Probe::default()
}
