/* SPDX-License-Identifier: GPL-2.0 */
/* Part of linux_6_12.h: what depends on the architecture as well. */
#define AF_VERSION_ARCH_HOOK_LIST						\
	AF_HOOK(LIVE, pmd_t *, mm_find_pmd, (struct mm_struct *, unsigned long))

#define AF_VERSION_ARCH_CALLS
#define AF_VERSION_ARCH_SYMBOLS							\
	AF_SYMBOL(void, __mmu_notifier_arch_invalidate_secondary_tlbs,		\
		  (struct mm_struct *, unsigned long, unsigned long))

/* pmd_bad() does not see that an entry is protected. */
static inline pmd_t *compat_pmd_to_wait(pmd_t *pmd, pmd_t *copy)
{
	return pmd;
}

struct compat_direct {
};

/* What a function that ftrace calls sees of the hooked one: arguments and the address to continue at. */
#define COMPAT_FTRACE_FLAGS 0
#define compat_argument(fregs, n) ftrace_regs_get_argument(fregs, n)
#define compat_continue_at(fregs, address) ftrace_regs_set_instruction_pointer(fregs, address)

#define compat_table_check_set(mm, addr, pte, value) page_table_check_ptes_set(mm, pte, value, 1)
