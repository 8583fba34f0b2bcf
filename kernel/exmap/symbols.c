// SPDX-License-Identifier: GPL-2.0
/* The functions that the kernel does not export: there, and what they were when this was written? */
#include "internal.h"
#include "symbols.h"
#include "common/types.h"

static bool unchecked;
module_param(unchecked, bool, 0444);
MODULE_PARM_DESC(unchecked, "1: load although the kernel has no type information to check the called functions with");

EXMAP_SYMBOLS(SYMBOL_DEFINE)
SYMBOL_LOCAL(unsigned long, kallsyms_lookup_name, (const char *));

static unsigned long exmap_symbol(const char *name)
{
	return SYMBOL(kallsyms_lookup_name)(name);
}

static unsigned long lookup_needed(const char *name)
{
	unsigned long address = exmap_symbol(name);

	if (!address)
		pr_err("refused: no symbol %s in this kernel\n", name);
	return address;
}

EXMAP_SYMBOLS(SYMBOL_DEFINE_FIND)

#ifdef EXMAP_LINK_SECONDARY
/* Inlined functions of the kernel call it by its name. */
void __mmu_notifier_arch_invalidate_secondary_tlbs(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	SYMBOL(__mmu_notifier_arch_invalidate_secondary_tlbs)(mm, start, end);
}
#endif

#define EXMAP_TYPE(ret, name, args) { #name, #ret, #args },
static const struct {
	const char *name, *type, *parameters;
} exmap_functions[] = { EXMAP_SYMBOLS(EXMAP_TYPE) };

int exmap_symbols_find(void)
{
	const struct btf *btf;
	void *lookup_name;
	int ret = lookup_begin(&lookup_name), i;

	if (ret)
		return ret;
	SYMBOL_SET(kallsyms_lookup_name, lookup_name);
	EXMAP_SYMBOLS(SYMBOL_FIND)
	if (ret)
		return ret;
	btf = types_begin(exmap_symbol, unchecked);
	if (IS_ERR_OR_NULL(btf))
		return PTR_ERR(btf);
	for (i = 0; i < ARRAY_SIZE(exmap_functions); i++)
		ret = type_check(btf, exmap_functions[i].name, exmap_functions[i].type,
				 exmap_functions[i].parameters) ?: ret;
	return ret;
}
