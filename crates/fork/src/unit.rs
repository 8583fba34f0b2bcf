//! A systemd service: where its cgroup is, and what lets a setting outlive its restart and the machine's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cgroup::Strategy;
use crate::error::{ForkError, Result};
use crate::load;
use crate::root::Root;

const UNITS: &str = "/etc/systemd/system";
const DROP_IN: &str = "50-stillframe-fork.conf";
/// systemd loads the modules that are named here before it starts services.
const MODULES_LOAD: &str = "/etc/modules-load.d/stillframe-async-fork.conf";

/// What systemd says about a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Its full name, whatever alias or short form was asked for.
    pub id: String,
    load_state: String,
    control_group: String,
}

impl Unit {
    /// # Errors
    /// There is no systemctl.
    pub fn find(name: &str) -> Result<Self> {
        let output = Command::new("systemctl")
            .args(["show", "-p", "Id,LoadState,ControlGroup", "--", name])
            .output()
            .map_err(ForkError::NoSystemctl)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let value = |key: &str| {
            let of = |line: &str| Some(line.strip_prefix(key)?.strip_prefix('=')?.trim().to_owned());
            text.lines().find_map(of).unwrap_or_default()
        };
        Ok(Self { id: value("Id"), load_state: value("LoadState"), control_group: value("ControlGroup") })
    }

    /// # Errors
    /// It does not run.
    pub fn control_group(&self, asked: &str) -> Result<PathBuf> {
        match self.control_group.as_str() {
            "" | "/" => Err(ForkError::UnitNotRunning { unit: asked.to_owned() }),
            group => Ok(PathBuf::from(group)),
        }
    }

    /// Whether a drop-in can be made for it.
    fn check_service(&self, asked: &str) -> Result<()> {
        let refused =
            |why: &str| Err(ForkError::NotPersistent { what: asked.to_owned(), why: why.to_owned() });
        if self.load_state != "loaded" {
            return refused(&format!(
                "systemd has no such unit that it could load ({}); see `systemctl status {asked}`, and of a template \
                 name an instance",
                if self.load_state.is_empty() { "no answer" } else { &self.load_state }
            ));
        }
        if !self.id.ends_with(".service") || self.id.contains('/') {
            return refused("only a service can be enabled at its start: name the service inside of it");
        }
        Ok(())
    }

    fn drop_in(&self) -> PathBuf {
        Path::new(UNITS).join(format!("{}.d", self.id)).join(DROP_IN)
    }
}

/// From now on the module is loaded at boot and the service enabled at each of its starts. Checks everything before it
/// writes anything; a second call replaces the first.
///
/// # Errors
/// The unit is no service, the module is not installed, or the caller may not write below `/etc`.
pub fn keep(root: &Root, asked: &str, unit: &Unit, strategy: Strategy) -> Result<String> {
    unit.check_service(asked)?;
    let Strategy::Async { copy_threads } = strategy else {
        return Err(ForkError::NotPersistent {
            what: asked.to_owned(),
            why: format!(
                "{strategy} is for comparisons; nothing that was measured favours it over Async-fork with one thread"
            ),
        });
    };
    if !load::is_installed(root) {
        return Err(ForkError::NotPersistent {
            what: asked.to_owned(),
            why: format!(
                "the module is not installed for kernel {}, so nothing could load it at boot: install the package that \
                 `make -C kernel deb` makes, or `make -C kernel modules_install && depmod`",
                root.kernel_release()
            ),
        });
    }
    let own = own_path(asked)?;
    let undo = format!("stillframe-fork disable --unit {}", unit.id);
    // The service starts also where the command fails ("-"); it runs as root whatever the service runs as ("+").
    let text = format!(
        "# By `stillframe-fork enable --persistent`; `{undo}` takes it back.\n[Service]\nMemoryAccounting=yes\n\
         ExecStartPost=-+{own} enable --unit %n --threads {copy_threads}\n"
    );
    let drop_in = unit.drop_in();
    write(
        root,
        Path::new(MODULES_LOAD),
        &format!("# By `stillframe-fork enable --persistent`\n{}\n", crate::abi::MODULE),
    )?;
    write(root, &drop_in, &text)?;
    reload()?;
    Ok(format!(
        "{}: at each start {strategy} ({}); the module is loaded at boot ({MODULES_LOAD})\n\
         It calls {own}: leave that where it is. `{undo}` takes everything back",
        unit.id,
        drop_in.display()
    ))
}

/// Takes back what [`keep`] wrote for the unit, if it did; the module is loaded at boot as long as another unit needs it.
///
/// # Errors
/// The caller may not remove files below `/etc`.
pub fn forget(root: &Root, unit: &Unit) -> Result<Option<String>> {
    let drop_in = unit.drop_in();
    if unit.id.is_empty() || !root.path(&drop_in).exists() {
        return Ok(None);
    }
    remove(root, &drop_in)?;
    if let Some(directory) = drop_in.parent() {
        // Others may have drop-ins there.
        let _ = fs::remove_dir(root.path(directory));
    }
    let mut said = format!("removed {}", drop_in.display());
    let has_drop_in = |name: &String| root.path(Path::new(UNITS).join(name).join(DROP_IN)).exists();
    if !root.names(UNITS).iter().any(has_drop_in) && root.exists(MODULES_LOAD) {
        remove(root, Path::new(MODULES_LOAD))?;
        said.push_str(&format!(" and {MODULES_LOAD}"));
    }
    reload()?;
    Ok(Some(said))
}

/// This program as a drop-in can name it.
fn own_path(asked: &str) -> Result<String> {
    let own = std::env::current_exe().map_err(|e| ForkError::io("find this program", e))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    match own.to_str().filter(|path| path.chars().all(is_plain)) {
        Some(path) => Ok(path.to_owned()),
        None => Err(ForkError::NotPersistent {
            what: asked.to_owned(),
            why: format!(
                "systemd would have to call {}: move this program to /usr/local/sbin and run it from there",
                own.display()
            ),
        }),
    }
}

fn write(root: &Root, file: &Path, text: &str) -> Result<()> {
    let path = root.path(file);
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(&path, text))
        .map_err(|e| ForkError::io(format!("write {}", file.display()), e))
}

fn remove(root: &Root, file: &Path) -> Result<()> {
    fs::remove_file(root.path(file)).map_err(|e| ForkError::io(format!("remove {}", file.display()), e))
}

fn reload() -> Result<()> {
    let output = Command::new("systemctl").arg("daemon-reload").output().map_err(ForkError::NoSystemctl)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(ForkError::NoReload(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}
