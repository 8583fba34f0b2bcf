/* SPDX-License-Identifier: GPL-2.0 */
/* Part of hook_list.h. */
AF_HOOK(ALWAYS, long, __arm64_sys_swapoff, (struct pt_regs *))
