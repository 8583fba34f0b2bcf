/* SPDX-License-Identifier: GPL-2.0 */
/* Part of linux_6_12.h: what depends on the architecture as well. linux_6_12_arm64.h and linux_6_1_*.h are its like. */
#define AF_VERSION_ARCH_HOOK_LIST						\
	AF_HOOK(PMD_1, pte_t *, __pte_offset_map, (pmd_t *, unsigned long, pmd_t *)) \
	AF_HOOK(PMD_2, pte_t *, pte_offset_map_nolock,				\
		(struct mm_struct *, pmd_t *, unsigned long, spinlock_t **))	\
	AF_HOOK(PMD_2, pte_t *, __pte_offset_map_lock,				\
		(struct mm_struct *, pmd_t *, unsigned long, spinlock_t **))

#define AF_VERSION_ARCH_CALLS							\
	{ "__pte_offset_map", 15 },						\
	{ "pmd_clear_bad", 5 },

#define AF_VERSION_ARCH_SYMBOLS

/* For migration_entry_wait(), which takes a copy of the entry as well, and would take a protected one for a bad one. */
static inline pmd_t *compat_pmd_to_wait(pmd_t *pmd, pmd_t *copy)
{
	*copy = pmd_mkwrite_novma(READ_ONCE(*pmd));
	return copy;
}

/* Counts a call where returns are counted (retbleed=stuff), as the samples of ftrace do. */
#define COMPAT_CALL_ACCOUNT CALL_DEPTH_ACCOUNT

struct compat_direct {
	struct ftrace_ops ops;
};

int compat_attach(struct compat_direct *direct, unsigned long ip, void *trampoline);
int compat_detach(struct compat_direct *direct, unsigned long ip, void *trampoline);
