//! `doctor`: would this process's next fork be deferred, and how much of its memory?
//!
//! To root the module says how the process would fork now, and since when its forks take the default path. To others, and
//! besides, what can be seen are the refusals counted so far, open files that come with pinned pages, and what kind of
//! memory there is.

use std::fs;

use serde_json::{json, Value};

use crate::abi::Statistics;
use crate::cgroup::{self, Hierarchy, Strategy};
use crate::error::{ForkError, Result};
use crate::explain::REFUSALS;
use crate::processes::{self, Asked, Processes, Refused};
use crate::root::Root;

const KB_PER_MB: u64 = 1024;
/// Below this the default fork takes about a millisecond and there is little to win.
const SMALL_KB: u64 = 64 * KB_PER_MB;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    Good,
    Notice,
    Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub grade: Grade,
    pub what: String,
    pub advice: Option<String>,
}

fn good(what: impl Into<String>) -> Check {
    Check { grade: Grade::Good, what: what.into(), advice: None }
}

fn notice(what: impl Into<String>, advice: impl Into<String>) -> Check {
    Check { grade: Grade::Notice, what: what.into(), advice: Some(advice.into()) }
}

fn problem(what: impl Into<String>, advice: impl Into<String>) -> Check {
    Check { grade: Grade::Problem, what: what.into(), advice: Some(advice.into()) }
}

/// # Errors
/// There is no such process.
pub fn examine(root: &Root, pid: i32) -> Result<Vec<Check>> {
    if !root.path(format!("/proc/{pid}")).is_dir() {
        return Err(ForkError::NoProcess { pid });
    }
    let mut checks = vec![module(root)];
    let statistics = root.statistics().ok();
    match processes::ask(root, pid) {
        Some(asked) => checks.extend(next_fork(&asked, pid)),
        None if root.is_module_loaded() => checks.push(setting(root, pid)),
        None => {}
    }
    checks.extend(Processes::read(root).and_then(|all| all.refused(pid).map(last_forks)));
    checks.extend(statistics.as_ref().map(refusals).unwrap_or_default());
    checks.extend(pinning_files(root, pid));
    checks.extend(memory(root, pid));
    checks.push(huge_page_setting(root));
    checks.extend(overcommit(root));
    Ok(checks)
}

pub fn worst(checks: &[Check]) -> Grade {
    checks.iter().map(|c| c.grade).max().unwrap_or(Grade::Good)
}

pub fn text(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let mark = match check.grade {
            Grade::Good => "ok     ",
            Grade::Notice => "notice ",
            Grade::Problem => "PROBLEM",
        };
        text.push_str(&format!("{mark} {}\n", check.what));
        if let Some(advice) = &check.advice {
            text.push_str(&format!("        -> {advice}\n"));
        }
    }
    text
}

pub fn json(checks: &[Check]) -> Value {
    let grade = |g: Grade| format!("{g:?}").to_lowercase();
    let all = checks.iter().map(|c| json!({"grade": grade(c.grade), "what": c.what, "advice": c.advice}));
    Value::Array(all.collect())
}

fn module(root: &Root) -> Check {
    if root.is_module_loaded() {
        return good("the module is loaded");
    }
    problem("the module is not loaded", "stillframe-fork load")
}

/// What the module says of the process itself.
fn next_fork(asked: &Asked, pid: i32) -> Vec<Check> {
    let source = if asked.is_own { "its own setting" } else { "its cgroup" };
    let mut checks = vec![match asked.strategy {
        Strategy::Default => problem(
            format!("{source} says default fork"),
            format!("stillframe-fork enable --pid {pid}, --unit or --cgroup"),
        ),
        strategy => good(format!("{source} says {strategy}")),
    }];
    if let Some(why) = asked.refusal.as_deref().filter(|_| asked.strategy != Strategy::Default) {
        let (meaning, advice) = processes::explained(why).map_or((why, ""), |r| (r.meaning, r.advice));
        checks.push(problem(format!("its next fork takes the default path all the same: {meaning}"), advice));
    }
    checks
}

fn last_forks(refused: &Refused) -> Check {
    let meaning = refused.explained().map_or(refused.why.as_str(), |r| r.meaning);
    let what = format!(
        "its last {} forks took the default path, since {} (the last one at {}): {meaning}",
        refused.fork_count,
        refused.since(),
        refused.last()
    );
    problem(what, refused.explained().map_or("", |r| r.advice))
}

fn setting(root: &Root, pid: i32) -> Check {
    let Some(directory) = Hierarchy::find(root).ok().and_then(|h| h.of_process(root, pid)) else {
        return notice("the process is in no memory cgroup", format!("stillframe-fork enable --pid {pid}"));
    };
    let name = directory.display();
    match cgroup::read(root, &directory) {
        Some(Strategy::Default) => notice(
            format!("its cgroup {name} says default fork"),
            format!(
                "stillframe-fork enable --cgroup {name}; no need if it was enabled with --pid, which the kernel does \
                 not show"
            ),
        ),
        Some(strategy) => good(format!("its cgroup {name} says {strategy}")),
        None => notice(
            format!("its cgroup {name} has no memory.async_fork (the root, or the memory controller is off)"),
            format!("stillframe-fork enable --pid {pid}, or --unit with MemoryAccounting=yes"),
        ),
    }
}

fn refusals(s: &Statistics) -> Vec<Check> {
    let taken = s.forks_async + s.forks_odf;
    let mut checks = Vec::new();
    if taken > 0 {
        checks.push(good(format!("{taken} forks were deferred since the module was loaded (all processes)")));
    } else if s.forks_refused.iter().all(|count| *count == 0) {
        checks.push(notice(
            "no fork was deferred since the module was loaded",
            "save once (BGSAVE), then run this again",
        ));
    }
    for (count, refusal) in s.forks_refused.iter().zip(&REFUSALS).filter(|(count, _)| **count > 0) {
        let what = format!("{count} forks of opted-in processes were refused: {}", refusal.meaning);
        checks.push(match taken {
            0 => problem(what, refusal.advice),
            _ => notice(what, refusal.advice),
        });
    }
    checks
}

/// Open files whose use pins pages or registers an mmu notifier.
fn pinning_files(root: &Root, pid: i32) -> Vec<Check> {
    let directory = format!("/proc/{pid}/fd");
    let target = |name: &String| fs::read_link(root.path(format!("{directory}/{name}"))).ok();
    let mut targets: Vec<_> =
        root.names(&directory).iter().filter_map(target).map(|t| t.to_string_lossy().into_owned()).collect();
    targets.sort();
    targets.dedup();
    let kinds = [
        (
            "io_uring",
            "registered buffers or direct I/O through it pin pages",
            "do not register buffers; use buffered I/O",
        ),
        ("infiniband", "RDMA memory regions pin pages", "its forks stay the kernel's own"),
        ("kvm-vm", "a virtual machine follows its page tables", "its forks stay the kernel's own"),
        ("/dev/nvidia", "a GPU may pin pages", "its forks stay the kernel's own"),
        ("vfio", "a device may access its memory", "its forks stay the kernel's own"),
    ];
    let mut checks = Vec::new();
    for (mark, meaning, advice) in kinds {
        if let Some(file) = targets.iter().find(|t| t.contains(mark)) {
            checks.push(notice(
                format!("it has {file} open: {meaning}; pinned pages mean default fork"),
                advice,
            ));
        }
    }
    checks
}

/// Kilobytes by what a fork does with them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub deferred_kb: u64,
    pub huge_kb: u64,
    pub file_kb: u64,
    /// In mappings that the module leaves to the default path: userfaultfd, same-page merging, devices.
    pub excluded_kb: u64,
}

/// From the text of `/proc/PID/smaps`.
pub fn sort_memory(smaps: &str) -> Memory {
    let mut memory = Memory::default();
    let (mut anonymous, mut huge, mut resident) = (0, 0, 0);
    for line in smaps.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let kilobytes = || value.split_whitespace().next().and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
        match name {
            "Rss" => resident = kilobytes(),
            "Anonymous" => anonymous = kilobytes(),
            "AnonHugePages" => huge = kilobytes(),
            "VmFlags" => {
                let excluding = ["um", "uw", "mg", "pf", "io", "mm", "ht"];
                if value.split_whitespace().any(|flag| excluding.contains(&flag)) {
                    memory.excluded_kb += resident;
                } else {
                    memory.huge_kb += huge;
                    memory.deferred_kb += anonymous.saturating_sub(huge);
                    memory.file_kb += resident.saturating_sub(anonymous);
                }
            }
            _ => {}
        }
    }
    memory
}

fn memory(root: &Root, pid: i32) -> Vec<Check> {
    let Some(smaps) = root.text(format!("/proc/{pid}/smaps")) else {
        return vec![notice("its memory map cannot be read", "run this as root")];
    };
    let memory = sort_memory(&smaps);
    let mb = |kb: u64| kb / KB_PER_MB;
    let mut checks = Vec::new();
    let mapped = format!(
        "{} MB in ordinary anonymous pages (deferred), {} MB of files and shared memory (not)",
        mb(memory.deferred_kb),
        mb(memory.file_kb)
    );
    checks.push(match memory.deferred_kb {
        kb if kb >= SMALL_KB => good(mapped),
        _ => notice(mapped, "at this size the default fork takes about a millisecond: nothing to win yet"),
    });
    if memory.huge_kb * 10 > memory.deferred_kb {
        checks.push(notice(
            format!("{} MB are in transparent huge pages (AnonHugePages)", mb(memory.huge_kb)),
            "fork copies them fast either way, but each first write after a fork copies 2 MB: turn them off for it",
        ));
    }
    if memory.excluded_kb > 0 {
        checks.push(notice(
            format!(
                "{} MB are mapped with userfaultfd, MADV_MERGEABLE or from a device",
                mb(memory.excluded_kb)
            ),
            "such mappings are copied by the parent as in the default fork",
        ));
    }
    checks
}

fn huge_page_setting(root: &Root) -> Check {
    let text = root.text("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if text.contains("[always]") {
        return notice(
            "transparent huge pages are set to always: latency and memory suffer after a fork (Redis warns as well)",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, at boot too; then restart the process",
        );
    }
    good("transparent huge pages are not forced on every process")
}

fn overcommit(root: &Root) -> Option<Check> {
    (root.text("/proc/sys/vm/overcommit_memory")? != "1").then(|| {
        notice(
            "vm.overcommit_memory is not 1: a fork of a large process may fail for lack of memory (Redis warns as well)",
            "sysctl vm.overcommit_memory=1, and in /etc/sysctl.conf",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_sorted_by_what_fork_does_with_it() {
        let area = |rss: u64, anonymous: u64, huge: u64, flags: &str| {
            format!(
                "7f00-7f01 rw-p 00000000 00:00 0 \nRss: {rss} kB\nAnonymous: {anonymous} kB\nAnonHugePages: {huge} kB\n\
                 VmFlags: rd wr {flags}\n"
            )
        };
        let smaps = area(1000, 1000, 0, "ac")
            + &area(4096, 4096, 2048, "ac hg")
            + &area(300, 20, 0, "mr")
            + &area(500, 500, 0, "um");
        let expected =
            Memory { deferred_kb: 1000 + 2048 + 20, huge_kb: 2048, file_kb: 280, excluded_kb: 500 };
        assert_eq!(sort_memory(&smaps), expected);
    }

    #[test]
    fn the_kernels_own_file_is_understood() {
        let memory = sort_memory(&std::fs::read_to_string("/proc/self/smaps").unwrap());
        assert!(memory.deferred_kb + memory.huge_kb > 100 && memory.file_kb > 100, "{memory:?}");
    }
}
