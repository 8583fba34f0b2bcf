//! Loading and unloading, and why it was refused.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;

use crate::abi::MODULE;
use crate::error::{ForkError, Result};
use crate::kernel;
use crate::root::Root;

const LOG_LINES: usize = 12;
/// `delete_module`: do not wait for users to go.
const O_NONBLOCK: i32 = 0o4000;

/// The two calls that change the running kernel; tests put something harmless in their place.
pub trait Kernel {
    /// # Errors
    /// As `finit_module(2)`.
    fn insert(&self, module: &Path, parameters: &str) -> rustix::io::Result<()>;
    /// # Errors
    /// As `delete_module(2)`.
    fn remove(&self, name: &str) -> rustix::io::Result<()>;
    /// # Errors
    /// What `modprobe` printed.
    fn probe(&self, name: &str, parameters: &[String]) -> std::result::Result<(), String>;
}

pub struct RunningKernel;

impl Kernel for RunningKernel {
    fn insert(&self, module: &Path, parameters: &str) -> rustix::io::Result<()> {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let file = rustix::fs::open(module, flags, rustix::fs::Mode::empty())?;
        let parameters = CString::new(parameters).map_err(|_| Errno::INVAL)?;
        rustix::system::finit_module(file, &parameters, 0)
    }

    fn remove(&self, name: &str) -> rustix::io::Result<()> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        rustix::system::delete_module(&name, O_NONBLOCK)
    }

    fn probe(&self, name: &str, parameters: &[String]) -> std::result::Result<(), String> {
        let output = Command::new("modprobe").arg(name).args(parameters).output();
        let output = output.map_err(|e| format!("modprobe: {e}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Loaded {
    Already,
    From(String),
}

/// Loads the module: from `path` if given, else the installed one, else the one that `make -C kernel` left in the
/// source tree.
///
/// # Errors
/// There is none, or the kernel refused it; the error carries everything found that may be the cause.
pub fn load(root: &Root, kernel: &dyn Kernel, path: Option<&Path>, parameters: &[String]) -> Result<Loaded> {
    if root.is_module_loaded() {
        return Ok(Loaded::Already);
    }
    let heard = root.kernel_log().len();
    if path.is_none() && is_installed(root) {
        let refused = |why: String| refused_by_kernel(root, format!("modprobe {MODULE}"), why, heard);
        kernel.probe(MODULE, parameters).map_err(refused)?;
        return Ok(Loaded::From("modprobe".to_owned()));
    }
    let file = match path {
        Some(path) => path.to_owned(),
        None => built()?.ok_or_else(|| nothing_found(root))?,
    };
    let name = file.display().to_string();
    if let Some(why) = wrong_kernel(root, &file)? {
        let findings = kernel::findings(root).into_iter().chain(kernel::headers(root)).collect();
        return Err(ForkError::LoadRefused { module: name, why, findings, log: Vec::new() });
    }
    match kernel.insert(&file, &parameters.join(" ")) {
        Ok(()) => Ok(Loaded::From(name)),
        Err(Errno::EXIST) => Ok(Loaded::Already),
        Err(errno) => Err(refused_by_kernel(root, name, meaning(errno), heard)),
    }
}

/// Names of parameters that the loaded module does not have: the kernel ignores them.
pub fn unknown_parameters(root: &Root, parameters: &[String]) -> Vec<String> {
    let name = |parameter: &String| parameter.split('=').next().unwrap_or("").to_owned();
    let is_known = |name: &String| root.exists(&format!("/sys/module/{MODULE}/parameters/{name}"));
    parameters.iter().map(name).filter(|name| !is_known(name)).collect()
}

/// # Errors
/// It is not loaded, or in use.
pub fn unload(root: &Root, kernel: &dyn Kernel) -> Result<()> {
    let live = root.statistics().ok().map(|s| (s.sessions_live, s.odf_mms_live));
    match kernel.remove(MODULE) {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) => Err(ForkError::NotLoaded { missing: "/sys/module/async_fork".to_owned() }),
        Err(Errno::PERM) => Err(ForkError::NotPermitted { what: "unload async_fork".to_owned() }),
        Err(Errno::AGAIN | Errno::BUSY) => Err(ForkError::UnloadRefused(in_use(live))),
        Err(errno) => Err(ForkError::UnloadRefused(std::io::Error::from(errno).to_string())),
    }
}

/// Why, and what to do; `live`: copies under way and processes that share tables.
fn in_use(live: Option<(u64, u64)>) -> String {
    match live {
        None | Some((0, 0)) => "it is in use: a program has /dev/async_fork open".to_owned(),
        Some((copies, 0)) => format!(
            "it is in use: page table copies under way: {copies}; they end by themselves, try again in a moment"
        ),
        Some((_, sharers)) => format!(
            "it is in use: processes that share page tables: {sharers}; `echo 0 > \
             /sys/module/async_fork/parameters/enabled` gives each its own, then try again"
        ),
    }
}

/// Whether `modprobe` would find it.
pub fn is_installed(root: &Root) -> bool {
    let base = format!("/lib/modules/{}", root.kernel_release());
    let is_ours = |name: &String| name.strip_prefix(MODULE).is_some_and(|rest| rest.starts_with(".ko"));
    ["extra", "updates", "updates/dkms"]
        .iter()
        .any(|dir| root.names(&format!("{base}/{dir}")).iter().any(is_ours))
}

fn candidates() -> Result<Vec<PathBuf>> {
    let here = std::env::current_dir().map_err(|e| ForkError::io("find the working directory", e))?;
    let program = std::env::current_exe().unwrap_or_default();
    let relative = Path::new("kernel/async_fork/async_fork.ko");
    // The program is in target/release of the source tree, or the user stands in it.
    let above = program.ancestors().skip(1).take(4).map(Path::to_owned);
    Ok(std::iter::once(here).chain(above).map(|dir| dir.join(relative)).collect())
}

fn built() -> Result<Option<PathBuf>> {
    Ok(candidates()?.into_iter().find(|path| path.is_file()))
}

fn nothing_found(root: &Root) -> ForkError {
    let mut looked = vec![format!("/lib/modules/{}/{{extra,updates}}", root.kernel_release())];
    looked.extend(candidates().unwrap_or_default().iter().take(1).map(|p| p.display().to_string()));
    let findings = kernel::findings(root).into_iter().chain(kernel::headers(root)).collect();
    ForkError::NoModule { looked, findings }
}

/// The kernel that a module was built for, from its "vermagic=" string.
fn built_for(module: &[u8]) -> Option<String> {
    let mark = b"vermagic=";
    let at = module.windows(mark.len()).position(|window| window == mark)?;
    let text = module[at + mark.len()..].split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).split_whitespace().next()?.to_owned())
}

fn wrong_kernel(root: &Root, file: &Path) -> Result<Option<String>> {
    let bytes = fs::read(file).map_err(|e| ForkError::io(format!("read {}", file.display()), e))?;
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(Some(
            "it is no ELF file, so no module; a packed one has to be unpacked or installed".to_owned(),
        ));
    }
    let running = root.kernel_release();
    let Some(target) = built_for(&bytes).filter(|target| *target != running) else { return Ok(None) };
    Ok(Some(format!(
        "it was built for kernel {target}, but {running} is running: build it again, make -C kernel"
    )))
}

fn meaning(errno: Errno) -> String {
    // See kernel/async_fork/layout.c; what these numbers are called elsewhere would mislead.
    if matches!(errno, Errno::NOENT | Errno::PROTO | Errno::NOTUNIQ) {
        return "this kernel is not one that the module knows: what it hooks is missing or has changed. Nothing was \
                touched, forks stay the kernel's own; docs/guide/kernel-module.md names the kernels that it is for"
            .to_owned();
    }
    let what = match errno {
        Errno::PERM => "not permitted: not root, a container, or the kernel's lockdown",
        Errno::NOEXEC => "not a module for this kernel",
        Errno::KEYREJECTED | Errno::NOKEY => "its signature is missing or not trusted",
        Errno::BUSY => "another user (live patch, tracer) redirects a function that it hooks",
        Errno::OPNOTSUPP | Errno::NODEV | Errno::NODATA => "this kernel lacks something that it needs",
        Errno::INVAL => "a parameter or the module's format was not understood",
        _ => "the kernel refused it",
    };
    format!("{what} ({})", std::io::Error::from(errno))
}

/// With what the kernel's log says since it had `heard` lines of the module.
fn refused_by_kernel(root: &Root, module: String, why: String, heard: usize) -> ForkError {
    let mut log = root.kernel_log();
    // The log is a ring: old lines may be gone.
    let log = log.split_off(heard.min(log.len()).max(log.len().saturating_sub(LOG_LINES)));
    ForkError::LoadRefused { module, why, findings: kernel::findings(root), log }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    struct FakeKernel {
        answer: rustix::io::Result<()>,
        /// The log's file and what is added to it.
        says: Option<(PathBuf, &'static str)>,
        calls: RefCell<Vec<String>>,
    }

    impl FakeKernel {
        fn answering(answer: rustix::io::Result<()>) -> Self {
            Self { answer, says: None, calls: RefCell::default() }
        }
    }

    impl Kernel for FakeKernel {
        fn insert(&self, module: &Path, parameters: &str) -> rustix::io::Result<()> {
            let name = module.file_name().unwrap().to_string_lossy();
            self.calls.borrow_mut().push(format!("insert {name} {parameters}"));
            if let Some((log, line)) = &self.says {
                fs::write(log, fs::read_to_string(log).unwrap() + line).unwrap();
            }
            self.answer
        }
        fn remove(&self, name: &str) -> rustix::io::Result<()> {
            self.calls.borrow_mut().push(format!("remove {name}"));
            self.answer
        }
        fn probe(&self, name: &str, parameters: &[String]) -> std::result::Result<(), String> {
            self.calls.borrow_mut().push(format!("probe {name} {}", parameters.join(" ")));
            self.answer.map_err(|e| e.to_string())
        }
    }

    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("stillframe-fork-{name}-{}", std::process::id()));
            let machine = Self(path);
            machine.file("proc/sys/kernel/osrelease", b"6.1.0-1-amd64\n");
            machine.file("lib/modules/6.1.0-1-amd64/build/Makefile", b"");
            machine
        }

        fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            path
        }

        fn root(&self) -> Root {
            Root::new(&self.0)
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MODULE_BYTES: &[u8] =
        b"\x7fELF junk\0vermagic=6.1.0-1-amd64 SMP preempt mod_unload modversions \0license=GPL";

    fn findings(error: &ForkError) -> String {
        match error {
            ForkError::LoadRefused { why, findings, log, .. } => format!("{why}\n{findings:?}\n{log:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_given_file_is_inserted_with_its_parameters() {
        let machine = Machine::new("given");
        let file = machine.file("x/async_fork.ko", MODULE_BYTES);
        let kernel = FakeKernel::answering(Ok(()));
        let parameters = ["slow_us=3".to_owned(), "skip=a".to_owned()];
        let loaded = load(&machine.root(), &kernel, Some(&file), &parameters).unwrap();
        assert_eq!(loaded, Loaded::From(file.display().to_string()));
        assert_eq!(*kernel.calls.borrow(), ["insert async_fork.ko slow_us=3 skip=a"]);
    }

    #[test]
    fn the_installed_module_goes_first_and_a_loaded_one_is_left_alone() {
        let machine = Machine::new("installed");
        machine.file("lib/modules/6.1.0-1-amd64/updates/async_fork.ko.xz", b"");
        let kernel = FakeKernel::answering(Ok(()));
        assert_eq!(load(&machine.root(), &kernel, None, &[]).unwrap(), Loaded::From("modprobe".to_owned()));
        assert_eq!(*kernel.calls.borrow(), ["probe async_fork "]);
        machine.file("sys/module/async_fork/refcnt", b"0");
        assert_eq!(load(&machine.root(), &kernel, None, &[]).unwrap(), Loaded::Already);
        assert_eq!(kernel.calls.borrow().len(), 1);
    }

    #[test]
    fn another_kernels_module_is_refused_before_the_kernel_sees_it() {
        let machine = Machine::new("vermagic");
        let file = machine.file("async_fork.ko", MODULE_BYTES);
        machine.file("proc/sys/kernel/osrelease", b"6.9.9\n");
        let kernel = FakeKernel::answering(Ok(()));
        let error = load(&machine.root(), &kernel, Some(&file), &[]).unwrap_err();
        let text = findings(&error);
        assert!(text.contains("built for kernel 6.1.0-1-amd64, but 6.9.9 is running"), "{text}");
        assert!(text.contains("headers of kernel 6.9.9 are not installed"), "{text}");
        assert!(kernel.calls.borrow().is_empty());
    }

    #[test]
    fn everything_in_the_way_is_named() {
        let machine = Machine::new("refused");
        let file = machine.file("async_fork.ko", MODULE_BYTES);
        machine.file("proc/self/status", b"Name: x\nCapEff:\t000001fffffeffff\n");
        machine.file("proc/sys/kernel/modules_disabled", b"1\n");
        machine.file("proc/sys/kernel/ftrace_enabled", b"0\n");
        machine.file("sys/kernel/security/lockdown", b"none [integrity] confidentiality\n");
        let secure_boot = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
        machine.file(secure_boot, &[6, 0, 0, 0, 1]);
        machine.file("sys/module/module/parameters/sig_enforce", b"Y\n");
        machine.file("sys/kernel/livepatch/kpatch_5/enabled", b"1\n");
        machine
            .file("sys/kernel/tracing/enabled_functions", b"copy_page_range (1) R I\tip: x\nschedule (1)\n");
        machine.file("boot/config-6.1.0-1-amd64", b"CONFIG_MODULES=y\nCONFIG_KALLSYMS=y\nCONFIG_MEMCG=y\nCONFIG_DYNAMIC_FTRACE=y\n# CONFIG_KPROBES is not set\n");
        let log =
            machine.file("dev/kmsg", b"4,1,2,-;usb 1-1: new\n4,9,99,-;async_fork: an earlier attempt\n");
        let mut kernel = FakeKernel::answering(Err(Errno::PERM));
        kernel.says = Some((log, "4,10,100,-;async_fork: no dup_mmap\n"));
        let text = findings(&load(&machine.root(), &kernel, Some(&file), &[]).unwrap_err());
        for part in [
            "not permitted",
            "CAP_SYS_MODULE",
            "modules_disabled is 1",
            "ftrace_enabled is 0",
            "integrity (Secure Boot is on)",
            "sig_enforce",
            "kpatch_5",
            "copy_page_range",
            "without CONFIG_KPROBES",
            "CONFIG_DYNAMIC_FTRACE_WITH_REGS",
            "async_fork: no dup_mmap",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        for absent in ["usb 1-1", "an earlier attempt", "without CONFIG_MEMCG", "headers of", "schedule"] {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
    }

    #[test]
    fn parameters_that_the_module_does_not_have_are_named() {
        let machine = Machine::new("parameters");
        machine.file("sys/module/async_fork/parameters/slow_us", b"3");
        let given = ["slow_us=3".to_owned(), "slow=3".to_owned()];
        assert_eq!(unknown_parameters(&machine.root(), &given), ["slow"]);
    }

    #[test]
    fn a_packed_configuration_is_read() {
        let machine = Machine::new("config");
        let plain = machine.file("plain", b"CONFIG_MODULES=y\nCONFIG_KPROBES=y\n");
        let packed = Command::new("gzip").arg("-c").arg(plain).output().unwrap();
        machine.file("proc/config.gz", &packed.stdout);
        let text = format!("{:?}", kernel::findings(&machine.root()));
        assert!(text.contains("without CONFIG_MEMCG") && !text.contains("CONFIG_KPROBES"), "{text}");
    }

    #[test]
    fn unloading_says_why_not() {
        let machine = Machine::new("unload");
        let refused = |errno| unload(&machine.root(), &FakeKernel::answering(Err(errno))).unwrap_err();
        assert!(matches!(refused(Errno::NOENT), ForkError::NotLoaded { .. }));
        assert!(matches!(refused(Errno::PERM), ForkError::NotPermitted { .. }));
        assert!(refused(Errno::AGAIN).to_string().contains("in use"));
        assert!(in_use(Some((2, 0))).contains("under way: 2") && in_use(Some((0, 3))).contains("tables: 3"));
        let kernel = FakeKernel::answering(Ok(()));
        unload(&machine.root(), &kernel).unwrap();
        assert_eq!(*kernel.calls.borrow(), ["remove async_fork"]);
    }
}
