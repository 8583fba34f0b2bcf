//! TPC-C on any store of [`crate::kv`]: the schema, the load, the five transactions in their standard mix, and the
//! consistency conditions. What is left out of the standard: terminals with their keying and think times, and the tests of
//! durability.

mod check;
mod driver;
mod generate;
mod random;
mod schema;
#[cfg(test)]
mod tests;
mod transactions;

pub use check::check;
pub use driver::{run, KindReport, Mix, MixReport};
pub use generate::load;
pub use schema::{Scale, TREES};
