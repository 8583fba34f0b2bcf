//! What a kernel says about whether the module can be loaded: its configuration, its lockdown, who else has hooks.

use std::process::Command;

use crate::abi::MODULE;
use crate::finding::Finding;
use crate::root::Root;

/// Options without which there is nothing to hook with, and what each is for.
const NEEDED_OPTIONS: [(&str, &str); 5] = [
    ("CONFIG_MODULES", "loadable modules"),
    ("CONFIG_KPROBES", "finding the kernel's functions"),
    ("CONFIG_KALLSYMS", "finding the kernel's functions"),
    ("CONFIG_DYNAMIC_FTRACE", "hooking the kernel's functions"),
    ("CONFIG_MEMCG", "memory.async_fork in memory cgroups"),
];
/// One of these gives a hook the registers of the function it redirects.
const REGISTER_OPTIONS: [&str; 2] = ["CONFIG_DYNAMIC_FTRACE_WITH_REGS", "CONFIG_DYNAMIC_FTRACE_WITH_ARGS"];
const SECURE_BOOT_VARIABLE: &str =
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
const CAP_SYS_MODULE: u32 = 16;

/// Everything on this machine that stands in the way of the module, or will.
pub fn findings(root: &Root) -> Vec<Finding> {
    let checks = [
        rights(root),
        modules_disabled(root),
        lockdown(root),
        signatures(root),
        switches(root),
        livepatches(root),
        foreign_hooks(root),
    ];
    let mut found: Vec<_> = checks.into_iter().flatten().collect();
    found.extend(options(root));
    found
}

fn rights(root: &Root) -> Option<Finding> {
    let status = root.text("/proc/self/status")?;
    let mask = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?.trim();
    let effective = u64::from_str_radix(mask, 16).ok()?;
    (effective & (1 << CAP_SYS_MODULE) == 0).then(|| {
        Finding::new(
            "this process may not load modules (CAP_SYS_MODULE)",
            "run it as root, outside of any container",
        )
    })
}

fn modules_disabled(root: &Root) -> Option<Finding> {
    (root.text("/proc/sys/kernel/modules_disabled")? == "1").then(|| {
        Finding::new(
            "kernel.modules_disabled is 1: no module can be loaded until the next boot",
            "load async_fork at boot, before that switch is set (/etc/modules-load.d)",
        )
    })
}

/// The mode in brackets of "none [integrity] confidentiality".
fn lockdown_mode(root: &Root) -> Option<String> {
    let text = root.text("/sys/kernel/security/lockdown")?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// Four bytes of attributes, then one of value.
fn is_secure_boot(root: &Root) -> bool {
    std::fs::read(root.path(SECURE_BOOT_VARIABLE)).is_ok_and(|bytes| bytes.get(4) == Some(&1))
}

fn lockdown(root: &Root) -> Option<Finding> {
    let mode = lockdown_mode(root).filter(|m| m != "none")?;
    let (cause, way_out) = match is_secure_boot(root) {
        true => ("Secure Boot is on", "turn Secure Boot off"),
        false => ("not by Secure Boot: the option lockdown= at boot, or a program", "boot without it"),
    };
    let advice = match mode.as_str() {
        "integrity" => format!(
            "sign async_fork.ko with a key that the firmware trusts (sign-file of the kernel's headers; mokutil \
             --import), or {way_out}"
        ),
        _ => "confidentiality forbids kprobes, which the module needs: boot with lockdown=integrity or without lockdown"
            .to_owned(),
    };
    Some(Finding::new(format!("the kernel is locked down: {mode} ({cause})"), advice))
}

fn signatures(root: &Root) -> Option<Finding> {
    (root.text("/sys/module/module/parameters/sig_enforce")? == "Y").then(|| {
        Finding::new(
            "the kernel takes signed modules only (module.sig_enforce)",
            "sign async_fork.ko with a key in the kernel's keyring, or boot without module.sig_enforce=1",
        )
    })
}

/// Only of interest to those who have no module for this kernel.
pub fn headers(root: &Root) -> Option<Finding> {
    let release = root.kernel_release();
    (!root.path(format!("/lib/modules/{release}/build/Makefile")).exists()).then(|| {
        Finding::new(
            format!(
                "the headers of kernel {release} are not installed: the module cannot be built for it here"
            ),
            format!("apt-get install linux-headers-{release} (Debian, Ubuntu), then make -C kernel"),
        )
    })
}

fn switches(root: &Root) -> Option<Finding> {
    if root.text("/proc/sys/kernel/ftrace_enabled").as_deref() == Some("0") {
        return Some(Finding::new(
            "kernel.ftrace_enabled is 0: no function can be hooked",
            "sysctl kernel.ftrace_enabled=1",
        ));
    }
    (root.text("/sys/kernel/debug/kprobes/enabled").as_deref() == Some("0"))
        .then(|| Finding::new("kprobes are disarmed", "echo 1 > /sys/kernel/debug/kprobes/enabled"))
}

fn livepatches(root: &Root) -> Option<Finding> {
    let patches = root.names("/sys/kernel/livepatch");
    (!patches.is_empty()).then(|| {
        Finding::new(
            format!("live patches are active: {}", patches.join(", ")),
            "a live patch that replaces a function which the module hooks excludes it: boot a kernel that has the fix",
        )
    })
}

/// Functions that somebody else redirects: "handle_mm_fault (1) R I" in ftrace's own list.
fn foreign_hooks(root: &Root) -> Option<Finding> {
    let enabled = root.text("/sys/kernel/tracing/enabled_functions")?;
    let redirected =
        enabled.lines().filter(|l| l.split_whitespace().any(|word| word == "I") && !l.contains(MODULE));
    let names: Vec<_> = redirected.filter_map(|l| l.split_whitespace().next()).collect();
    (!names.is_empty() && !root.is_module_loaded()).then(|| {
        Finding::new(
            format!("other code redirects functions of the kernel: {}", names.join(", ")),
            "a function can be redirected by one only: unload the other (live patch, tracing or security module)",
        )
    })
}

fn options(root: &Root) -> Vec<Finding> {
    let Some(config) = configuration(root) else { return Vec::new() };
    let is_set = |option: &str| config.lines().any(|l| l.strip_prefix(option).is_some_and(|v| v == "=y"));
    let advice = "use a kernel that is built with it (the stock kernels of Debian and Ubuntu are)";
    let missing = NEEDED_OPTIONS.iter().filter(|(option, _)| !is_set(option));
    let mut found: Vec<_> = missing
        .map(|(option, purpose)| {
            Finding::new(format!("the kernel was built without {option} ({purpose})"), advice)
        })
        .collect();
    if !REGISTER_OPTIONS.iter().any(|o| is_set(o)) {
        let what =
            format!("the kernel was built without {} (hooking)", REGISTER_OPTIONS.join(" and without "));
        found.push(Finding::new(what, advice));
    }
    found
}

/// The kernel's configuration from where distributions put it, else from the kernel itself.
fn configuration(root: &Root) -> Option<String> {
    let release = root.kernel_release();
    let plain = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
    if let Some(text) = plain.iter().find_map(|path| root.text(path)) {
        return Some(text);
    }
    let packed = root.path("/proc/config.gz");
    if !packed.exists() {
        return None;
    }
    let output = Command::new("gzip").arg("-dc").arg(packed).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What the kernel's taint mask says about modules, if anything.
pub fn taint(root: &Root) -> Option<String> {
    let mask: u64 = root.text("/proc/sys/kernel/tainted")?.parse().ok()?;
    let marks = [(1 << 12, "O: a module from outside the kernel's tree"), (1 << 13, "E: an unsigned module")];
    let set: Vec<_> = marks.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, text)| *text).collect();
    (!set.is_empty()).then(|| {
        format!("the kernel is marked as tainted ({mask}; {}), as by any such module", set.join("; "))
    })
}
