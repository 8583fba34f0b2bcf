// SPDX-License-Identifier: GPL-2.0
/*
 * Is this the kernel we know? Before anything is hooked, each function that is hooked or called by address is compared
 * with the kernel's own type information (BTF): a stable update may change what a static function takes. And each
 * hooked function must be there once and whole: a second function of the name, or a part that the compiler split off
 * (.part, .isra, .constprop), or an inlined copy would be reached past the hook.
 */
#include <linux/err.h>
#include <linux/kallsyms.h>
#include <linux/string.h>

#include "internal.h"
#include "hooks.h"
#include "symbols.h"
#include "common/types.h"

static bool unchecked;
module_param(unchecked, bool, 0444);
MODULE_PARM_DESC(unchecked, "1: load although the kernel has no type information to check the hooked functions with");

struct af_function {
	const char *name;
	const char *type;	/* of its result */
	const char *parameters;
	unsigned int found;
	bool hooked;
	unsigned long address;
	unsigned int calls;
};

#define AF_HOOK(gate, ret, hooked_name, args)	\
	{ .name = #hooked_name, .type = #ret, .parameters = #args, .hooked = true },
#define AF_SYMBOL(ret, called_name, args)	\
	{ .name = #called_name, .type = #ret, .parameters = #args },
static struct af_function af_functions[] = {
#include "hook_list.h"
	AF_SYMBOLS
};
#undef AF_SYMBOL

SYMBOL_LOCAL(int, kallsyms_on_each_symbol, (compat_symbol_visitor, void *));

static bool af_is_fragment(const char *suffix)
{
	return !strncmp(suffix, ".part.", 6) || !strncmp(suffix, ".isra.", 6) || !strncmp(suffix, ".constprop.", 11);
}

static COMPAT_SYMBOL_VISITOR(af_count_symbol)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(af_functions); i++) {
		struct af_function *f = &af_functions[i];
		size_t length = strlen(f->name);

		if (strncmp(name, f->name, length))
			continue;
		if (!name[length] || (f->hooked && af_is_fragment(name + length)))
			f->found++;
	}
	return 0;
}

static int af_check_symbols(void)
{
	int i, ret;

	for (i = 0; i < ARRAY_SIZE(af_functions); i++)
		af_functions[i].found = 0;
	ret = af_sym(kallsyms_on_each_symbol)(af_count_symbol, NULL);
	for (i = 0; i < ARRAY_SIZE(af_functions) && !ret; i++) {
		if (af_functions[i].found == 1)
			continue;
		pr_err("refused: %s is in this kernel %u times, or in parts\n", af_functions[i].name,
		       af_functions[i].found);
		ret = -ENOTUNIQ;
	}
	return ret;
}

/*
 * Calls in the source of functions that the compiler could inline, because they are static or in the same file as a
 * caller. Fewer calls in the kernel's text mean that somewhere a copy of the function runs that is not hooked. Callers
 * that are inlined themselves only make it more.
 */
static const struct {
	const char *name;
	unsigned int at_least;
} af_calls[] = {
	AF_VERSION_CALLS
	AF_VERSION_ARCH_CALLS
};

static struct af_function *af_function_at(unsigned long address)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(af_functions); i++)
		if (af_functions[i].hooked && af_functions[i].address - address <= AF_CALL_PADDING)
			return &af_functions[i];
	return NULL;
}

/* Direct calls and jumps in the kernel's text. The target may be in the padding before a function. */
static void af_count_calls(const u8 *start, const u8 *end)
{
	unsigned long low = ULONG_MAX, high = 0;
	const u8 *at;
	int i;

	for (i = 0; i < ARRAY_SIZE(af_functions); i++) {
		struct af_function *f = &af_functions[i];

		f->calls = 0;
		f->address = af_symbol(f->name);
		if (f->hooked) {
			low = min(low, f->address);
			high = max(high, f->address);
		}
	}
	for (at = start; at <= end - AF_CALL_BYTES; at += AF_CALL_STEP) {
		unsigned long target = af_call_target(at);
		struct af_function *f;

		if (likely(target < low - AF_CALL_PADDING || target > high))
			continue;
		f = af_function_at(target);
		if (f)
			f->calls++;
	}
}

static int af_check_calls(void)
{
	const u8 *start = (const u8 *)af_symbol("_stext"), *end = (const u8 *)af_symbol("_etext");
	int i, ret = 0;

	if (!start || !end)
		return -ENOENT;
	af_count_calls(start, end);
	for (i = 0; i < ARRAY_SIZE(af_calls); i++) {
		struct af_function *f = af_function_at(af_symbol(af_calls[i].name));

		pr_debug("%s: %u calls\n", af_calls[i].name, f ? f->calls : 0);
		if (f && f->calls >= af_calls[i].at_least)
			continue;
		pr_err("refused: %s is called %u times in this kernel, expected are %u: inlined somewhere?\n",
		       af_calls[i].name, f ? f->calls : 0, af_calls[i].at_least);
		ret = -EPROTO;
	}
	return ret;
}

static int af_check_types(void)
{
	const struct btf *btf = types_begin(af_symbol, unchecked);
	int i, ret = 0;

	if (IS_ERR_OR_NULL(btf))
		return PTR_ERR(btf);
	for (i = 0; i < ARRAY_SIZE(af_functions); i++)
		ret = type_check(btf, af_functions[i].name, af_functions[i].type, af_functions[i].parameters) ?: ret;
	return ret;
}

/* After af_symbols_find(). The reason of a refusal is printed. */
int af_layout_check(void)
{
	const char *why = af_arch_refuses();
	int ret;

	if (why) {
		pr_err("refused: %s\n", why);
		return -EOPNOTSUPP;
	}
	if (!LOOKUP(af_symbol, kallsyms_on_each_symbol)) {
		pr_err("refused: no symbol kallsyms_on_each_symbol in this kernel\n");
		return -ENOENT;
	}
	ret = af_check_symbols();
	ret = ret ?: af_check_calls();
	return ret ?: af_check_types();
}
