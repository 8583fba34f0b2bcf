/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Is a function what we know? It is compared with the kernel's own type information (BTF), since a stable update may
 * change what a function takes. For the one file of a module that asks.
 */
#ifndef _COMMON_TYPES_H
#define _COMMON_TYPES_H

#include <linux/btf.h>
#include <linux/err.h>
#include <linux/string.h>

#include "lookup.h"

SYMBOL_LOCAL(struct btf *, bpf_get_btf_vmlinux, (void));
SYMBOL_LOCAL(s32, btf_find_by_name_kind, (const struct btf *, const char *, u8));
SYMBOL_LOCAL(const struct btf_type *, btf_type_by_id, (const struct btf *, u32));
SYMBOL_LOCAL(const char *, btf_name_by_offset, (const struct btf *, u32));

static unsigned int type_kind(const struct btf_type *type)
{
	return BTF_INFO_KIND(type->info);
}

static bool type_is_qualifier(const struct btf_type *type)
{
	unsigned int kind = type_kind(type);

	return kind == BTF_KIND_CONST || kind == BTF_KIND_VOLATILE || kind == BTF_KIND_RESTRICT ||
	       kind == BTF_KIND_TYPE_TAG;
}

static bool type_is_struct(const struct btf_type *type)
{
	return type_kind(type) == BTF_KIND_STRUCT || type_kind(type) == BTF_KIND_FWD;
}

/* The type as it is written in C, without qualifiers, as far as the types of our functions go. */
static void type_text(const struct btf *btf, u32 id, char *out, size_t size)
{
	const struct btf_type *type = id ? SYMBOL(btf_type_by_id)(btf, id) : NULL;
	unsigned int pointers = 0;
	const char *name;

	while (type && (type_kind(type) == BTF_KIND_PTR || type_is_qualifier(type))) {
		pointers += type_kind(type) == BTF_KIND_PTR;
		type = type->type ? SYMBOL(btf_type_by_id)(btf, type->type) : NULL;
	}
	name = type ? SYMBOL(btf_name_by_offset)(btf, type->name_off) : "void";
	if (!strcmp(name, "long unsigned int"))
		name = "unsigned long";
	else if (!strcmp(name, "long int"))
		name = "long";
	scnprintf(out, size, "%s%s%s%.*s", type && type_is_struct(type) ? "struct " : "", name,
		  pointers ? " " : "", pointers, "***");
}

/* 0: the function is what it was when the caller was written. Else the difference is printed. */
static int type_check(const struct btf *btf, const char *name, const char *result, const char *parameters)
{
	s32 id = SYMBOL(btf_find_by_name_kind)(btf, name, BTF_KIND_FUNC);
	const struct btf_param *parameter;
	const struct btf_type *prototype;
	char text[256] = "(", type[64];
	int i, length = 1;

	if (id < 0) {
		pr_err("refused: no type information for %s\n", name);
		return -ENOENT;
	}
	prototype = SYMBOL(btf_type_by_id)(btf, SYMBOL(btf_type_by_id)(btf, id)->type);
	parameter = (const struct btf_param *)(prototype + 1);
	for (i = 0; i < BTF_INFO_VLEN(prototype->info); i++) {
		type_text(btf, parameter[i].type, type, sizeof(type));
		length += scnprintf(text + length, sizeof(text) - length, "%s%s", i ? ", " : "", type);
	}
	scnprintf(text + length, sizeof(text) - length, "%s)", i ? "" : "void");
	type_text(btf, prototype->type, type, sizeof(type));
	if (!strcmp(text, parameters) && !strcmp(type, result))
		return 0;
	pr_err("refused: %s is %s %s in this kernel, expected is %s %s\n", name, type, text, result, parameters);
	return -EPROTO;
}

/* lookup(name): an address or 0. False: the kernel has no such function. */
#define LOOKUP(lookup, name)					\
({								\
	unsigned long address = lookup(#name);			\
								\
	if (address)						\
		SYMBOL_SET(name, address);			\
	address;						\
})

/* The kernel's type information; an error, which is printed, or NULL if it has none and that is allowed. */
static const struct btf *types_begin(unsigned long (*lookup)(const char *), bool unchecked)
{
	const struct btf *btf = NULL;

	if (LOOKUP(lookup, bpf_get_btf_vmlinux) && LOOKUP(lookup, btf_find_by_name_kind) &&
	    LOOKUP(lookup, btf_type_by_id) && LOOKUP(lookup, btf_name_by_offset))
		btf = SYMBOL(bpf_get_btf_vmlinux)();
	if (!IS_ERR_OR_NULL(btf))
		return btf;
	if (unchecked)
		return NULL;
	pr_err("refused: this kernel has no type information (BTF), see the parameter unchecked\n");
	return ERR_PTR(-ENODATA);
}

#endif
