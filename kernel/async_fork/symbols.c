// SPDX-License-Identifier: GPL-2.0
/* Finding what the kernel does not export: a kprobe gives kallsyms_lookup_name(), that gives the rest. */
#include <linux/kprobes.h>

#include "internal.h"
#include "symbols.h"

#define AF_SYMBOL(ret, name, args) DEFINE_STATIC_CALL_NULL(af_sym_##name, af_type_##name);
AF_SYMBOLS
#undef AF_SYMBOL

AF_DEFINE_CALL(unsigned long, kallsyms_lookup_name, (const char *));

spinlock_t *af_mmlist_lock;
struct mm_struct *af_init_mm;
const void *af_ksm_walk;

/* The address of a symbol, 0 if there is none. */
unsigned long af_symbol(const char *name)
{
	return af_sym(kallsyms_lookup_name)(name);
}

static unsigned long af_symbol_needed(const char *name)
{
	unsigned long address = af_symbol(name);

	if (!address)
		pr_err("refused: no symbol %s in this kernel\n", name);
	return address;
}

#define AF_SYMBOL(type, name, args)				\
static int af_find_##name(void)					\
{								\
	unsigned long address = af_symbol_needed(#name);	\
								\
	if (address)						\
		af_call_set(af_sym_##name, address);		\
	return address ? 0 : -ENOENT;				\
}
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
	/* Never armed, only its address is wanted: with ftrace off, arming would leave something behind in its records. */
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name", .flags = KPROBE_FLAG_DISABLED };
	int ret = register_kprobe(&probe);

	if (ret) {
		pr_err("refused: kallsyms_lookup_name cannot be found by a kprobe (%d)\n", ret);
		return ret;
	}
	af_call_set(af_sym_kallsyms_lookup_name, probe.addr);
	unregister_kprobe(&probe);
#define AF_SYMBOL(type, name, args)				\
	ret = ret ?: af_find_##name();
	AF_SYMBOLS
#undef AF_SYMBOL
	return ret ?: af_variables_find();
}
