//! Instructions: the server runs under callgrind, which counts while it is told to.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::count::callgrind::Profile;
use crate::count::server::{directory, run_tool, worker_threads, Plan};
use crate::error::{BenchError, Context, Result};
use crate::peer::{Peer, Server};

/// What threads did, with how many commands.
pub struct Counted {
    pub command_count: u64,
    pub workers: Vec<Profile>,
    /// Of all other threads.
    pub background_instructions: u64,
}

/// Counts a plan on a server that is started for it.
pub fn count(plan: &Plan, peer: &Peer, scratch: &Path) -> Result<Counted> {
    let dir = directory(scratch, "callgrind")?;
    let tool = Tool { prefix: dir.join("vgdb"), out: dir.join("out") };
    let server = plan.start(peer, &dir, tool.words())?;
    let command_count = plan.load(&server, |send| {
        tool.tell(&server, &["instrumentation", "on"])?;
        let command_count = send()?;
        tool.tell(&server, &["instrumentation", "off"])?;
        Ok(command_count)
    })?;
    // Before the threads end.
    let workers = tool.workers(&server)?;
    tool.tell(&server, &["dump"])?;
    let profiles = tool.profiles()?;
    server.stop_without_save()?;
    let _ = std::fs::remove_dir_all(&dir);
    let (workers, others): (Vec<_>, Vec<_>) =
        profiles.into_iter().partition(|profile| workers.contains(&profile.thread));
    check_shares(&workers, plan)?;
    let background_instructions = others.iter().map(|profile| profile.instructions).sum();
    Ok(Counted { command_count, workers, background_instructions })
}

/// Each worker has done its part, or what was counted is not what was meant.
fn check_shares(workers: &[Profile], plan: &Plan) -> Result<()> {
    let total: u64 = workers.iter().map(|profile| profile.instructions).sum();
    let has_part = |profile: &Profile| profile.instructions * plan.worker_count as u64 * 2 > total;
    match workers.len() == plan.worker_count && workers.iter().all(has_part) {
        true => Ok(()),
        false => Err(BenchError::Failed(format!(
            "of {} workers {} were counted, with {:?} instructions: commands were not spread over them",
            plan.worker_count,
            workers.len(),
            workers.iter().map(|profile| profile.instructions).collect::<Vec<_>>()
        ))),
    }
}

struct Tool {
    /// Of the pipes by which it is told.
    prefix: PathBuf,
    out: PathBuf,
}

impl Tool {
    fn words(&self) -> Vec<String> {
        let mut words =
            ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes"]
                .map(str::to_owned)
                .to_vec();
        words.extend(["--dump-instr=yes", "--compress-strings=no", "--compress-pos=no"].map(str::to_owned));
        words.push(format!("--vgdb-prefix={}", self.prefix.display()));
        words.push(format!("--callgrind-out-file={}", self.out.display()));
        words
    }

    fn tell(&self, server: &Server, words: &[&str]) -> Result<String> {
        let mut vgdb = Command::new("vgdb");
        vgdb.arg(format!("--vgdb-prefix={}", self.prefix.display())).arg(format!("--pid={}", server.pid()));
        let output = run_tool(vgdb.args(words))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// callgrind's numbers of the threads that execute commands.
    fn workers(&self, server: &Server) -> Result<Vec<u32>> {
        let said = self.tell(server, &["v.info", "scheduler"])?;
        let workers = worker_threads(server.pid());
        Ok(threads_of(&said).filter(|(_, tid)| workers.contains(tid)).map(|(number, _)| number).collect())
    }

    /// What was dumped: a file for each thread that has done anything.
    fn profiles(&self) -> Result<Vec<Profile>> {
        let dir = self.out.parent().unwrap_or(&self.out);
        let entries = std::fs::read_dir(dir).context(|| format!("read {}", dir.display()))?;
        let paths = entries.flatten().map(|entry| entry.path());
        let is_dump = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("out.1-"))
        };
        paths.filter(is_dump).map(|path| read(&path)).collect()
    }
}

fn read(path: &Path) -> Result<Profile> {
    let file = File::open(path).context(|| format!("read {}", path.display()))?;
    Profile::read(BufReader::new(file)).map_err(|error| BenchError::failed("read what was counted", error))
}

/// Threads by number and by the system's id.
fn threads_of(scheduler: &str) -> impl Iterator<Item = (u32, u32)> + '_ {
    scheduler.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("Thread ")?.split_once(": ")?;
        let (_, id) = rest.split_once("(lwpid ")?;
        Some((number.parse().ok()?, id.trim_end_matches(')').parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_found_by_both_numbers() {
        let said = "sched status:\n  running_tid=1\n\nThread 1: status = VgTs_Runnable (lwpid 25887)\n\
                    ==25887==    at 0x52F444F: clock_gettime (clock_gettime.c:69)\nclient stack range: [0x1 0x2]\n\n\
                    Thread 12: status = VgTs_WaitSys syscall 202 (lwpid 26083)\n";
        assert_eq!(threads_of(said).collect::<Vec<_>>(), [(1, 25887), (12, 26083)]);
    }

    #[test]
    fn a_worker_that_has_hardly_worked_is_an_error() {
        let plan = Plan {
            case: crate::count::cases::ALL[0],
            pipeline: 1,
            worker_count: 2,
            command_count: 1,
            share_of: 1,
        };
        let with = |instructions| Profile { instructions, ..Profile::default() };
        assert!(check_shares(&[with(100), with(120)], &plan).is_ok());
        assert!(check_shares(&[with(100), with(2)], &plan).is_err());
        assert!(check_shares(&[with(100)], &plan).is_err());
    }
}
