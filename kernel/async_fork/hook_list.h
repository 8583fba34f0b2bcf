/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel functions that are hooked: AF_HOOK(gate, return type, name, parameter types).
 *
 * Detectors come first and what starts a session last: while the list is attached, no table is protected yet.
 * The gate decides in the trampoline whether the hook is entered at all. LIVE: if a session or a process with shared
 * tables exists. VMA: if, besides, the mm of the VMA in the first parameter may be one of them. PMD_1, PMD_2, PMD_3: if,
 * besides, the PMD entry that the first, second, third parameter points to is protected. TRACKED: if some process is
 * live or has a setting of its own. ALWAYS: where a fork that begins between the gate and the work of the function must
 * be noticed afterwards (docs/internals/kernel-module.md, Gates). What only some versions have is in compat/linux_*.h.
 */
AF_HOOK(LIVE, void, pmd_clear_bad, (pmd_t *))
AF_HOOK(VMA, vm_fault_t, handle_mm_fault, (struct vm_area_struct *, unsigned long, unsigned int, struct pt_regs *))
AF_HOOK(LIVE, void, unmap_page_range,
	(struct mmu_gather *, struct vm_area_struct *, unsigned long, unsigned long, struct zap_details *))
AF_HOOK(LIVE, unsigned long, change_prot_numa, (struct vm_area_struct *, unsigned long, unsigned long))
AF_HOOK(LIVE, int, __walk_page_range, (unsigned long, unsigned long, struct mm_walk *))
AF_HOOK(LIVE, bool, __oom_reap_task_mm, (struct mm_struct *))
AF_HOOK(LIVE, struct page *, get_dump_page, (unsigned long))
AF_HOOK(ALWAYS, bool, try_to_unmap_one, (struct folio *, struct vm_area_struct *, unsigned long, void *))
AF_HOOK(ALWAYS, bool, try_to_migrate_one, (struct folio *, struct vm_area_struct *, unsigned long, void *))
AF_VERSION_HOOK_LIST
AF_VERSION_ARCH_HOOK_LIST
#include AF_ARCH_HOOK_LIST
AF_HOOK(TRACKED, void, exit_mmap, (struct mm_struct *))
AF_HOOK(LIVE, void, wake_up_new_task, (struct task_struct *))
AF_HOOK(LIVE, int, copy_page_range, (struct vm_area_struct *, struct vm_area_struct *))
AF_FORK_HOOK_LIST

#undef AF_HOOK
