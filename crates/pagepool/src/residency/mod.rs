//! Which pages take memory: the free ones that keep it, and those of the page file that are brought in.

mod damage;
mod loader;
mod scrub;
mod stock;
mod supply;

pub use damage::DamagedPages;
pub use loader::Residency;
pub use scrub::{ScrubReport, ScrubStats, Scrubbing, SCRUB_STEP_PAGES};
pub use supply::Supply;
