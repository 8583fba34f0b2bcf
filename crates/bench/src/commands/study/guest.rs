//! The process that measures one algorithm: reads a plan, prints an outcome. So its memory can be told from any other's.

use crate::error::Result;
use crate::guest;
use crate::study::{measure, Reply};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {}

pub fn run(_: &Args) -> Result<()> {
    let plan = guest::plan()?;
    let reply = match measure(&plan) {
        Ok(outcome) => Reply::Measured(Box::new(outcome)),
        Err(error) => Reply::Failed { why: error.to_string() },
    };
    guest::answer(&reply)
}
