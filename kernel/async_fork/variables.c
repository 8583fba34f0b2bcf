// SPDX-License-Identifier: GPL-2.0
/* Variables of the kernel that it does not export. */
#include "internal.h"
#include "symbols.h"

spinlock_t *af_mmlist_lock;
struct mm_struct *af_init_mm;
const void *af_ksm_walk;

/* kallsyms knows variables if it is built with KALLSYMS_ALL. */
int af_variables_find(void)
{
	int ret = 0;

	af_mmlist_lock = (spinlock_t *)af_symbol("mmlist_lock");
	af_init_mm = (struct mm_struct *)af_symbol("init_mm");
	af_ksm_walk = (const void *)af_symbol("ksm_next_page_ops");
	if (!af_mmlist_lock || !af_init_mm)
		ret = af_arch_find_variables(&af_mmlist_lock, &af_init_mm);
	if (ret)
		pr_err("refused: mmlist_lock and init_mm cannot be found in this kernel\n");
	return ret;
}
