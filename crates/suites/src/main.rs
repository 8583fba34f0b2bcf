//! `stillframe-suites`: runs the tests of a tier part by part, two at a time, with the time of each.
//!
//! A part is one test program, built once by cargo, or one command. `make quick`, `make test` and `make test-all` call it.
#![forbid(unsafe_code)]

mod built;
mod part;
mod plan;
mod run;
mod share;

use std::process::ExitCode;

use clap::Parser;

use crate::plan::Tier;
use crate::share::Share;

#[derive(Parser)]
#[command(name = "stillframe-suites", about, max_term_width = 110)]
/// Runs the tests of a tier part by part, and says how long each took. Exits with 1 if one failed.
struct Cli {
    /// quick: units and what checks the tree. ordinary: all suites on the default backend. rest: everything else
    tier: Tier,
    /// Of the long parts of `rest`, the share of this commit, such as 1/4; different commits have different shares
    #[arg(long, value_name = "1/N")]
    share: Option<Share>,
    /// Only parts with this in their names
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Parts that run at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    jobs: usize,
    /// Name the parts, and run none
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match chosen(&cli) {
        Ok(parts) if cli.list => {
            parts.iter().for_each(|part| println!("{}", part.name));
            ExitCode::SUCCESS
        }
        Ok(parts) if parts.is_empty() => {
            eprintln!("stillframe-suites: no part has such a name; --list names them");
            ExitCode::from(2)
        }
        Ok(parts) => run::run_all(parts, cli.jobs.max(1)),
        Err(error) => {
            eprintln!("stillframe-suites: {error}");
            ExitCode::from(2)
        }
    }
}

/// The parts to run: those of the tier, of them the share, of them the ones that are named.
fn chosen(cli: &Cli) -> Result<Vec<part::Part>, String> {
    let suites = built::test_programs()?;
    let mut parts = plan::parts(cli.tier, &suites);
    if let Some(share) = &cli.share {
        parts = share.of(parts)?;
    }
    parts.retain(|part| cli.only.is_empty() || cli.only.iter().any(|text| part.name.contains(text)));
    Ok(parts)
}
