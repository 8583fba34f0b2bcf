/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _AF_HOOKS_H
#define _AF_HOOKS_H

#include <linux/mm.h>
#include <linux/srcu.h>

struct mmu_gather;
struct zap_details;
struct mm_walk;
struct pt_regs;

/*
 * For each hooked function NAME: af_hook_NAME(), entered in its place, and af_orig_NAME, which runs the original.
 * A hook holds af_srcu from its first statement to its last: unloading waits for it.
 */
#define AF_HOOK(gate, ret, name, args)	\
	ret af_hook_##name args;	\
	extern ret (*af_orig_##name) args;
#include "hook_list.h"

extern struct srcu_struct af_srcu;

int af_hooks_attach(void);
void af_hooks_detach(void);

#endif
