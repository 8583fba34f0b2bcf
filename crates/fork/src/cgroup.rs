//! `memory.async_fork` of a memory cgroup, in the unified (v2) and in the legacy (v1) hierarchy.

use std::fs;
use std::path::{Path, PathBuf};

use crate::abi::{CGROUP_FILE, THREADS_MAX};
use crate::error::{ForkError, Result};
use crate::root::Root;

/// How a process forks; what is written to `memory.async_fork`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Default,
    Async { copy_threads: u32 },
    Odf,
}

impl Strategy {
    pub fn file_text(self) -> String {
        match self {
            Self::Default => "0".to_owned(),
            Self::Async { copy_threads } => copy_threads.to_string(),
            Self::Odf => "odf".to_owned(),
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "odf" => Some(Self::Odf),
            number => match number.parse().ok()? {
                0 => Some(Self::Default),
                copy_threads if copy_threads <= THREADS_MAX => Some(Self::Async { copy_threads }),
                _ => None,
            },
        }
    }
}

impl std::fmt::Display for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default fork"),
            Self::Async { copy_threads: 1 } => f.write_str("Async-fork, 1 copy thread"),
            Self::Async { copy_threads } => write!(f, "Async-fork, {copy_threads} copy threads"),
            Self::Odf => f.write_str("On-Demand-Fork"),
        }
    }
}

/// Where the memory controller is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    pub mount: PathBuf,
    pub is_unified: bool,
}

impl Hierarchy {
    /// A machine may have both mounted; the memory controller is then in the legacy one.
    ///
    /// # Errors
    /// Neither is mounted.
    pub fn find(root: &Root) -> Result<Self> {
        let mounts = root.text("/proc/self/mountinfo").unwrap_or_default();
        let mut unified = None;
        for line in mounts.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let Some(mount) = before.split_whitespace().nth(4) else { continue };
            let mut words = after.split_whitespace();
            let (kind, options) = (words.next().unwrap_or(""), words.nth(1).unwrap_or(""));
            match kind {
                "cgroup" if options.split(',').any(|o| o == "memory") => {
                    return Ok(Self { mount: mount.into(), is_unified: false });
                }
                "cgroup2" => unified = unified.or(Some(mount)),
                _ => {}
            }
        }
        let mount = unified.ok_or(ForkError::NoHierarchy)?;
        Ok(Self { mount: mount.into(), is_unified: true })
    }

    /// The directory of a cgroup; `path` is its name ("/system.slice/redis.service") or its directory.
    pub fn directory(&self, path: &Path) -> PathBuf {
        if path.starts_with(&self.mount) {
            return path.to_owned();
        }
        self.mount.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The cgroup of a process.
    pub fn of_process(&self, root: &Root, pid: i32) -> Option<PathBuf> {
        let text = root.text(format!("/proc/{pid}/cgroup"))?;
        let line = text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let is_ours = match self.is_unified {
                true => number == "0" && controllers.is_empty(),
                false => controllers.split(',').any(|c| c == "memory"),
            };
            is_ours.then(|| path.to_owned())
        })?;
        Some(self.directory(Path::new(&line)))
    }
}

/// The cgroup's own setting, if it has the file.
pub fn read(root: &Root, directory: &Path) -> Option<Strategy> {
    Strategy::parse(&root.text(directory.join(CGROUP_FILE))?)
}

/// Sets it and reads it back.
///
/// # Errors
/// The file is missing (says why) or did not take the value.
pub fn write(root: &Root, hierarchy: &Hierarchy, directory: &Path, strategy: Strategy) -> Result<Strategy> {
    let file = directory.join(CGROUP_FILE);
    let path = root.path(&file);
    if !path.exists() {
        return Err(missing(root, hierarchy, directory));
    }
    fs::write(&path, strategy.file_text())
        .map_err(|e| ForkError::io(format!("write {}", file.display()), e))?;
    let now = read(root, directory);
    if now != Some(strategy) {
        let why =
            format!("it did not take the value {:?}; the module is of another version", strategy.file_text());
        return Err(ForkError::NoCgroupFile { path: file, why });
    }
    Ok(strategy)
}

fn missing(root: &Root, hierarchy: &Hierarchy, directory: &Path) -> ForkError {
    let why = if !root.path(directory).is_dir() {
        "there is no such cgroup".to_owned()
    } else if directory == hierarchy.mount {
        "the root cgroup has no setting; choose one below it, or use --pid".to_owned()
    } else if !root.is_module_loaded() {
        return ForkError::NotLoaded { missing: directory.join(CGROUP_FILE).display().to_string() };
    } else if hierarchy.is_unified && !root.path(directory.join("memory.max")).exists() {
        let parent = directory.parent().unwrap_or(&hierarchy.mount).display().to_string();
        format!(
            "the memory controller is off for this cgroup: `systemctl set-property UNIT MemoryAccounting=yes`, or \
             `echo +memory > {parent}/cgroup.subtree_control`"
        )
    } else {
        "the file is missing although the module is loaded; see `stillframe-fork load` and the kernel log"
            .to_owned()
    };
    ForkError::NoCgroupFile { path: directory.join(CGROUP_FILE), why }
}
