//! Words for the module's numbers: why a table was copied, why a fork was refused and what to do about it.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copier {
    Child,
    Helper,
    Parent,
}

pub struct Reason {
    pub name: &'static str,
    pub copier: Copier,
    pub meaning: &'static str,
}

const fn reason(name: &'static str, copier: Copier, meaning: &'static str) -> Reason {
    Reason { name, copier, meaning }
}

/// By `enum async_fork_reason`.
pub const REASONS: [Reason; 17] = [
    reason("child", Copier::Child, "before the child returns to user mode"),
    reason("helper", Copier::Helper, "copy threads of the child"),
    reason("fault", Copier::Parent, "page fault of the parent"),
    reason("child_fault", Copier::Child, "access to the child's memory before its copy was complete"),
    reason("gup", Copier::Parent, "direct I/O, io_uring, ptrace"),
    reason("zap", Copier::Parent, "munmap, madvise, exit"),
    reason("mprotect", Copier::Parent, "mprotect"),
    reason("mremap", Copier::Parent, "mremap"),
    reason("walk", Copier::Parent, "page table walk: smaps, mincore, madvise"),
    reason("uffd", Copier::Parent, "userfaultfd"),
    reason("refork", Copier::Parent, "the parent forked again"),
    reason("parent_exit", Copier::Parent, "exit or exec of the parent"),
    reason("swapoff", Copier::Parent, "swapoff"),
    reason("coredump", Copier::Parent, "core dump"),
    reason("ksm", Copier::Parent, "same-page merging"),
    reason("collapse", Copier::Parent, "khugepaged, split of a huge page"),
    reason("poison", Copier::Parent, "memory failure: a broken page had to go"),
];

pub struct Refusal {
    pub name: &'static str,
    pub meaning: &'static str,
    pub advice: &'static str,
}

/// By `enum async_fork_refusal`.
pub const REFUSALS: [Refusal; 6] = [
    Refusal {
        name: "pinned",
        meaning: "the process's pages were once pinned (direct I/O, io_uring buffers, RDMA, process_vm_readv or \
                  process_vm_writev by a tracer such as strace): a device may be writing to them",
        advice: "the mark stays for the life of the process: remove the cause, then restart the process",
    },
    Refusal {
        name: "notifier",
        meaning: "KVM, RDMA or a GPU follows the process's page tables (mmu notifier)",
        advice: "nothing, as long as the process uses such a device: its forks stay the kernel's own",
    },
    Refusal {
        name: "swapoff",
        meaning: "a swapoff was under way",
        advice: "nothing: later forks are deferred again; do not run swapoff at the time of a save",
    },
    Refusal {
        name: "no_memory",
        meaning: "there was no memory for the module's own tables",
        advice: "check free memory and the memory limit of the cgroup; a save needs room for changed pages in any case",
    },
    Refusal {
        name: "unloading",
        meaning: "the module was being unloaded",
        advice: "nothing",
    },
    Refusal {
        name: "mergeable",
        meaning: "same-page merging (KSM) may hold one of the process's pages: it once used MADV_MERGEABLE",
        advice: "turn KSM off for this process (or for the machine: /sys/kernel/mm/ksm/run), then restart the process",
    },
];

pub fn reason_name(index: usize) -> String {
    REASONS.get(index).map_or_else(|| format!("reason_{index}"), |r| r.name.to_owned())
}

pub fn refusal_name(index: usize) -> String {
    REFUSALS.get(index).map_or_else(|| format!("refusal_{index}"), |r| r.name.to_owned())
}
