// SPDX-License-Identifier: GPL-2.0
/* Upper levels of page tables, and the allocation of tables. */
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <asm/pgalloc.h>

#include "internal.h"
#include "symbols.h"

#ifdef AF_TABLE_LOCKS_ALLOCATED
/* What inline functions of the kernel's headers call to make and free a table, and what the kernel does not export. */
bool ptlock_alloc(COMPAT_TABLE *table)
{
	return af_sym(ptlock_alloc)(table);
}

void ptlock_free(COMPAT_TABLE *table)
{
	af_sym(ptlock_free)(table);
}
#endif

/*
 * Lockdep knows a lock by where it was initialised. For a table that we make this is our text, and the table stays when
 * the module goes: it takes over what lockdep knows of the table that it is copied from, in the end the kernel's own.
 */
void af_table_lock_class(pte_t *like, pte_t *new)
{
#if defined(CONFIG_LOCKDEP) && defined(AF_TABLE_LOCKS_ALLOCATED)
	const struct lockdep_map *map = &ptlock_ptr(compat_table_of(virt_to_page(like)))->dep_map;

	lockdep_set_class_and_name(ptlock_ptr(compat_table_of(virt_to_page(new))), map->key, map->name);
#endif
}

/* The PMD entry of an address; NULL if an upper level is missing or maps a huge page. */
pmd_t *af_pmd_find(struct mm_struct *mm, unsigned long addr)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d;
	pud_t *pud;

	if (pgd_none(*pgd))
		return NULL;
	p4d = p4d_offset(pgd, addr);
	if (p4d_none(*p4d))
		return NULL;
	pud = pud_offset(p4d, addr);
	if (pud_none(*pud) || pud_trans_huge(*pud) || pud_devmap(*pud))
		return NULL;
	return pmd_offset(pud, addr);
}

/* The same, with the upper levels made where they are missing. NULL: no memory. */
pmd_t *af_pmd_alloc(struct mm_struct *mm, unsigned long addr)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d;
	pud_t *pud;

	if (pgd_none(*pgd) && (af_allocation_fails() || af_p4d_alloc(mm, pgd, addr)))
		return NULL;
	p4d = p4d_offset(pgd, addr);
	if (p4d_none(*p4d) && (af_allocation_fails() || af_sym(__pud_alloc)(mm, p4d, addr)))
		return NULL;
	pud = pud_offset(p4d, addr);
	if (pud_none(*pud) && (af_allocation_fails() || af_sym(__pmd_alloc)(mm, pud, addr)))
		return NULL;
	return pmd_offset(pud, addr);
}

/*
 * A table for a session. The kernel charges tables (__GFP_ACCOUNT) to the running task's memcg, and those of kernel
 * threads to nobody; this one is the child's, so the child's memcg pays, whoever copies. memcg == NULL: the child does
 * not run yet. __GFP_RETRY_MAYFAIL: if there is no memory the session fails and the child is killed; the OOM killer
 * would choose the parent, which is larger.
 */
pgtable_t af_table_alloc_for(struct mm_struct *child, struct mem_cgroup *memcg)
{
	struct mem_cgroup *old;
	pgtable_t table;

	if (af_allocation_fails())
		return NULL;
	if (!memcg)
		return __pte_alloc_one(child, GFP_PGTABLE_USER | __GFP_RETRY_MAYFAIL);
	old = set_active_memcg(memcg);
	table = __pte_alloc_one(child, GFP_PGTABLE_USER | __GFP_RETRY_MAYFAIL);
	set_active_memcg(old);
	return table;
}

/* A private table for an mm that needs one itself, as for any fault. */
pgtable_t af_table_alloc(struct mm_struct *mm)
{
	return af_allocation_fails() ? NULL : __pte_alloc_one(mm, GFP_PGTABLE_USER);
}

/*
 * For callers that cannot fail: munmap, mprotect and mremap have no way back at that point, and a shared table that is
 * not unshared would stay mapped. What can fail forever is the charge to a memcg at its limit, so from the second
 * attempt on the page is not charged.
 */
pgtable_t af_table_alloc_nofail(struct mm_struct *mm)
{
	pgtable_t table = af_table_alloc(mm);

	while (!table) {
		table = __pte_alloc_one(mm, GFP_PGTABLE_KERNEL | __GFP_NOFAIL);
		if (!table)	/* no memory for the table's lock, in kernels where that is separate */
			schedule_timeout_uninterruptible(1);
	}
	return table;
}
