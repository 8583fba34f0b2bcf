// SPDX-License-Identifier: GPL-2.0
/* Finding what the kernel does not export: ../common/lookup.h. */
#include "internal.h"
#include "symbols.h"

#define AF_SYMBOL SYMBOL_DEFINE
AF_SYMBOLS
#undef AF_SYMBOL

SYMBOL_LOCAL(unsigned long, kallsyms_lookup_name, (const char *));

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
	return ret;
}
