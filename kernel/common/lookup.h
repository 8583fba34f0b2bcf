/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Finding what the kernel does not export, for all modules here: a kprobe gives kallsyms_lookup_name(), that gives the
 * rest. A module's list of functions is a macro NAME_SYMBOLS(X) of X(return type, name, (parameter types)).
 *
 * SYMBOL(name)(...) calls one. A static call, which becomes a direct one on x86: an indirect call of a function that
 * the kernel itself calls only directly may be a control protection exception (CONFIG_X86_KERNEL_IBT seals such
 * functions).
 */
#ifndef _COMMON_LOOKUP_H
#define _COMMON_LOOKUP_H

#include <linux/kprobes.h>
#include <linux/static_call.h>

#define SYMBOL(name) static_call(symbol_##name)

#define SYMBOL_DECLARE(ret, name, args)				\
	extern ret symbol_type_##name args;	/* only its type */	\
	DECLARE_STATIC_CALL(symbol_##name, symbol_type_##name);

#define SYMBOL_DEFINE(ret, name, args) DEFINE_STATIC_CALL_NULL(symbol_##name, symbol_type_##name);

/* For one file, where the address comes from elsewhere. */
#define SYMBOL_LOCAL(ret, name, args)				\
	extern ret symbol_type_##name args;			\
	DEFINE_STATIC_CALL_NULL(symbol_##name, symbol_type_##name)

/* Points a call to an address. */
#define SYMBOL_SET(name, address)				\
	__static_call_update(&STATIC_CALL_KEY(symbol_##name), STATIC_CALL_TRAMP_ADDR(symbol_##name), (void *)(address))

/* Defines, in the one file of a module that looks symbols up, find_NAME(): 0, or it says what is missing. */
#define SYMBOL_DEFINE_FIND(ret, name, args)			\
static int find_##name(void)					\
{								\
	unsigned long address = lookup_needed(#name);		\
								\
	if (address)						\
		SYMBOL_SET(name, address);			\
	return address ? 0 : -ENOENT;				\
}

#define SYMBOL_FIND(type, name, args) ret = ret ?: find_##name();

/* The address of kallsyms_lookup_name(), or an error, which is printed. */
static inline int lookup_begin(void **function)
{
	/* Never armed, only its address is wanted: with ftrace off, arming would leave something in its records. */
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name", .flags = KPROBE_FLAG_DISABLED };
	int ret = register_kprobe(&probe);

	if (ret) {
		pr_err("refused: kallsyms_lookup_name cannot be found by a kprobe (%d)\n", ret);
		return ret;
	}
	*function = probe.addr;
	unregister_kprobe(&probe);
	return 0;
}

#endif
