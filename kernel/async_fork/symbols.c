// SPDX-License-Identifier: GPL-2.0
/* Finding what the kernel does not export: ../common/lookup.h. */
#include "internal.h"
#include "symbols.h"

#define AF_SYMBOL SYMBOL_DEFINE
AF_SYMBOLS
#undef AF_SYMBOL

SYMBOL_LOCAL(unsigned long, kallsyms_lookup_name, (const char *));

spinlock_t *af_mmlist_lock;
struct mm_struct *af_init_mm;
const void *af_ksm_walk;

/* The address of a symbol, 0 if there is none. */
unsigned long af_symbol(const char *name)
{
	return af_sym(kallsyms_lookup_name)(name);
}

static unsigned long lookup_needed(const char *name)
{
	unsigned long address = af_symbol(name);

	if (!address)
		pr_err("refused: no symbol %s in this kernel\n", name);
	return address;
}

#define AF_SYMBOL SYMBOL_DEFINE_FIND
AF_SYMBOLS
#undef AF_SYMBOL

/* kallsyms knows variables if it is built with KALLSYMS_ALL. */
static int af_variables_find(void)
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

int af_symbols_find(void)
{
	void *lookup_name;
	int ret = lookup_begin(&lookup_name);

	if (ret)
		return ret;
	SYMBOL_SET(kallsyms_lookup_name, lookup_name);
#define AF_SYMBOL SYMBOL_FIND
	AF_SYMBOLS
#undef AF_SYMBOL
	return ret ?: af_variables_find();
}
