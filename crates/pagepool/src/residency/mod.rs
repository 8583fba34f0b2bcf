//! Which pages take memory: the free ones that keep it, those of the page file that are brought in, and those that go when
//! there is not enough of it.

mod background;
mod clock;
mod damage;
mod desk;
mod evictor;
mod keeper;
mod loader;
mod room;
mod scrub;
mod stock;
mod stream;
mod supply;
mod turns;

pub use damage::DamagedPages;
pub use evictor::Evictor;
pub use keeper::Keeper;
pub use loader::Residency;
pub use room::Room;
pub use scrub::{ScrubReport, ScrubStats, Scrubbing, SCRUB_STEP_PAGES};
pub use stock::StockOptions;
pub use supply::Supply;
pub use turns::{Turn, Turns};
