//! What is counted of a command, and how far it may grow.

use std::collections::HashMap;

use serde_json::{json, Value};

use crate::count::callgrind::Profile;
use crate::count::locked::Locked;
use crate::count::server::Plan;
use crate::count::{native, valgrind};
use crate::error::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// In user mode, of the threads that execute commands.
    Instructions,
    /// Those of them that lock a line of the cache.
    Locked,
    Allocations,
    Frees,
    SystemCalls,
    PageFaults,
    /// Source files of the project that have a part in it.
    Files,
}

impl Figure {
    pub const ALL: [Figure; 7] = [
        Figure::Instructions,
        Figure::Locked,
        Figure::Allocations,
        Figure::Frees,
        Figure::SystemCalls,
        Figure::PageFaults,
        Figure::Files,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Figure::Instructions => "instructions",
            Figure::Locked => "locked",
            Figure::Allocations => "allocations",
            Figure::Frees => "frees",
            Figure::SystemCalls => "system calls",
            Figure::PageFaults => "page faults",
            Figure::Files => "files",
        }
    }

    fn digits(self) -> i32 {
        match self {
            Figure::Files => 0,
            Figure::Instructions => 1,
            _ => 3,
        }
    }

    /// As it is kept and shown.
    pub fn rounded(self, value: f64) -> f64 {
        let unit = 10f64.powi(self.digits());
        (value * unit).round() / unit
    }

    pub fn text(self, value: f64) -> String {
        format!("{value:.*}", self.digits() as usize)
    }

    /// How much more than `old` it may be: a share, and beside it what a few calls more among thousands of commands are.
    pub fn bound(self, old: f64, worker_count: usize) -> f64 {
        let share = if worker_count == 1 { 1.01 } else { 1.05 };
        old * share + self.slack()
    }

    fn slack(self) -> f64 {
        match self {
            Figure::Instructions | Figure::Files => 0.0,
            Figure::Locked => 0.05,
            Figure::Allocations | Figure::Frees | Figure::SystemCalls => 0.02,
            // The kernel's doing in part: how it gives memory depends on what else there is.
            Figure::PageFaults => 0.1,
        }
    }
}

/// Of one command.
#[derive(Clone, Debug)]
pub struct Counts {
    values: [f64; Figure::ALL.len()],
    /// Of threads that execute no commands; their work is done at times of their own, and varies.
    pub background_instructions: f64,
    /// Those of the project that [`Figure::Files`] counts, with the instructions in each, most first.
    pub files: Vec<(String, f64)>,
}

const ALLOCATIONS: [&str; 6] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"];
/// jemalloc's and the standard ones.
const FREES: [&str; 3] = ["free", "cfree", "sdallocx"];

impl Counts {
    pub fn of(under: &valgrind::Counted, alone: &native::Counted, locked: &mut Locked) -> Result<Counts> {
        let workers = &under.workers;
        let sum = |of: &dyn Fn(&Profile) -> u64| workers.iter().map(of).sum::<u64>();
        let each = |count: u64| count as f64 / under.command_count as f64;
        let mut locked_count = 0;
        for profile in workers {
            locked_count += locked.count(profile)?;
        }
        let files = project_files(workers, under.command_count);
        let value = |figure| match figure {
            Figure::Instructions => each(sum(&|profile| profile.instructions)),
            Figure::Locked => each(locked_count),
            Figure::Allocations => each(sum(&|profile| profile.calls_of(&ALLOCATIONS))),
            Figure::Frees => each(sum(&|profile| profile.calls_of(&FREES))),
            Figure::SystemCalls => alone.system_calls as f64 / alone.command_count as f64,
            Figure::PageFaults => alone.page_faults as f64 / alone.command_count as f64,
            Figure::Files => files.len() as f64,
        };
        let values = Figure::ALL.map(|figure: Figure| figure.rounded(value(figure)));
        Ok(Counts { values, background_instructions: each(under.background_instructions), files })
    }

    /// All alike, for tests.
    #[cfg(test)]
    pub fn all(value: f64) -> Counts {
        Counts { values: [value; Figure::ALL.len()], background_instructions: 0.0, files: Vec::new() }
    }

    pub fn get(&self, figure: Figure) -> f64 {
        self.values[figure as usize]
    }

    pub fn json(&self, peer: &str, plan: &Plan) -> Value {
        let mut object = json!({
            "peer": peer,
            "command": plan.case.name,
            "pipeline": plan.pipeline,
            "workers": plan.worker_count,
            "background_instructions": self.background_instructions.round(),
        });
        for figure in Figure::ALL {
            object[figure.name().replace(' ', "_")] = json!(self.get(figure));
        }
        let in_files = self.files.iter().map(|(file, count)| (file.clone(), json!(count.round())));
        object["instructions_in"] = in_files.collect::<serde_json::Map<_, _>>().into();
        object
    }
}

/// Source files of this project's crates that cost an instruction a command or more: what is done by the clock is left out.
fn project_files(workers: &[Profile], command_count: u64) -> Vec<(String, f64)> {
    let mut costs: HashMap<&str, u64> = HashMap::new();
    for (path, cost) in workers.iter().flat_map(|profile| &profile.by_file) {
        if let Some(file) = project_file(path) {
            *costs.entry(file).or_default() += cost;
        }
    }
    let mut files: Vec<_> = costs.into_iter().filter(|(_, cost)| *cost >= command_count).collect();
    files.sort_by_key(|&(file, cost)| (std::cmp::Reverse(cost), file));
    let each = |cost: u64| cost as f64 / command_count as f64;
    files.into_iter().map(|(file, cost)| (file.to_owned(), each(cost))).collect()
}

/// The path from the root of this project's tree, unless the file is a library's or the compiler's.
fn project_file(path: &str) -> Option<&str> {
    let is_foreign =
        path.contains("/registry/src/") || path.contains("/rustc/") || path.contains("/git/checkouts/");
    let at = path.find("crates/").filter(|_| !is_foreign)?;
    path[at..].split('/').nth(2).filter(|dir| *dir == "src").map(|_| &path[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_the_projects_own() {
        let files = [
            ("/home/a/stillframe/crates/store/src/key.rs", Some("crates/store/src/key.rs")),
            ("crates/server/src/event_loop/batch.rs", Some("crates/server/src/event_loop/batch.rs")),
            ("/home/a/.cargo/registry/src/index.crates.io-1/smallvec-1.1.1/src/lib.rs", None),
            ("/home/a/.cargo/registry/src/index.crates.io-1/x-1/crates/y/src/lib.rs", None),
            ("/rustc/59807616e/library/core/src/slice/mod.rs", None),
            ("./malloc/malloc.c", None),
            ("???", None),
        ];
        for (path, file) in files {
            assert_eq!(project_file(path), file);
        }
    }

    #[test]
    fn what_is_done_now_and_then_is_not_a_part_of_a_command() {
        let costs =
            [("crates/a/src/often.rs", 900), ("crates/a/src/once.rs", 99), ("crates/a/src/all.rs", 1000)];
        let by_file = costs.map(|(path, cost)| (path.to_owned(), cost)).into();
        let profile = Profile { by_file, ..Profile::default() };
        let parts = [("crates/a/src/all.rs", 10.0), ("crates/a/src/often.rs", 9.0)];
        assert_eq!(project_files(&[profile], 100), parts.map(|(file, count)| (file.to_owned(), count)));
    }

    #[test]
    fn figures_may_grow_by_a_hundredth() {
        assert!(
            Figure::Instructions.bound(3000.0, 1) >= 3030.0 && Figure::Instructions.bound(3000.0, 1) < 3031.0
        );
        assert!(
            Figure::Instructions.bound(3000.0, 2) >= 3150.0 && Figure::Instructions.bound(3000.0, 2) < 3151.0
        );
        assert!(Figure::Allocations.bound(0.0, 1) > 0.01 && Figure::Allocations.bound(0.0, 1) < 0.5);
    }
}
