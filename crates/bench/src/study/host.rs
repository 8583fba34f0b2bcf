//! Has measurements done, each by a process of its own.

use std::path::PathBuf;
use std::process::Command;

use super::case::{Case, Outcome, Plan, Reply, Ticks, Work};
use crate::error::{BenchError, Result};
use crate::guest;
use crate::pin::CpuPlan;
use crate::stops;

/// The hidden subcommand.
pub const GUEST: &str = "study-guest";

/// Where and how measurements are done.
pub struct Host {
    pub dir: PathBuf,
    pub cpus: Option<CpuPlan>,
    pub budget_bytes: u64,
    pub seed: u64,
}

impl Host {
    pub fn plan(&self, case: Case, work: Work) -> Plan {
        let cpus =
            |of: fn(&CpuPlan) -> &Vec<usize>| self.cpus.as_ref().map_or(Vec::new(), |plan| of(plan).clone());
        Plan {
            work,
            // Whatever is varied, two algorithms see the same updates.
            seed: self.seed.wrapping_add(u64::from(case.round)),
            case,
            budget_bytes: self.budget_bytes,
            dir: self.dir.join("image"),
            client_cpus: cpus(|plan| &plan.server),
            saver_cpus: cpus(|plan| &plan.saver),
        }
    }

    /// # Errors
    /// The process could not do it.
    pub fn measure(&self, case: &Case, ticks: Ticks) -> Result<Outcome> {
        let plan = self.plan(case.clone(), Work::Ticks(ticks));
        self.ask(&mut guest::command(GUEST)?, &plan)
    }

    /// The command is this program's, maybe below another one.
    pub fn ask(&self, command: &mut Command, plan: &Plan) -> Result<Outcome> {
        let reply = guest::ask(command, plan, plan.case.subject.name(), |_| Ok(()));
        // Images are as large as the data.
        let _ = std::fs::remove_dir_all(&plan.dir);
        match reply? {
            Reply::Measured(outcome) => {
                stops::note(outcome.stop_count, outcome.stopped_ns, outcome.stopped_tick_count as u64);
                Ok(*outcome)
            }
            Reply::Failed { why } => Err(BenchError::Failed(why)),
        }
    }
}
