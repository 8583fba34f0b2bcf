//! `stillframe-bench fork` and `exmap`: in virtual machines where they can run, and with a script in the emulator's place.
//!
//! Emulated, the real machines take minutes: `make test-all` runs this suite.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use stillframe_testkit::{find_program, within, TempDir};

mod running;

use running::{bench, on_path, positive, raw_results, run_dir, skipped, BENCH};

/// Boots two virtual machines under software emulation. The kernel's own tests are `make -C kernel selftest`.
#[test]
fn fork_in_a_virtual_machine() {
    if !["qemu-system-x86_64", "busybox", "redis-server"].iter().all(|name| on_path(name)) {
        return skipped("fork", "qemu-system-x86, busybox-static or redis-server is not installed");
    }
    let dir = TempDir::new("fork");
    let path = dir.to_str().unwrap();
    let table = bench(&["fork", "--small", "--parts", "costs,fork", "--out", path, "--data", path]);
    assert!(table.contains("On-Demand-Fork") && table.contains("not measured"), "{table}");
    let run = run_dir(&dir, "fork");
    assert!(std::fs::metadata(run.join("time.svg")).unwrap().len() > 500);
    let results = raw_results(&run);
    for path in ["futex", "vmsplice", "reclaim", "migrate"] {
        let of = |label| results.iter().filter(move |r| r["path"] == path && r["label"] == label).count();
        // In turn, twice; then beside a process that shares tables.
        assert_eq!((of("unloaded"), of("loaded"), of("shared")), (6, 6, 3), "{path}");
    }
    let forks: Vec<_> = results.iter().filter(|r| r["kind"] == "fork").collect();
    // Two sizes, five strategies.
    assert_eq!(forks.len(), 10);
    assert!(forks.iter().filter(|r| r["strategy"] == "4").all(|r| r["forks_async"] == 1));
}

/// Every part; what is measured is held against what the module promises.
#[test]
fn exmap_in_a_virtual_machine() {
    if !["qemu-system-x86_64", "busybox", "mke2fs"].iter().all(|name| on_path(name)) {
        return skipped("exmap", "qemu-system-x86, busybox-static or e2fsprogs is not installed");
    }
    let dir = TempDir::new("exmap");
    let path = dir.to_str().unwrap();
    let table = bench(&["exmap", "--small", "--out", path, "--data", path]);
    assert!(!table.contains("not measured"), "{table}");
    let run = run_dir(&dir, "exmap");
    for figure in ["churn", "threads", "reads"] {
        assert!(std::fs::metadata(run.join(format!("{figure}.svg"))).unwrap().len() > 500, "{figure}");
    }
    let results = raw_results(&run);
    let churns: Vec<_> = results.iter().filter(|r| r["kind"] == "churn" && r["way"] == "exmap").collect();
    // One thread with two batches; one and two threads, twice.
    assert_eq!(churns.len(), 2 + 2 * 4);
    for churn in &churns {
        let of = |field: &str| churn[field].as_u64().unwrap();
        assert_eq!(of("shootdowns") * of("batch"), of("pages"), "{churn}");
    }
    let told = churns.iter().filter(|r| r["run"] == "interrupts" && r["threads"] == 2);
    assert!(told.clone().count() > 0 && told.map(|r| r["tlb_interrupts"].as_u64().unwrap()).sum::<u64>() > 0);
    let stolen = |way: &str| {
        let own = results.iter().filter(|r| r["run"] == "churn" && r["way"] == way && r["batch"] == 512);
        own.map(|r| r["frames_stolen"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((stolen("exmap"), stolen("exmap_stealing")), (0, 1024));
    for work in ["lookups", "batches", "tpcc"] {
        for backend in ["vmcache", "array", "exmap"] {
            let mut own = results.iter().filter(|r| r["work"] == work && r["backend"] == backend);
            let one = own.next().unwrap_or_else(|| panic!("no {work} on {backend}"));
            positive(&one["count"]);
            positive(&one["evicted_pages"]);
            assert_eq!(one["shootdowns"].as_u64().unwrap() > 0, backend == "exmap", "{one}");
        }
    }
    assert_eq!(results.iter().filter(|r| r["kind"] == "access").count(), 2 * 10);
}

/// Programs of another name that do what a test needs of them, first on the path.
fn fake_program(dir: &Path, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Whether machines can be prepared whose emulator is a script.
fn can_fake_machines() -> bool {
    if !["python3", "gcc", "make", "strip", "cpio", "setpriv"].iter().all(|name| on_path(name)) {
        skipped("fork", "python3, gcc, make, strip, cpio or setpriv is not installed");
        return false;
    }
    if !Path::new(BENCH).with_file_name("stillframe-fork").is_file() {
        skipped("fork", "stillframe-fork is not built in this target directory");
        return false;
    }
    true
}

fn kernel_source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel")
}

/// Files for `fork` where no machine is meant to run: what it puts into one, and a script in the emulator's place.
fn fake_machine(dir: &Path, emulator: &str) {
    fake_program(
        dir,
        "qemu-system-x86_64",
        &format!("[ \"$1\" = --version ] && echo fake && exit\n{emulator}"),
    );
    fake_program(dir, "busybox", "");
    std::os::unix::fs::symlink("/bin/true", dir.join("redis-server")).unwrap();
    std::fs::write(dir.join("vmlinuz-6.1.0"), "").unwrap();
}

fn path_with(dir: &Path) -> String {
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap())
}

/// `fork` with such files, from the shell, so that more can be said before the program's name.
fn fork_command(dir: &Path, before: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(before).arg(BENCH);
    command.args(["fork", "--small", "--parts", "threads", "--module", "/bin/true", "--image"]);
    command.arg(dir.join("vmlinuz-6.1.0")).arg("--kernel-source").arg(kernel_source());
    command.arg("--out").arg(dir.join("out")).arg("--data").arg(dir).env("PATH", path_with(dir));
    command.stdin(Stdio::null());
    command
}

/// Gone, or dead and not yet collected by whoever inherited it.
fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |text| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])))
}

/// With a program that sleeps in the emulator's place.
#[test]
fn an_emulator_does_not_outlive_a_killed_benchmark() {
    if !can_fake_machines() {
        return;
    }
    for signal in ["INT", "TERM", "KILL"] {
        let dir = TempDir::new("killed");
        let noted = dir.join("pid");
        fake_machine(&dir, &format!("echo $$ > {0}.new\nmv {0}.new {0}\nexec sleep 600", noted.display()));
        // Jobs that a shell starts in the background ignore SIGINT, and so do their children.
        let mut bench = fork_command(&dir, &["--default-signal=INT"]).stderr(Stdio::null()).spawn().unwrap();
        assert!(within(Duration::from_secs(60), || noted.exists()), "the emulator was not started");
        let emulator = std::fs::read_to_string(&noted).unwrap().trim().to_owned();
        assert!(!is_gone(&emulator));
        let pid = bench.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        assert!(!bench.wait().unwrap().success());
        assert!(
            within(Duration::from_secs(10), || is_gone(&emulator)),
            "SIG{signal}: the emulator {emulator} lives on"
        );
    }
}

/// What a machine did wrong is said, with the end of its console, and nothing of it stays.
#[test]
fn a_machine_that_fails_is_a_clear_error() {
    if !can_fake_machines() {
        return;
    }
    let died = "threads: the machine stopped before its plan was done; its console ended with\nKernel panic";
    let record = r#"echo '{"kind": "fork", "mb": 1}'; echo the plan is done; exec sleep 600"#;
    let cases = [
        ("exit 0", died),
        ("exit 3", "threads: QEMU ended with 3; its console"),
        ("echo sh: not found", "threads: the plan said 'sh: not found', which is no record; its console"),
        ("echo 7", "threads: the plan said '7'"),
        (
            r#"echo '{"error": "open: no"}'; exec sleep 600"#,
            "threads: open: no; its console ended with\nKernel panic",
        ),
        (r#"echo '{"kind": "news"}'; exec sleep 600"#, "unknown variant `news`"),
        (record, "missing field `strategy`"),
    ];
    for (says, expected) in cases {
        let dir = TempDir::new("fails");
        // The emulator's own words are no records.
        let console =
            "for a in \"$@\"; do case $a in file:*) echo Kernel panic > \"${a#file:}\" ;; esac; done";
        fake_machine(&dir, &format!("echo warning: old >&2\n{console}\n{says}"));
        let out = fork_command(&dir, &[]).output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && stderr.contains(expected), "{says}:\n{stderr}");
        assert!(!stderr.contains("Traceback"), "{says}:\n{stderr}");
        let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_str().unwrap().starts_with("stillframe-bench-")), "{left:?}");
    }
}

/// Each before any machine is started.
#[test]
fn what_no_machine_can_run_without_is_named() {
    if !can_fake_machines() {
        return;
    }
    let dir = TempDir::new("without");
    fake_machine(&dir, "exit 1");
    let said = |extra: &[&str], path: &str| {
        let out = fork_command(&dir, &[]).args(extra).env("PATH", path).output().unwrap();
        assert!(!out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    let path = path_with(&dir);
    let image = said(&["--image", "/nowhere/vmlinuz-6.1.0"], &path);
    assert!(image.contains("no kernel image /nowhere/vmlinuz-6.1.0"), "{image}");
    let source = said(&["--kernel-source", "/nowhere"], &path);
    assert!(source.contains("--kernel-source DIR"), "{source}");
    // A path with everything but one program.
    let bin = TempDir::new("bin");
    for name in
        ["env", "setpriv", "qemu-system-x86_64", "gcc", "make", "strip", "ldd", "busybox", "redis-server"]
    {
        let at = find_program(Path::new(name)).unwrap_or_else(|| dir.join(name));
        std::os::unix::fs::symlink(at, bin.join(name)).unwrap();
    }
    let bin_path = bin.to_str().unwrap();
    assert!(said(&[], bin_path).contains("python3 not found: apt-get install python3"));
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let python = String::from_utf8(python.stdout).unwrap();
    std::os::unix::fs::symlink(python.trim(), bin.join("python3")).unwrap();
    let cpio = said(&[], bin_path);
    assert!(cpio.contains("cpio not found: apt-get install qemu-system-x86 "), "{cpio}");
}

/// The driver by itself: a machine that says nothing is not waited for, and is ended.
#[test]
fn a_silent_machine_is_ended() {
    if !can_fake_machines() {
        return;
    }
    let dir = TempDir::new("silent");
    let noted = dir.join("pid");
    fake_machine(&dir, &format!("echo $$ > {}\nexec sleep 600", noted.display()));
    let boot =
        serde_json::json!({"clock": "host", "cpu_count": 1, "memory_mb": 64, "parameters": "", "plan": ""});
    let job = serde_json::json!({
        "kernel": dir.join("vmlinuz-6.1.0"), "headers": null, "module": "/bin/true", "directory": &*dir,
        "module_name": "async_fork", "bench": "fork_bench", "commands": [], "kernel_modules": [], "programs": [],
        "silence_seconds": 1, "boots": [boot],
    });
    let mut driver = Command::new("python3")
        .arg(kernel_source().join("bench/run"))
        .env("PATH", path_with(&dir))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    driver.stdin.take().unwrap().write_all(job.to_string().as_bytes()).unwrap();
    let said = String::from_utf8(driver.wait_with_output().unwrap().stdout).unwrap();
    let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 2, "{said}");
    assert_eq!((&events[0]["event"], &events[0]["emulator"]), (&"ready".into(), &"fake".into()));
    assert!(
        events[1]["why"].as_str().unwrap().starts_with("nothing was heard of the machine for 1 s"),
        "{said}"
    );
    let emulator = std::fs::read_to_string(&noted).unwrap();
    assert!(is_gone(emulator.trim()), "the emulator lives on");
}
