// SPDX-License-Identifier: GPL-2.0
/* On-Demand-Fork at fork: parent and child use the same tables (paper, 3.1). */
#include <linux/slab.h>

#include "internal.h"
#include "hooks.h"

/*
 * Both entries point to the table, both are protected. Under the source's mmap_lock for writing. An entry is counted
 * before it is there: a count of 0 says that there is none (invariant 17).
 */
static int af_share_table(struct af_odf_mm *src_om, struct af_odf_mm *dst_om, pmd_t *src, unsigned long addr)
{
	struct mm_struct *src_mm = src_om->role.mm, *dst_mm = dst_om->role.mm;
	pmd_t *dst = af_pmd_alloc(dst_mm, addr);
	struct page *table = pmd_page(*src);

	if (!dst)
		return -ENOMEM;
	if (!af_pmd_is_protected(*src)) {
		atomic_long_set(af_owners(table), 1);
		atomic_long_inc(&src_om->entries);
		af_pmd_protect(src);
		compat_set_table_mm(table, src_mm);
	}
	atomic_long_inc(af_owners(table));
	af_step_atomic(AF_STEP_SHARE);
	atomic_long_inc(&dst_om->entries);
	mm_inc_nr_ptes(dst_mm);
	set_pmd(dst, af_pmd_of_table(table, true));
	atomic64_inc(&af_count.tables_shared);
	return 0;
}

static bool af_pmd_can_share(pmd_t pmd)
{
	return !pmd_none(pmd) && pmd_present(pmd) && !pmd_trans_huge(pmd) && !pmd_devmap(pmd);
}

/*
 * What lies at the edges of the VMA, in tables that others use as well, is unshared and copied by the kernel, and so
 * are huge pages. om, child: of the two mms.
 */
int af_share_vma(struct af_odf_mm *om, struct af_odf_mm *child, struct vm_area_struct *dst, struct vm_area_struct *src)
{
	unsigned long start = ALIGN(src->vm_start, PMD_SIZE), end = ALIGN_DOWN(src->vm_end, PMD_SIZE), addr;
	int ret = af_unshare_range(om, src->vm_start, start, AF_MAY_FAIL, ASYNC_FORK_BY_REFORK);

	ret = ret ?: af_unshare_range(om, end, src->vm_end, AF_MAY_FAIL, ASYNC_FORK_BY_REFORK);
	ret = ret ?: af_copy_part(dst, src, src->vm_start, start);
	for (addr = start; !ret && addr < end; addr += PMD_SIZE) {
		pmd_t *pmd = af_pmd_find(src->vm_mm, addr);

		if (!pmd)
			addr = pud_addr_end(addr, end) - PMD_SIZE;
		else if (af_pmd_can_share(*pmd))
			ret = af_share_table(om, child, pmd, addr);
		else if (!pmd_none(*pmd))
			ret = af_copy_part(dst, src, addr, addr + PMD_SIZE);
	}
	return ret ?: af_copy_part(dst, src, end, src->vm_end);
}
