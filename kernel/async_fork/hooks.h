/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _AF_HOOKS_H
#define _AF_HOOKS_H

#include <linux/mm.h>
#include <linux/srcu.h>

struct mmu_gather;
struct zap_details;
struct mm_walk;
struct pt_regs;
struct follow_page_context;
struct collapse_control;

/*
 * For each hooked function NAME: af_hook_NAME(), entered in its place, and af_orig_NAME, which runs the original.
 * A hook holds af_srcu from its first statement to its last: unloading waits for it.
 */
#define AF_HOOK(gate, ret, name, args)	\
	AF_DECLARE_ENTRY(name)		\
	ret af_hook_##name args;	\
	extern ret (*af_orig_##name) args;
#include "hook_list.h"

extern struct srcu_struct af_srcu;

/* When a hook is entered: hook_list.h. */
enum af_gate { AF_WHEN_LIVE, AF_WHEN_VMA, AF_WHEN_TRACKED, AF_WHEN_ALWAYS };

struct af_hook {
	const char *name;
	enum af_gate gate;
	void *entry;		/* of the hook, or of what tests its gate */
	void *orig;		/* where to store the address past the entry */
	unsigned long ip;	/* of the call at the entry; 0: not to be attached */
};

int af_hooks_attach(void);
void af_hooks_detach(void);

/* arch_*.c */
int af_arch_attach(struct af_hook *hooks, int count);
void af_arch_detach(struct af_hook *hooks, int count);

#endif
