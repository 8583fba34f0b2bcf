//! `enable` and `disable`: one process through the device, or a cgroup through its file.

use std::path::PathBuf;

use crate::abi::{Control, StrategyCode};
use crate::cgroup::{self, Hierarchy, Strategy};
use crate::error::Result;
use crate::root::Root;

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
        Subject::Unit(unit) => {
            let said = set_cgroup(root, cgroup::of_unit(unit)?, strategy)?;
            Ok(format!("{said}\n{}", for_good(unit, strategy.unwrap_or(Strategy::Default))))
        }
        Subject::Cgroup(path) => set_cgroup(root, path.clone(), strategy),
    }
}

/// How a setting outlives the service's restart. The service starts also where the command fails ("-").
fn for_good(unit: &str, strategy: Strategy) -> String {
    let how = match strategy {
        Strategy::Default => {
            return format!(
                "If `systemctl cat {unit}` shows `stillframe-fork enable`, it comes back when {unit} starts"
            );
        }
        Strategy::Async { copy_threads } => format!("--threads {copy_threads}"),
        Strategy::Odf => "--strategy odf".to_owned(),
    };
    let own =
        std::env::current_exe().map_or_else(|_| "stillframe-fork".to_owned(), |p| p.display().to_string());
    format!(
        "This holds until {unit} stops; for good, `systemctl edit {unit}`:\n  [Service]\n  \
         ExecStartPost=-+{own} enable --unit %n {how}"
    )
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
