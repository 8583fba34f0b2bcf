/* SPDX-License-Identifier: GPL-2.0 */
/* Part of linux_6_1.h: what depends on the architecture as well. linux_6_12_x86.h has the same names. */
#define AF_VERSION_ARCH_HOOK_LIST
#define AF_VERSION_ARCH_CALLS
#define AF_VERSION_ARCH_SYMBOLS

/* Counts a call where the kernel counts returns, which this one does not. */
#define COMPAT_CALL_ACCOUNT ""

struct compat_direct {
};

static inline int compat_attach(struct compat_direct *direct, unsigned long ip, void *trampoline)
{
	return register_ftrace_direct(ip, (unsigned long)trampoline);
}

static inline int compat_detach(struct compat_direct *direct, unsigned long ip, void *trampoline)
{
	return unregister_ftrace_direct(ip, (unsigned long)trampoline);
}
