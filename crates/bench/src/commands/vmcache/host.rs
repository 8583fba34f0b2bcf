//! Starts the processes that measure, each with its memory limit.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{fadvise, Advice};

use super::limit::MemoryGroup;
use super::plan::{Answer, Plan, Reply};
use crate::error::{BenchError, Result};
use crate::guest;

/// The hidden subcommand.
pub const GUEST: &str = "vmcache-guest";

/// Else the C library keeps heaps for each thread: caches of several threads then take twice their size, and more than there
/// is.
const ARENAS: (&str, &str) = ("MALLOC_ARENA_MAX", "2");

/// How memory is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// By a control group, and the stores' own settings.
    Group,
    /// By the stores' own settings only.
    Settings,
}

impl Limit {
    /// A control group where the machine allows one; else why not.
    pub fn best() -> (Limit, String) {
        let attempt = MemoryGroup::new(&group_name(), 1 << 30);
        match attempt {
            Ok(_) => (Limit::Group, "each system in a control group, its page cache included".to_owned()),
            Err(why) => (
                Limit::Settings,
                format!("by the systems' own settings ({why}): a page cache is not limited"),
            ),
        }
    }
}

fn group_name() -> String {
    format!("stillframe-bench-{}", std::process::id())
}

pub struct Outcome {
    pub answer: Answer,
    /// The most memory that it had, page cache included, where there is a control group.
    pub memory_peak_bytes: Option<u64>,
}

/// Has a plan carried out by a process that does not outlive this one.
///
/// # Errors
/// The process cannot be started or limited, or it says that it failed, or it was killed.
pub fn measure(plan: &Plan, limit: Limit) -> Result<Outcome> {
    forget_cached(&plan.dir);
    let group = match limit {
        Limit::Group => Some(MemoryGroup::new(&group_name(), plan.memory_bytes).map_err(BenchError::Failed)?),
        Limit::Settings => None,
    };
    let mut command = guest::command(GUEST)?;
    command.env(ARENAS.0, ARENAS.1);
    let reply = guest::ask(&mut command, plan, plan.system.name(), |pid| {
        group.as_ref().map_or(Ok(()), |group| group.add(pid)).map_err(BenchError::Failed)
    })?;
    let answer = match reply {
        Reply::Measured(answer) => answer,
        Reply::Failed { why } => return Err(BenchError::Failed(why)),
    };
    Ok(Outcome { answer, memory_peak_bytes: group.and_then(|group| group.peak_bytes()) })
}

/// Has the kernel forget what it has cached of files: pages that an earlier process paid for would be free for the next.
fn forget_cached(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            forget_cached(&path);
        } else if let Ok(file) = File::open(&path) {
            // Only clean pages are forgotten. A failure costs nothing but fairness to the others.
            let _ = file.sync_all();
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
    }
}
