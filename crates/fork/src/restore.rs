//! What is enabled outlives an `unload` and the next `load`: an upgrade of the module, a live patch. Only until the next
//! boot, and only for the very cgroups and processes that it was set for.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::abi::{Control, StrategyCode};
use crate::cgroup::{self, Hierarchy, Strategy};
use crate::error::{ForkError, Result};
use crate::processes::Processes;
use crate::root::Root;

/// Gone after a boot, as what it is about.
const KEPT: &str = "/run/stillframe-fork/enabled";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    /// A directory's inode is that of one cgroup only, whatever is made later under its name.
    Cgroup { inode: u64, strategy: Strategy, directory: PathBuf },
    /// Two processes of one number do not begin at the same time.
    Process { start_ticks: u64, pid: i32, strategy: Strategy },
}

impl Kept {
    fn line(&self) -> String {
        match self {
            Self::Cgroup { inode, strategy, directory } => {
                format!("cgroup {inode} {} {}\n", strategy.file_text(), directory.display())
            }
            Self::Process { start_ticks, pid, strategy } => {
                format!("process {start_ticks} {} {pid}\n", strategy.file_text())
            }
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let (kind, identity) = (words.next()?, words.next()?.parse().ok()?);
        let (strategy, name) = (Strategy::parse(words.next()?)?, words.next()?);
        match kind {
            "cgroup" => Some(Self::Cgroup { inode: identity, strategy, directory: name.into() }),
            "process" => Some(Self::Process { start_ticks: identity, pid: name.parse().ok()?, strategy }),
            _ => None,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Cgroup { directory, .. } => directory.display().to_string(),
            Self::Process { pid, .. } => format!("process {pid}"),
        }
    }
}

/// What became of what was kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub enabled: Vec<String>,
    /// Cgroups and processes that have ended.
    pub gone_count: usize,
    pub failed: Vec<String>,
}

/// Writes down what is enabled now, before the module goes; returns of how many cgroups and processes.
///
/// # Errors
/// The file cannot be written.
pub fn keep(root: &Root) -> Result<usize> {
    let mut kept = Vec::new();
    if let Ok(hierarchy) = Hierarchy::find(root) {
        cgroups_below(root, &hierarchy.mount, &mut kept);
    }
    for setting in Processes::read(root).unwrap_or_default().settings {
        if let Some(start_ticks) = start_ticks(root, setting.pid) {
            kept.push(Kept::Process { start_ticks, pid: setting.pid, strategy: setting.strategy });
        }
    }
    if kept.is_empty() {
        forget(root);
        return Ok(0);
    }
    let path = root.path(KEPT);
    let text: String = kept.iter().map(Kept::line).collect();
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(&path, text)).map_err(|e| ForkError::io(format!("write {KEPT}"), e))?;
    Ok(kept.len())
}

/// Nothing is enabled again by the next load.
pub fn forget(root: &Root) {
    let _ = fs::remove_file(root.path(KEPT));
}

/// Enables again what [`keep`] wrote down, once.
pub fn restore(root: &Root) -> Restored {
    let mut restored = Restored::default();
    let Some(text) = root.text(KEPT) else { return restored };
    for kept in text.lines().filter_map(Kept::parse) {
        match set(root, &kept) {
            Some(Ok(())) => restored.enabled.push(kept.name()),
            Some(Err(why)) => restored.failed.push(format!("{}: {why}", kept.name())),
            None => restored.gone_count += 1,
        }
    }
    forget(root);
    restored
}

/// Nothing: it is not there any more.
fn set(root: &Root, kept: &Kept) -> Option<Result<()>> {
    match kept {
        Kept::Cgroup { inode, strategy, directory } => {
            if inode_of(root, directory) != Some(*inode) {
                return None;
            }
            let set = |hierarchy: Hierarchy| cgroup::write(root, &hierarchy, directory, *strategy).map(drop);
            Some(Hierarchy::find(root).and_then(set))
        }
        Kept::Process { start_ticks: began, pid, strategy } => {
            if start_ticks(root, *pid) != Some(*began) {
                return None;
            }
            let (strategy, copy_threads) = match strategy {
                Strategy::Default => (StrategyCode::Default, 0),
                Strategy::Async { copy_threads } => (StrategyCode::Async, *copy_threads),
                Strategy::Odf => (StrategyCode::Odf, 0),
            };
            Some(root.set_strategy(Control { pid: *pid, strategy, copy_threads }))
        }
    }
}

fn cgroups_below(root: &Root, directory: &Path, kept: &mut Vec<Kept>) {
    if let Some(strategy) = cgroup::read(root, directory).filter(|s| *s != Strategy::Default) {
        if let Some(inode) = inode_of(root, directory) {
            kept.push(Kept::Cgroup { inode, strategy, directory: directory.to_owned() });
        }
    }
    let entries = fs::read_dir(root.path(directory)).into_iter().flatten().flatten();
    // A name with a line break could be read as another line: the owner of a cgroup chooses the names below it.
    let may_be_kept = |name: &OsStr| !name.as_bytes().contains(&b'\n');
    let directories = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    for entry in directories.filter(|e| may_be_kept(&e.file_name())) {
        cgroups_below(root, &directory.join(entry.file_name()), kept);
    }
}

fn inode_of(root: &Root, directory: &Path) -> Option<u64> {
    Some(fs::metadata(root.path(directory)).ok()?.ino())
}

/// When the process began, in ticks since the boot: the 22nd field, the 20th behind the name, which ends with the last ')'.
fn start_ticks(root: &Root, pid: i32) -> Option<u64> {
    let text = root.text(format!("/proc/{pid}/stat"))?;
    text.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_it_was() {
        let threads = Strategy::Async { copy_threads: 4 };
        for kept in [
            Kept::Cgroup { inode: 77, strategy: threads, directory: "/sys/fs/cgroup/a b".into() },
            Kept::Process { start_ticks: 5, pid: 6, strategy: Strategy::Odf },
            Kept::Process { start_ticks: 5, pid: 6, strategy: Strategy::Default },
        ] {
            assert_eq!(Kept::parse(kept.line().trim_end()), Some(kept));
        }
        assert_eq!(Kept::parse("cgroup x 1 /a"), None);
    }

    #[test]
    fn a_process_began_when_the_kernel_says() {
        let root = Root::new("/");
        let own = std::process::id() as i32;
        assert!(start_ticks(&root, own).unwrap() > 0);
        assert_eq!(start_ticks(&root, 0), None);
    }
}
