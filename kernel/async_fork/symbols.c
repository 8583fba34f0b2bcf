// SPDX-License-Identifier: GPL-2.0
/* Finding what the kernel does not export: a kprobe gives kallsyms_lookup_name(), that gives the rest. */
#include <linux/kprobes.h>

#include "internal.h"
#include "symbols.h"

struct af_symbols af_sym;

static unsigned long (*af_lookup_name)(const char *name);

/* The address of a symbol, 0 if there is none. */
unsigned long af_symbol(const char *name)
{
	return af_lookup_name(name);
}

static int af_symbol_find(const char *name, void *pointer)
{
	unsigned long address = af_symbol(name);

	if (!address) {
		pr_err("refused: no symbol %s in this kernel\n", name);
		return -ENOENT;
	}
	*(unsigned long *)pointer = address;
	return 0;
}

/* kallsyms knows variables if it is built with KALLSYMS_ALL. */
static int af_variables_find(void)
{
	int ret = 0;

	af_sym.mmlist_lock = (spinlock_t *)af_symbol("mmlist_lock");
	af_sym.init_mm = (struct mm_struct *)af_symbol("init_mm");
	if (!af_sym.mmlist_lock || !af_sym.init_mm)
		ret = af_arch_find_variables(&af_sym.mmlist_lock, &af_sym.init_mm);
	if (ret)
		pr_err("refused: mmlist_lock and init_mm cannot be found in this kernel\n");
	return ret;
}

int af_symbols_find(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	int ret = register_kprobe(&probe);

	if (ret) {
		pr_err("refused: kallsyms_lookup_name cannot be found by a kprobe (%d)\n", ret);
		return ret;
	}
	af_lookup_name = (void *)probe.addr;
	unregister_kprobe(&probe);
#define AF_SYMBOL(type, name, args)				\
	ret = ret ?: af_symbol_find(#name, &af_sym.name);
	AF_SYMBOLS
#undef AF_SYMBOL
	return ret ?: af_variables_find();
}
