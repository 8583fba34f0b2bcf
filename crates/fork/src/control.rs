//! `enable` and `disable`: one process through the device, or a cgroup through its file; a unit also for good.

use std::path::PathBuf;

use crate::abi::{Control, StrategyCode};
use crate::cgroup::{self, Hierarchy, Strategy};
use crate::error::{ForkError, Result};
use crate::root::Root;
use crate::unit::{self, Unit};

/// Whose forks are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Process(i32),
    Unit(String),
    Cgroup(PathBuf),
}

/// What is asked of the module. `None`: a process's own setting is forgotten.
///
/// # Errors
/// The module is not loaded, the subject does not exist, or the caller is not root.
pub fn set(root: &Root, subject: &Subject, strategy: Option<Strategy>) -> Result<String> {
    match subject {
        Subject::Process(pid) => set_process(root, *pid, strategy),
        Subject::Unit(name) => match strategy.unwrap_or(Strategy::Default) {
            Strategy::Default => disable_unit(root, name),
            strategy => {
                let said = set_cgroup(root, Unit::find(name)?.control_group(name)?, Some(strategy))?;
                Ok(format!("{said}\nThis holds until {name} stops; for good: the same with --persistent"))
            }
        },
        Subject::Cgroup(path) => set_cgroup(root, path.clone(), strategy),
    }
}

/// Now, if the unit runs and the module is loaded, and from every later start on.
///
/// # Errors
/// As [`set`] and [`unit::keep`].
pub fn set_for_good(root: &Root, name: &str, strategy: Strategy) -> Result<String> {
    let unit = Unit::find(name)?;
    let kept = unit::keep(root, name, &unit, strategy)?;
    let now = unit.control_group(name).and_then(|group| set_cgroup(root, group, Some(strategy)));
    Ok(format!("{kept}\n{}", now_or_later(now, "from its next start on")?))
}

fn disable_unit(root: &Root, name: &str) -> Result<String> {
    let unit = Unit::find(name)?;
    let forgotten = unit::forget(root, &unit)?;
    let now = unit.control_group(name).and_then(|group| set_cgroup(root, group, None));
    match forgotten {
        Some(removed) => Ok(format!("{removed}\n{}", now_or_later(now, "nothing else to do")?)),
        None => Ok(format!(
            "{}\nIf `systemctl cat {name}` shows `stillframe-fork enable`, it comes back when {name} starts",
            now?
        )),
    }
}

/// What has been written for later holds, whether there is something to change now or not.
fn now_or_later(now: Result<String>, otherwise: &str) -> Result<String> {
    match now {
        Err(ForkError::UnitNotRunning { unit }) => Ok(format!("{unit} does not run now: {otherwise}")),
        Err(ForkError::NotLoaded { .. }) => Ok(format!(
            "the module is not loaded now: {otherwise} (`stillframe-fork load` loads it without a reboot)"
        )),
        now => now,
    }
}

fn set_process(root: &Root, pid: i32, strategy: Option<Strategy>) -> Result<String> {
    let (code, copy_threads) = match strategy {
        None => (StrategyCode::Inherit, 0),
        Some(Strategy::Default) => (StrategyCode::Default, 0),
        Some(Strategy::Async { copy_threads }) => (StrategyCode::Async, copy_threads),
        Some(Strategy::Odf) => (StrategyCode::Odf, 0),
    };
    root.set_strategy(Control { pid, strategy: code, copy_threads })?;
    Ok(match strategy {
        None => format!("process {pid}: as its cgroup says"),
        Some(strategy) => format!("process {pid}: {strategy}"),
    })
}

fn set_cgroup(root: &Root, path: PathBuf, strategy: Option<Strategy>) -> Result<String> {
    let hierarchy = Hierarchy::find(root)?;
    let directory = hierarchy.directory(&path);
    let strategy = cgroup::write(root, &hierarchy, &directory, strategy.unwrap_or(Strategy::Default))?;
    Ok(format!("{}: {strategy}", directory.display()))
}
