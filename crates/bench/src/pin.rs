//! Which core runs what, and at which priority.
//!
//! The rule is the same for every peer. Threads that execute commands (the main thread, and threads whose name
//! says worker) run on the server's cores. Everything that saves (a fork child, background threads) runs on the
//! saver's cores at normal priority. The generator runs on its own cores, or above the saver on a shared one as
//! a real-time thread that sleeps between requests. So a latency shows the server, not the scheduler.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::Pid;
use rustix::thread::{gettid, sched_getaffinity, sched_setaffinity, CpuSet};

use crate::error::{BenchError, Context, Result};
use crate::procfs;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuPlan {
    pub server: Vec<usize>,
    pub generator: Vec<usize>,
    pub saver: Vec<usize>,
}

/// CPU lists as given on the command line; what is missing is chosen.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CpuArgs {
    /// Cores for the server's command threads, e.g. 1 or 1,2 [default: the second core]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub server_cpus: Option<Vec<usize>>,
    /// Cores for the load generator [default: the first core, or the third of at least four]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub generator_cpus: Option<Vec<usize>>,
    /// Cores for fork children and background threads [default: all cores the server's command threads and, if
    /// there are enough, the generator do not use]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub saver_cpus: Option<Vec<usize>>,
    /// Leave the placement of everything to the kernel
    #[arg(long)]
    pub no_pin: bool,
}

impl CpuArgs {
    /// The plan for this machine; `None` means nothing is pinned.
    pub fn plan(&self) -> Option<CpuPlan> {
        let all = allowed_cpus();
        if self.no_pin || all.len() < 2 {
            return None;
        }
        Some(self.plan_for(&all))
    }

    fn plan_for(&self, all: &[usize]) -> CpuPlan {
        let server = self.server_cpus.clone().unwrap_or_else(|| vec![all[1]]);
        let generator = self.generator_cpus.clone().unwrap_or_else(|| {
            let preferred = if all.len() >= 4 { all[2] } else { all[0] };
            let free = all.iter().copied().find(|c| !server.contains(c)).unwrap_or(all[0]);
            vec![if server.contains(&preferred) { free } else { preferred }]
        });
        let saver = self.saver_cpus.clone().unwrap_or_else(|| {
            let own: Vec<_> =
                all.iter().copied().filter(|c| !server.contains(c) && !generator.contains(c)).collect();
            if own.is_empty() {
                generator.clone()
            } else {
                own
            }
        });
        CpuPlan { server, generator, saver }
    }
}

impl CpuPlan {
    /// True if the saver and the generator have a core in common.
    pub fn generator_shares_core(&self) -> bool {
        self.generator.iter().any(|c| self.saver.contains(c) || self.server.contains(c))
    }

    /// Puts the server's command threads on their cores and everything else of it on the saver's.
    /// Threads and children come and go, so this is called again and again.
    pub fn apply_to_server(&self, root_pid: u32) {
        for pid in procfs::process_tree(root_pid) {
            for (tid, name) in procfs::threads(pid) {
                let executes_commands = pid == root_pid && (tid == pid || name.contains("worker"));
                let cpus = if executes_commands { &self.server } else { &self.saver };
                // The thread may have ended since it was listed.
                pin_process(tid, cpus);
            }
        }
    }

    pub fn line(&self) -> String {
        let shared = if self.generator_shares_core() { ", the generator above the saver" } else { "" };
        format!(
            "command threads on cpu {}, generator on cpu {}, fork children and background threads on cpu {}{shared}",
            list(&self.server),
            list(&self.generator),
            list(&self.saver)
        )
    }
}

pub fn list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

pub fn pin_current_thread(cpus: &[usize]) -> Result<()> {
    sched_setaffinity(None, &cpu_set(cpus)).context(|| {
        format!("pin to cpu {}: is it one of this machine's {}?", list(cpus), list(&allowed_cpus()))
    })
}

/// Puts a thread, or another process of one thread, on these cores. It may have ended already.
pub fn pin_process(pid: u32, cpus: &[usize]) {
    let _ = sched_setaffinity(Pid::from_raw(pid as i32), &cpu_set(cpus));
}

/// What the scheduler was persuaded to do for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    Fifo(u8),
    Nice(i32),
    Normal,
}

impl std::fmt::Display for Priority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fifo(p) => write!(f, "SCHED_FIFO {p}"),
            Self::Nice(n) => write!(f, "nice {n} (SCHED_FIFO needs root and chrt)"),
            Self::Normal => write!(f, "normal priority (raising it needs root)"),
        }
    }
}

/// Raises the calling thread to real time with `chrt`, else to nice -20, else leaves it.
pub fn raise_current_thread(fifo_priority: u8) -> Priority {
    let tid = gettid().as_raw_nonzero().to_string();
    let chrt = Command::new("chrt")
        .args(["--fifo", "--pid", &fifo_priority.to_string(), &tid])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if chrt.is_ok_and(|s| s.success()) {
        return Priority::Fifo(fifo_priority);
    }
    match rustix::process::setpriority_process(None, -20) {
        Ok(()) => Priority::Nice(-20),
        Err(_) => Priority::Normal,
    }
}

/// Runs `start` with the calling thread on `cpus`, so that what it spawns begins there.
pub fn started_on<T>(cpus: &[usize], start: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = sched_getaffinity(None).context(|| "read the CPU affinity".to_owned())?;
    pin_current_thread(cpus)?;
    let started = start();
    sched_setaffinity(None, &before).context(|| "restore the CPU affinity".to_owned())?;
    started
}

pub fn allowed_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).collect(),
        Err(_) => Vec::new(),
    }
}

/// The cores that this program was started on, whatever a thread has been pinned to since.
pub fn own_cpus() -> &'static [usize] {
    static OWN: OnceLock<Vec<usize>> = OnceLock::new();
    OWN.get_or_init(allowed_cpus)
}

fn cpu_set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|c| **c < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    set
}

/// Fails early and clearly when a list names a core that is not there.
pub fn check_plan(plan: &CpuPlan) -> Result<()> {
    let all = allowed_cpus();
    match [&plan.server, &plan.generator, &plan.saver].into_iter().flatten().find(|c| !all.contains(c)) {
        Some(cpu) => Err(BenchError::Failed(format!(
            "cpu {cpu} does not exist or is not allowed here; this process may use {}",
            list(&all)
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(cpu_count: usize) -> CpuPlan {
        CpuArgs::default().plan_for(&(0..cpu_count).collect::<Vec<_>>())
    }

    #[test]
    fn two_cores_share_the_generator_with_the_saver() {
        let p = plan(2);
        assert_eq!((p.server.clone(), p.generator.clone(), p.saver.clone()), (vec![1], vec![0], vec![0]));
        assert!(p.generator_shares_core());
    }

    #[test]
    fn four_cores_are_kept_apart() {
        let p = plan(4);
        assert_eq!((p.server.clone(), p.generator.clone(), p.saver.clone()), (vec![1], vec![2], vec![0, 3]));
        assert!(!p.generator_shares_core());
    }

    #[test]
    fn the_generator_avoids_a_server_core_that_was_given() {
        let args = CpuArgs { server_cpus: Some(vec![0]), ..CpuArgs::default() };
        assert_eq!(args.plan_for(&[0, 1]).generator, vec![1]);
    }
}
