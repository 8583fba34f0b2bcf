/* SPDX-License-Identifier: GPL-2.0 */
/* Part of hook_list.h. The first two are for walkers that on x86 take a protected entry for a bad one: hook_arm64.c. */
AF_HOOK(LIVE, struct page *, follow_page_mask,
	(struct vm_area_struct *, unsigned long, unsigned int, struct follow_page_context *))
AF_HOOK(LIVE, int, hugepage_vma_revalidate,
	(struct mm_struct *, unsigned long, bool, struct vm_area_struct **, struct collapse_control *))
AF_HOOK(ALWAYS, long, __arm64_sys_swapoff, (struct pt_regs *))
