/* SPDX-License-Identifier: GPL-2.0 */
/* Part of hook_list.h. */
AF_HOOK(ALWAYS, long, __x64_sys_swapoff, (struct pt_regs *))
AF_HOOK(ALWAYS, long, __ia32_sys_swapoff, (struct pt_regs *))
