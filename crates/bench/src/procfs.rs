//! What `/proc` says about a server: its processes, threads, memory and CPU time.
//!
//! A process that vanishes between two reads is normal here (a fork child ends), so a missing file is zero
//! or empty, not an error.

use std::fs;

/// The process and all its descendants.
pub fn process_tree(root_pid: u32) -> Vec<u32> {
    let mut tree = vec![root_pid];
    let mut next = 0;
    while next < tree.len() {
        let pid = tree[next];
        next += 1;
        for (tid, _) in threads(pid) {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
            tree.extend(children.split_whitespace().filter_map(|c| c.parse::<u32>().ok()));
        }
    }
    tree
}

/// Thread ids with their names.
pub fn threads(pid: u32) -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
        .map(|tid| {
            let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
            (tid, name.trim().to_owned())
        })
        .collect()
}

/// Resident memory as the kernel's counters have it: cheap (no page table is walked), but a page that a parent
/// and its fork child share is counted in both.
pub fn rss_bytes(pid: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|f| f.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Resident memory by the same counters, and the most that a process ever had. Slower to read, and it takes no page size.
pub fn rss_and_peak_bytes(pid: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kilobytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    (kilobytes("VmRSS:") * 1024, kilobytes("VmHWM:") * 1024)
}

/// Proportional set size: a page shared by k processes counts 1/k in each, so the sum over a process tree
/// counts every page once. Walks the page tables: about 10 ms a GiB.
pub fn pss_bytes(pid: u32) -> u64 {
    rollup_bytes(pid, &["Pss:"])
}

/// Pages that no other process maps. Walks the page tables.
pub fn private_bytes(pid: u32) -> u64 {
    rollup_bytes(pid, &["Private_Clean:", "Private_Dirty:", "Private_Hugetlb:"])
}

fn rollup_bytes(pid: u32, fields: &[&str]) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kilobytes = |field: &&str| {
        let rest = rollup.lines().find_map(|l| l.strip_prefix(field))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    fields.iter().filter_map(kilobytes).sum::<u64>() * 1024
}

/// Fields of a `stat` file from the third, the state, on.
fn stat_fields(path: &str) -> Vec<String> {
    let stat = fs::read_to_string(path).unwrap_or_default();
    // The command name may hold spaces and parentheses; fields are counted from its end.
    let Some((_, fields)) = stat.rsplit_once(')') else { return Vec::new() };
    fields.split_whitespace().map(str::to_owned).collect()
}

/// Whether all threads of a process are stopped, by a signal or a tracer.
pub fn is_stopped(pid: u32) -> bool {
    let states =
        threads(pid).into_iter().map(|(tid, _)| stat_fields(&format!("/proc/{pid}/task/{tid}/stat")));
    states.into_iter().all(|fields| fields.first().is_none_or(|state| matches!(state.as_str(), "T" | "t")))
}

/// Page faults of a thread since its start, those that waited for a disk and those that did not.
pub fn page_faults(pid: u32, tid: u32) -> u64 {
    let fields = stat_fields(&format!("/proc/{pid}/task/{tid}/stat"));
    [7, 9].into_iter().filter_map(|at: usize| fields.get(at)?.parse::<u64>().ok()).sum()
}

/// Whether another process traces this thread.
pub fn is_traced(pid: u32, tid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() != "0")
}

/// User and system time of all threads of a process, in nanoseconds (clock ticks of 10 ms as a rule).
pub fn cpu_time_ns(pid: u32) -> u64 {
    let fields = stat_fields(&format!("/proc/{pid}/stat"));
    let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
    ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_this_process() {
        let me = std::process::id();
        assert!(process_tree(me).contains(&me));
        let (rss, peak) = rss_and_peak_bytes(me);
        assert!(rss_bytes(me) > 100 * 1024 && rss > 100 * 1024 && peak >= rss);
        assert!(pss_bytes(me) > 100 * 1024 && private_bytes(me) > 10 * 1024);
        assert!(threads(me).iter().any(|(tid, _)| *tid == me));
        assert!(page_faults(me, me) > 100 && !is_stopped(me) && !is_traced(me, me));
    }
}
