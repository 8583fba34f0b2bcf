//! The program on a fixture directory in the place of `/`: no module and no root needed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use stillframe_fork::abi::{CONTROL_BYTES, STATISTICS_BYTES, VERSION};
use stillframe_fork::restore;
use stillframe_fork::root::Root;

const PROGRAM: &str = env!("CARGO_BIN_EXE_stillframe-fork");
const V2: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
const V1: &str = "31 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                  32 24 0:27 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n";

struct Machine(PathBuf);

impl Machine {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let machine =
            Self(std::env::temp_dir().join(format!("stillframe-fork-cli-{}-{number}", std::process::id())));
        machine.file("proc/self/mountinfo", V2);
        machine
    }

    fn with_module() -> Self {
        let machine = Self::new();
        machine.file("sys/module/async_fork/refcnt", "0");
        machine.file("dev/async_fork", statistics(|_| ()));
        machine
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }

    fn run(&self, args: &[&str]) -> Output {
        let path = format!("{}:{}", self.0.join("bin").display(), std::env::var("PATH").unwrap());
        Command::new(PROGRAM).arg("--sysroot").arg(&self.0).args(args).env("PATH", path).output().unwrap()
    }

    fn systemctl(&self, script: &str) {
        self.file("bin/systemctl", format!("#!/bin/sh\n{script}\n"));
        let path = self.0.join("bin/systemctl");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Statistics as the device returns them; `change` works on the counters (8-byte words behind the header).
fn statistics(change: impl FnOnce(&mut [u64])) -> Vec<u8> {
    let mut counters = vec![0u64; (STATISTICS_BYTES - 8) / 8];
    change(&mut counters);
    let mut bytes = [STATISTICS_BYTES as u32, VERSION].map(u32::to_ne_bytes).concat();
    bytes.extend(counters.iter().flat_map(|c| c.to_ne_bytes()));
    bytes
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    stdout(output)
}

#[track_caller]
fn failed(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}{}", stdout(output), stderr(output));
    stderr(output)
}

#[test]
fn a_process_is_set_through_the_device() {
    let machine = Machine::with_module();
    let control = |args: &[&str]| {
        machine.file("dev/async_fork", "");
        succeeded(&machine.run(args));
        let bytes = machine.read("dev/async_fork");
        assert_eq!(bytes.len(), CONTROL_BYTES);
        bytes.chunks(4).map(|c| u32::from_ne_bytes(c.try_into().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(control(&["enable", "--pid", "77", "--threads", "5"]), [24, 1, 77, 2, 5, 0]);
    assert_eq!(control(&["enable", "--pid", "77", "--strategy", "odf"]), [24, 1, 77, 3, 0, 0]);
    assert_eq!(control(&["disable", "--pid", "77"]), [24, 1, 77, 1, 0, 0]);
    assert_eq!(control(&["disable", "--pid", "77", "--inherit"]), [24, 1, 77, 0, 0, 0]);
    // One copy thread whatever the machine: the default is the one that was measured to meet its bar on one CPU.
    assert_eq!(control(&["enable", "--pid", "1"]), [24, 1, 1, 2, 1, 0]);
}

#[test]
fn a_wrong_command_line_is_refused() {
    let machine = Machine::with_module();
    for args in [
        &["enable"][..],
        &["enable", "--pid", "0"],
        &["enable", "--pid", "1", "--unit", "x"],
        &["enable", "--pid", "1", "--threads", "65"],
        &["enable", "--pid", "1", "--threads", "2", "--strategy", "odf"],
        &["disable", "--unit", "x", "--inherit"],
        &["status", "--watch", "0"],
        &["status", "--watch", "-1"],
    ] {
        failed(&machine.run(args), 2);
    }
}

#[test]
fn without_the_module_it_says_so() {
    let machine = Machine::new();
    machine.file("sys/fs/cgroup/a/memory.max", "max");
    for args in [&["status"][..], &["enable", "--pid", "5"], &["enable", "--cgroup", "/a"]] {
        let said = failed(&machine.run(args), 3);
        assert!(said.contains("stillframe-fork load"), "{said}");
    }
}

#[test]
fn a_module_of_another_version_is_refused() {
    let machine = Machine::with_module();
    let mut bytes = statistics(|_| ());
    bytes[4] = 2;
    machine.file("dev/async_fork", bytes);
    assert!(failed(&machine.run(&["status"]), 1).contains("version 2"));
    machine.file("dev/async_fork", "short");
    assert!(failed(&machine.run(&["status"]), 1).contains("5 bytes"));
}

#[test]
fn a_cgroup_is_set_through_its_file() {
    let machine = Machine::with_module();
    let file = "sys/fs/cgroup/system.slice/r.service/memory.async_fork";
    machine.file(file, "0\n");
    for name in ["/system.slice/r.service", "system.slice/r.service", "/sys/fs/cgroup/system.slice/r.service"]
    {
        machine.file(file, "0\n");
        let said = succeeded(&machine.run(&["enable", "--cgroup", name, "--threads", "3"]));
        assert!(said.contains("Async-fork, 3 copy threads"), "{said}");
        assert_eq!(machine.read(file), b"3");
    }
    succeeded(&machine.run(&["enable", "--cgroup", "/system.slice/r.service", "--strategy", "odf"]));
    assert_eq!(machine.read(file), b"odf");
    succeeded(&machine.run(&["disable", "--cgroup", "/system.slice/r.service"]));
    assert_eq!(machine.read(file), b"0");
}

#[test]
fn the_legacy_hierarchy_is_used_where_memory_is_in_it() {
    let machine = Machine::with_module();
    machine.file("proc/self/mountinfo", V1);
    machine.file("sys/fs/cgroup/memory/a/memory.async_fork", "0");
    succeeded(&machine.run(&["enable", "--cgroup", "/a", "--threads", "1"]));
    assert_eq!(machine.read("sys/fs/cgroup/memory/a/memory.async_fork"), b"1");
    machine.file("proc/self/mountinfo", "");
    assert!(failed(&machine.run(&["enable", "--cgroup", "/a"]), 1).contains("no memory cgroup hierarchy"));
}

#[test]
fn a_cgroup_without_the_file_is_explained() {
    let machine = Machine::with_module();
    machine.file("sys/fs/cgroup/a/b/cgroup.procs", "");
    let said = failed(&machine.run(&["enable", "--cgroup", "/a/b"]), 1);
    assert!(
        said.contains("memory controller is off") && said.contains("/sys/fs/cgroup/a/cgroup.subtree"),
        "{said}"
    );
    assert!(failed(&machine.run(&["enable", "--cgroup", "/none"]), 1).contains("no such cgroup"));
    assert!(failed(&machine.run(&["enable", "--cgroup", "/"]), 1).contains("root cgroup"));
}

/// A systemd that knows redis-server.service, also as "redis", which runs while `sys/running` is there.
fn systemd(machine: &Machine) {
    machine.systemctl(&format!(
        "cd {0}; echo \"$*\" >> calls\n\
         [ \"$1\" = daemon-reload ] && exit $(cat reload-status 2>/dev/null)\n\
         [ \"$1 $2 $3 $4\" = 'show -p Id,LoadState,ControlGroup --' ] || exit 1\n\
         case \"$5\" in\n\
         redis|redis-server.service) echo Id=redis-server.service; echo LoadState=loaded\n\
         [ -e sys/running ] && echo ControlGroup=/system.slice/r || echo ControlGroup= ;;\n\
         other.service|some.slice) echo Id=$5; echo LoadState=loaded ;;\n\
         *) echo Id=$5; echo LoadState=not-found ;;\n\
         esac",
        machine.0.display()
    ));
    machine.file("sys/fs/cgroup/system.slice/r/memory.async_fork", "0");
    machine.file("sys/running", "");
}

const DROP_IN: &str = "etc/systemd/system/redis-server.service.d/50-stillframe-fork.conf";
const MODULES_LOAD: &str = "etc/modules-load.d/stillframe-async-fork.conf";
const SETTING: &str = "sys/fs/cgroup/system.slice/r/memory.async_fork";

fn installed(machine: &Machine) {
    machine.file("proc/sys/kernel/osrelease", "6.1.0\n");
    machine.file("lib/modules/6.1.0/updates/dkms/async_fork.ko.xz", "");
}

#[test]
fn a_unit_is_found_through_systemctl() {
    let machine = Machine::with_module();
    systemd(&machine);
    let said = succeeded(&machine.run(&["enable", "--unit", "redis-server.service", "--threads", "2"]));
    assert!(said.contains("--persistent"), "{said}");
    assert_eq!(machine.read(SETTING), b"2");
    assert!(failed(&machine.run(&["enable", "--unit", "other"]), 1).contains("does not run"));
    let said = succeeded(&machine.run(&["disable", "--unit", "redis"]));
    assert!(said.contains("it comes back"), "{said}");
    assert_eq!(machine.read(SETTING), b"0");
    assert!(!machine.0.join("etc").exists());
}

#[test]
fn a_unit_is_enabled_for_good_and_disabled_again() {
    let machine = Machine::with_module();
    systemd(&machine);
    installed(&machine);
    let said = succeeded(&machine.run(&["enable", "--unit", "redis", "--persistent"]));
    assert!(said.contains(DROP_IN) && said.contains("disable --unit redis-server.service"), "{said}");
    assert_eq!(machine.read(SETTING), b"1");
    let text = String::from_utf8(machine.read(DROP_IN)).unwrap();
    let command = format!(
        "\n[Service]\nMemoryAccounting=yes\nExecStartPost=-+{PROGRAM} enable --unit %n --threads 1\n"
    );
    assert!(text.ends_with(&command), "{text}");
    let modules = String::from_utf8(machine.read(MODULES_LOAD)).unwrap();
    assert_eq!(modules.lines().filter(|l| !l.starts_with('#')).collect::<Vec<_>>(), ["async_fork"]);
    assert!(String::from_utf8(machine.read("calls")).unwrap().ends_with("daemon-reload\n"));

    // What systemd would call at the service's start.
    machine.file(SETTING, "0");
    let line = text.lines().find_map(|l| l.strip_prefix(&format!("ExecStartPost=-+{PROGRAM} "))).unwrap();
    let words: Vec<_> = line.split(' ').map(|w| if w == "%n" { "redis-server.service" } else { w }).collect();
    succeeded(&machine.run(&words));
    assert_eq!(machine.read(SETTING), b"1");

    // Another number of threads replaces the first.
    succeeded(&machine.run(&["enable", "--unit", "redis", "--persistent", "--threads", "3"]));
    assert!(String::from_utf8(machine.read(DROP_IN)).unwrap().ends_with("%n --threads 3\n"));

    let said = succeeded(&machine.run(&["disable", "--unit", "redis"]));
    assert!(said.contains("removed") && said.contains(MODULES_LOAD), "{said}");
    assert_eq!(machine.read(SETTING), b"0");
    assert!(!machine.0.join(DROP_IN).parent().unwrap().exists() && !machine.0.join(MODULES_LOAD).exists());
}

#[test]
fn for_good_needs_neither_a_running_unit_nor_a_loaded_module() {
    let machine = Machine::new();
    systemd(&machine);
    installed(&machine);
    fs::remove_file(machine.0.join(SETTING)).unwrap();
    let said = succeeded(&machine.run(&["enable", "--unit", "redis", "--persistent"]));
    assert!(said.contains("not loaded now") && said.contains("stillframe-fork load"), "{said}");
    fs::remove_file(machine.0.join("sys/running")).unwrap();
    let said = succeeded(&machine.run(&["enable", "--unit", "redis", "--persistent"]));
    assert!(said.contains("does not run now"), "{said}");
    // Somebody else's drop-in and another unit that needs the module stay.
    machine.file("etc/systemd/system/redis-server.service.d/override.conf", "[Service]\n");
    succeeded(&machine.run(&["enable", "--unit", "other.service", "--persistent"]));
    let said = succeeded(&machine.run(&["disable", "--unit", "redis-server.service"]));
    assert!(said.contains("nothing else to do") && !said.contains(MODULES_LOAD), "{said}");
    assert!(!machine.0.join(DROP_IN).exists() && machine.0.join(MODULES_LOAD).exists());
    assert!(machine.0.join("etc/systemd/system/redis-server.service.d/override.conf").exists());
    succeeded(&machine.run(&["disable", "--unit", "other.service"]));
    assert!(!machine.0.join(MODULES_LOAD).exists());
}

#[test]
fn what_cannot_be_for_good_is_refused_before_anything_is_written() {
    let machine = Machine::with_module();
    systemd(&machine);
    machine.file("proc/sys/kernel/osrelease", "6.1.0\n");
    let said = failed(&machine.run(&["enable", "--unit", "redis", "--persistent"]), 1);
    assert!(said.contains("not installed for kernel 6.1.0") && said.contains("make -C kernel deb"), "{said}");
    installed(&machine);
    let said = failed(&machine.run(&["enable", "--unit", "nowhere", "--persistent"]), 1);
    assert!(said.contains("not-found") && said.contains("systemctl status nowhere"), "{said}");
    let said = failed(&machine.run(&["enable", "--unit", "some.slice", "--persistent"]), 1);
    assert!(said.contains("only a service"), "{said}");
    let said = failed(&machine.run(&["enable", "--unit", "redis", "--persistent", "--strategy", "odf"]), 1);
    assert!(said.contains("On-Demand-Fork is for comparisons"), "{said}");
    failed(&machine.run(&["enable", "--pid", "1", "--persistent"]), 2);
    failed(&machine.run(&["enable", "--cgroup", "/a", "--persistent"]), 2);
    assert!(!machine.0.join("etc").exists());
    assert_eq!(machine.read(SETTING), b"0");
    machine.file("reload-status", "1");
    let said = failed(&machine.run(&["enable", "--unit", "redis", "--persistent"]), 1);
    assert!(said.contains("systemctl daemon-reload"), "{said}");
}

#[test]
fn status_reads_the_device_again_while_watching() {
    let machine = Machine::with_module();
    machine.file("dev/async_fork", statistics(|c| c[1] = 1234));
    let said = succeeded(&machine.run(&["status", "--watch", "0.01", "--times", "3"]));
    assert_eq!(said.matches("1,234").count(), 3, "{said}");
    let json: serde_json::Value =
        serde_json::from_str(&succeeded(&machine.run(&["status", "--json"]))).unwrap();
    assert_eq!(json["forks_async"], 1234);
    assert_eq!(json["forks_refused"]["pinned"], 0);
}

fn process(machine: &Machine, kilobytes: u64, flags: &str) {
    machine.file("proc/9/cgroup", "0::/r\n");
    let smaps =
        format!("Rss: {kilobytes} kB\nAnonymous: {kilobytes} kB\nAnonHugePages: 0 kB\nVmFlags: rd {flags}\n");
    machine.file("proc/9/smaps", smaps);
    machine.file("proc/sys/vm/overcommit_memory", "1\n");
    machine.file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
}

#[test]
fn doctor_is_content_with_a_process_that_uses_it() {
    let machine = Machine::with_module();
    process(&machine, 1 << 20, "ac");
    machine.file("sys/fs/cgroup/r/memory.async_fork", "8\n");
    machine.file("dev/async_fork", statistics(|c| c[1] = 3));
    let said = succeeded(&machine.run(&["doctor", "--pid", "9"]));
    assert!(!said.contains("notice") && !said.contains("PROBLEM"), "{said}");
    assert!(said.contains("1024 MB in ordinary anonymous pages"), "{said}");
}

#[test]
fn doctor_names_what_is_wrong() {
    let machine = Machine::with_module();
    process(&machine, 1 << 20, "um");
    machine.file("sys/fs/cgroup/r/memory.async_fork", "0\n");
    machine.file("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
    machine.file("proc/sys/vm/overcommit_memory", "0\n");
    machine.file("dev/async_fork", statistics(|c| c[3] = 7));
    fs::create_dir_all(machine.0.join("proc/9/fd")).unwrap();
    std::os::unix::fs::symlink("anon_inode:[io_uring]", machine.0.join("proc/9/fd/5")).unwrap();
    let output = machine.run(&["doctor", "--pid", "9"]);
    assert_eq!(output.status.code(), Some(5));
    let said = stdout(&output);
    for part in
        ["says default fork", "7 forks", "io_uring", "userfaultfd", "set to always", "overcommit_memory"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    let json = stdout(&machine.run(&["doctor", "--pid", "9", "--json"]));
    let checks: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(checks.as_array().unwrap().iter().any(|c| c["grade"] == "problem"));
}

/// What the module says when root asks; the question is written over the first line.
const ASKED: &str =
    "..........\nasked 9 async 1 cgroup pinned\nrefused 9 pinned 3 1800000000 1800000060 redis\n";

#[test]
fn doctor_says_what_turned_a_process_back_and_since_when() {
    let machine = Machine::with_module();
    process(&machine, 1 << 20, "ac");
    machine.file("proc/async_fork_processes", ASKED);
    let output = machine.run(&["doctor", "--pid", "9"]);
    failed(&output, 5);
    let said = stdout(&output);
    for part in [
        "ok      its cgroup says Async-fork, 1 copy thread",
        "PROBLEM its next fork takes the default path all the same: the process's pages were once pinned",
        "PROBLEM its last 3 forks took the default path, since 2027-01-15T08:00:00Z (the last one at 2027-01-15T08:01:00Z)",
        "-> the mark stays for the life of the process",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn status_names_processes_that_were_turned_back() {
    let machine = Machine::with_module();
    machine.file("proc/async_fork_processes", ASKED);
    let said = succeeded(&machine.run(&["status"]));
    assert!(said.contains("process 9 (redis)"), "{said}");
    assert!(said.contains("pinned since 2027-01-15T08:00:00Z, 3 forks"), "{said}");
    let said = succeeded(&machine.run(&["status", "--json"]));
    assert!(
        said.contains(
            r#""processes_refused":[{"forks":3,"last":"2027-01-15T08:01:00Z","name":"redis","pid":9"#
        ),
        "{said}"
    );
}

/// The owner of a cgroup chooses the names below it: none of them says what else root enables.
#[test]
fn a_cgroups_name_is_no_line_of_its_own() {
    let machine = Machine::with_module();
    let root = Root::new(&machine.0);
    machine.file("sys/fs/cgroup/a/memory.async_fork", "3");
    machine.file("sys/fs/cgroup/a/x\nprocess 1 64 1/memory.async_fork", "1");
    assert_eq!(restore::keep(&root).unwrap(), 1);
    assert!(!String::from_utf8(machine.read("run/stillframe-fork/enabled")).unwrap().contains("process"));
}

#[test]
fn what_is_enabled_outlives_the_module_but_not_its_cgroup() {
    let machine = Machine::with_module();
    let root = Root::new(&machine.0);
    for (name, value) in [("a", "3"), ("a/b c", "1"), ("d", "0")] {
        machine.file(&format!("sys/fs/cgroup/{name}/memory.async_fork"), value);
    }
    assert_eq!(restore::keep(&root).unwrap(), 2);
    machine.file("sys/fs/cgroup/a/memory.async_fork", "0");
    machine.file("sys/fs/cgroup/a/b c/memory.async_fork", "0");
    fs::rename(machine.0.join("sys/fs/cgroup/a/b c"), machine.0.join("sys/fs/cgroup/elsewhere")).unwrap();
    machine.file("sys/fs/cgroup/a/b c/memory.async_fork", "0");
    let restored = restore::restore(&root);
    assert_eq!((restored.enabled, restored.gone_count), (vec!["/sys/fs/cgroup/a".to_owned()], 1));
    assert_eq!(machine.read("sys/fs/cgroup/a/memory.async_fork"), b"3");
    assert_eq!(machine.read("sys/fs/cgroup/a/b c/memory.async_fork"), b"0");
    // Once.
    assert_eq!(restore::restore(&root), restore::Restored::default());
}

#[test]
fn doctor_without_module_or_process() {
    let machine = Machine::new();
    process(&machine, 1 << 20, "ac");
    assert_eq!(machine.run(&["doctor", "--pid", "9"]).status.code(), Some(5));
    assert!(failed(&machine.run(&["doctor", "--pid", "10"]), 1).contains("no process 10"));
}

#[test]
fn a_module_file_that_is_none_is_refused_by_name() {
    let machine = Machine::new();
    machine.file("proc/sys/kernel/osrelease", "6.1.0\n");
    machine.file("junk.ko", "no module");
    let file = machine.0.join("junk.ko");
    let said = failed(&machine.run(&["load", "--path", file.to_str().unwrap()]), 1);
    assert!(said.contains("no ELF file") && said.contains("linux-headers-6.1.0"), "{said}");
    let said = failed(&machine.run(&["load", "--path", "/nowhere/x.ko"]), 1);
    assert!(said.contains("/nowhere/x.ko"), "{said}");
}
