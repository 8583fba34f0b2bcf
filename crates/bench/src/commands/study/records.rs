//! What has been measured. Each measurement is kept as soon as it is done, so that a run that was ended can be gone on with.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::misses::MissRun;
use super::plan::Need;
use super::server::ServerRun;
use super::transactions::TransactionRun;
use crate::error::{Context, Result};
use crate::study::{Case, Outcome, Subject};

/// In the directory of a run.
pub const FILE: &str = "measured.jsonl";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum Record {
    Ticks { need: Need, outcome: Box<Outcome> },
    Server(ServerRun),
    Misses(MissRun),
    Transactions(TransactionRun),
    Failure { what: String, why: String },
}

pub struct Records {
    all: Vec<Record>,
    file: File,
}

impl Records {
    /// With those of an earlier run, which are copied.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn begin(dir: &Path, resumed: Option<&Path>) -> Result<Records> {
        let path = dir.join(FILE);
        let file = File::create_new(&path).context(|| format!("create {}", path.display()))?;
        let mut records = Records { all: Vec::new(), file };
        if let Some(earlier) = resumed {
            let path = earlier.join(FILE);
            let text = fs::read_to_string(&path).context(|| format!("read {}", path.display()))?;
            // The last line may have been cut off, and what failed is tried again.
            let read = text.lines().filter_map(|line| serde_json::from_str(line).ok());
            for record in read.filter(|record| !matches!(record, Record::Failure { .. })) {
                records.add(record)?;
            }
        }
        Ok(records)
    }

    pub fn add(&mut self, record: Record) -> Result<()> {
        if let Ok(mut line) = serde_json::to_string(&record) {
            line.push('\n');
            self.file.write_all(line.as_bytes()).context(|| format!("write {FILE}"))?;
        }
        self.all.push(record);
        Ok(())
    }

    pub fn all(&self) -> &[Record] {
        &self.all
    }

    pub fn outcome(&self, need: &Need) -> Option<&Outcome> {
        self.ticks().find(|(own, _)| *own == need).map(|(_, outcome)| outcome)
    }

    /// However it was kept.
    pub fn of_case(&self, case: &Case) -> Option<&Outcome> {
        self.ticks().find(|(need, _)| need.case == *case && !need.is_each_timed).map(|(_, outcome)| outcome)
    }

    /// Of all rounds that there are of a case.
    pub fn rounds_of<'r>(
        &'r self,
        case: &'r Case,
        is_each_timed: bool,
    ) -> impl Iterator<Item = &'r Outcome> + 'r {
        let is_it = move |need: &Need| {
            need.is_each_timed == is_each_timed && Case { round: case.round, ..need.case.clone() } == *case
        };
        // One that has no ticks left says nothing.
        let own = self.ticks().filter(move |(need, outcome)| is_it(need) && outcome.tick_count > 0);
        own.map(|(_, outcome)| outcome)
    }

    pub fn ticks(&self) -> impl Iterator<Item = (&Need, &Outcome)> {
        self.all.iter().filter_map(|record| match record {
            Record::Ticks { need, outcome } => Some((need, &**outcome)),
            _ => None,
        })
    }

    pub fn server(&self) -> impl Iterator<Item = &ServerRun> {
        self.all.iter().filter_map(|record| match record {
            Record::Server(run) => Some(run),
            _ => None,
        })
    }

    pub fn misses(&self) -> impl Iterator<Item = &MissRun> {
        self.all.iter().filter_map(|record| match record {
            Record::Misses(run) => Some(run),
            _ => None,
        })
    }

    pub fn transactions(&self) -> impl Iterator<Item = &TransactionRun> {
        self.all.iter().filter_map(|record| match record {
            Record::Transactions(run) => Some(run),
            _ => None,
        })
    }

    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all.iter().filter_map(|record| match record {
            Record::Failure { what, why } => Some((what.as_str(), why.as_str())),
            _ => None,
        })
    }

    pub fn misses_of(&self, subject: Subject) -> Option<&MissRun> {
        self.misses().find(|run| run.subject == subject)
    }
}
