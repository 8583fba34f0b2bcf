/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _AF_HOOKS_H
#define _AF_HOOKS_H

#include <linux/mm.h>
#include <linux/srcu.h>
#include <linux/static_call.h>

#include "compat.h"

struct mmu_gather;
struct zap_details;
struct mm_walk;
struct pt_regs;
struct follow_page_context;
struct collapse_control;
struct userfaultfd_ctx;
struct dev_pagemap;

/*
 * For each hooked function NAME: af_hook_NAME(), entered in its place, and af_orig(NAME)(...), which runs the original.
 * A hook that can sleep holds af_srcu from its first statement to its last: unloading waits for it.
 */
#define AF_HOOK(gate, ret, name, args)	\
	AF_DECLARE_ENTRY(name)		\
	ret af_hook_##name args;	\
	DECLARE_STATIC_CALL(af_orig_##name, af_hook_##name);
#include "hook_list.h"

#define af_orig(name) static_call(af_orig_##name)

extern struct srcu_struct af_srcu;

/* When a hook is entered: hook_list.h. */
enum af_gate {
	AF_WHEN_LIVE, AF_WHEN_VMA, AF_WHEN_PMD_1, AF_WHEN_PMD_2, AF_WHEN_PMD_3, AF_WHEN_TRACKED, AF_WHEN_ALWAYS
};

struct af_hook {
	const char *name;
	enum af_gate gate;
	void *entry;		/* of the hook, or of what tests its gate */
	struct static_call_key *key;	/* of the call of the original, which begins past the entry */
	void *call;
	struct compat_direct direct;
	unsigned long ip;	/* of the call at the entry; 0: not to be attached */
};

int af_hooks_attach(void);
void af_hooks_detach(void);

/* hook_gup.c, ../compat: the hook of GUP-fast and its original, whatever the function is called. */
int af_gup_fast(unsigned long start, unsigned long nr_pages, unsigned int flags, struct page **pages);
int af_orig_gup_fast(unsigned long start, unsigned long nr_pages, unsigned int flags, struct page **pages);

/* ../compat; the first before anything is hooked */
int af_version_prepare(void);
bool af_bad_is_harmless(unsigned long caller);
bool af_uffd_is_filling(struct mm_struct *mm);

/* arch_*.c */
int af_arch_attach(struct af_hook *hooks, int count);
void af_arch_detach(struct af_hook *hooks, int count);

#endif
