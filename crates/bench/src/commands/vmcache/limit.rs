//! The same memory for each system, page cache and all: a control group for the process that measures it.

use std::fs;
use std::path::{Path, PathBuf};

/// A control group that goes when it is dropped; its processes have ended by then.
pub struct MemoryGroup {
    dir: PathBuf,
    names: &'static Names,
}

/// The files of one version of control groups.
struct Names {
    limit: &'static str,
    peak: &'static str,
    swap: &'static str,
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
    swap: "memory.memsw.limit_in_bytes",
};
const V2: Names = Names { limit: "memory.max", peak: "memory.peak", swap: "memory.swap.max" };

const ROOT: &str = "/sys/fs/cgroup";

impl MemoryGroup {
    /// Below the group of this process.
    ///
    /// # Errors
    /// Why the machine does not allow it.
    pub fn new(name: &str, limit_bytes: u64) -> Result<MemoryGroup, String> {
        let own =
            fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("no control groups: {error}"))?;
        let (parent, names) = parent_group(&own, Path::new(ROOT))
            .ok_or("the memory controller of control groups is not mounted".to_owned())?;
        let dir = parent.join(name);
        // Left by a process of the same number that was killed.
        let _ = fs::remove_dir(&dir);
        fs::create_dir(&dir).map_err(|error| format!("no control group can be made: {error}"))?;
        let group = MemoryGroup { dir, names };
        let set = |file: &str, value: &str| fs::write(group.dir.join(file), value);
        set(names.limit, &limit_bytes.to_string())
            .map_err(|error| format!("a control group here has no memory limit: {error}"))?;
        // Without swap, or with a kernel that does not count it, there is nothing to set.
        let no_swap = if names.swap == V1.swap { limit_bytes.to_string() } else { "0".to_owned() };
        let _ = set(names.swap, &no_swap);
        Ok(group)
    }

    /// # Errors
    /// Why the process cannot be moved.
    pub fn add(&self, pid: u32) -> Result<(), String> {
        fs::write(self.dir.join("cgroup.procs"), pid.to_string())
            .map_err(|error| format!("a process cannot be moved to a control group: {error}"))
    }

    /// The most memory that its processes had at once, page cache included, if the kernel says.
    pub fn peak_bytes(&self) -> Option<u64> {
        fs::read_to_string(self.dir.join(self.names.peak)).ok()?.trim().parse().ok()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // What stays is empty and costs nothing.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Where the memory controller has the group that `own`, the text of `/proc/self/cgroup`, names.
fn parent_group(own: &str, root: &Path) -> Option<(PathBuf, &'static Names)> {
    let path_of = |is_wanted: &dyn Fn(&str) -> bool| {
        own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            is_wanted(controllers).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    if let Some(path) = path_of(&|controllers| controllers.split(',').any(|name| name == "memory")) {
        return Some((root.join("memory").join(path), &V1));
    }
    root.join("cgroup.controllers").exists().then_some(())?;
    Some((root.join(path_of(&str::is_empty)?), &V2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stillframe_testkit::TempDir;

    #[test]
    fn the_own_group_is_found_in_either_version() {
        let root = TempDir::new("groups");
        let old = "9:name=systemd:/\n4:memory,blkio:/a/b:c\n0::/x\n";
        let (path, names) = parent_group(old, &root).unwrap();
        assert_eq!((path, names.limit), (root.join("memory/a/b:c"), V1.limit));
        let new = "0::/user.slice/a\n";
        assert!(parent_group(new, &root).is_none());
        fs::write(root.join("cgroup.controllers"), "memory").unwrap();
        let (path, names) = parent_group(new, &root).unwrap();
        assert_eq!((path, names.limit), (root.join("user.slice/a"), V2.limit));
        assert!(parent_group("", &root).is_none());
    }
}
