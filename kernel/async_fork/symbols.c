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
	ret = ret ?: af_symbol_find("mmlist_lock", &af_sym.mmlist_lock);
	return ret ?: af_symbol_find("init_mm", &af_sym.init_mm);
}
