//! System calls and page faults: the server runs by itself, and strace counts what its workers call.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{kill_process, Pid, Signal};

use crate::count::server::{directory, no_tool, wait_until, worker_threads, Plan};
use crate::error::{BenchError, Context, Result};
use crate::peer::Peer;
use crate::procfs;

/// What the workers did, with how many commands.
#[derive(Clone, Debug)]
pub struct Counted {
    pub command_count: u64,
    pub system_calls: u64,
    pub page_faults: u64,
}

/// Counts a plan on a server that is started for it.
pub fn count(plan: &Plan, peer: &Peer, scratch: &Path) -> Result<Counted> {
    let dir = directory(scratch, "native")?;
    let summary = dir.join("strace");
    let server = plan.start(peer, &dir, Vec::new())?;
    let (command_count, page_faults) = plan.load(&server, |send| {
        // A worker has its name only once it runs, which may be after the first has answered.
        let workers = worker_threads(server.pid());
        if workers.len() != plan.worker_count {
            let (is, expected) = (workers.len(), plan.worker_count);
            return Err(BenchError::Failed(format!(
                "{is} of {expected} workers were found in {}",
                server.name
            )));
        }
        let faults = || workers.iter().map(|tid| procfs::page_faults(server.pid(), *tid)).sum::<u64>();
        let tracer = Tracer::attach(server.pid(), &workers, &summary)?;
        let before = faults();
        let command_count = send()?;
        let page_faults = faults() - before;
        tracer.detach()?;
        Ok((command_count, page_faults))
    })?;
    let text = std::fs::read_to_string(&summary).context(|| "read what strace counted".to_owned())?;
    let system_calls = calls_in(&text)
        .ok_or_else(|| BenchError::Failed(format!("strace's summary is not understood:\n{text}")))?;
    server.stop_without_save()?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(Counted { command_count, system_calls, page_faults })
}

struct Tracer(Child);

impl Tracer {
    fn attach(pid: u32, threads: &[u32], summary: &Path) -> Result<Tracer> {
        let mut strace = Command::new("strace");
        strace.args(["-c", "-q", "-o"]).arg(summary);
        for tid in threads {
            strace.args(["-p", &tid.to_string()]);
        }
        strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let tracer = Tracer(strace.spawn().map_err(|_| no_tool("strace"))?);
        let is_attached = || threads.iter().all(|tid| procfs::is_traced(pid, *tid));
        wait_until("strace has attached itself to the server; may it?", is_attached)?;
        Ok(tracer)
    }

    /// Ends it, so that it writes its summary.
    fn detach(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::INT).context(|| "end strace".to_owned())?;
        self.0.wait().context(|| "wait for strace".to_owned())?;
        Ok(())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // It has ended, but after an error.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The sum of the column of calls.
fn calls_in(summary: &str) -> Option<u64> {
    let total = summary.lines().rfind(|line| line.trim_end().ends_with(" total"))?;
    // Share, seconds, microseconds a call (not in all versions), calls, errors (if any), name.
    let header = summary.lines().find(|line| line.contains("syscall"))?;
    let column = header.split_whitespace().collect::<Vec<_>>();
    let at = column.iter().position(|name| *name == "calls")? - usize::from(column[0] == "%");
    total.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_calls_is_found() {
        let summary = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.00    0.000610           1       510           sendto
 39.00    0.000390           0      1020        10 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.001000           0      1530        10 total
";
        assert_eq!(calls_in(summary), Some(1530));
        assert_eq!(calls_in(""), None);
    }
}
