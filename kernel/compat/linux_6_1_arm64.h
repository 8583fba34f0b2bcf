/* SPDX-License-Identifier: GPL-2.0 */
/* Part of linux_6_1.h: what depends on the architecture as well. linux_6_12_arm64.h has the same names. */
/* For walkers that on x86 take a protected entry for a bad one. */
#define AF_VERSION_ARCH_HOOK_LIST						\
	AF_HOOK(LIVE, struct page *, follow_page_mask,				\
		(struct vm_area_struct *, unsigned long, unsigned int, struct follow_page_context *)) \
	AF_HOOK(LIVE, int, hugepage_vma_revalidate,				\
		(struct mm_struct *, unsigned long, bool, struct vm_area_struct **, struct collapse_control *))

#define AF_VERSION_ARCH_CALLS { "follow_page_mask", 2 }, { "hugepage_vma_revalidate", 3 },
#define AF_VERSION_ARCH_SYMBOLS

struct compat_direct {
};

/* What a function that ftrace calls sees of the hooked one: all registers. */
#define COMPAT_FTRACE_FLAGS FTRACE_OPS_FL_SAVE_REGS
#define compat_argument(fregs, n) (ftrace_get_regs(fregs)->regs[n])
#define compat_continue_at(fregs, address) instruction_pointer_set(ftrace_get_regs(fregs), address)

#define compat_table_check_set(mm, addr, pte, value) page_table_check_pte_set(mm, addr, pte, value)
