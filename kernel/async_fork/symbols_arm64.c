// SPDX-License-Identifier: GPL-2.0
/*
 * Two variables of the kernel, mmlist_lock and init_mm. arm64 kernels are built without KALLSYMS_ALL, so kallsyms does
 * not know variables: they are read from the text of functions that use them. A compiler that does it otherwise, or
 * anything ambiguous, and the module does not load.
 */
#include <linux/cache.h>
#include <linux/uaccess.h>

#include "internal.h"
#include "symbols.h"

/* The addresses that a function forms by an ADRP and an ADD. */
struct af_addresses {
	unsigned int count;
	unsigned long at[61];
};

static bool af_addresses_contain(const struct af_addresses *set, unsigned long address)
{
	unsigned int i;

	for (i = 0; i < set->count; i++)
		if (set->at[i] == address)
			return true;
	return false;
}

static unsigned long af_adrp_page(unsigned long at, u32 instruction)
{
	u64 distance = ((instruction >> 5) & 0x7ffff) << 2 | ((instruction >> 29) & 3);

	return (at & ~0xfffUL) + (sign_extend64(distance, 20) << 12);
}

/* In the order of the text, whatever the order of execution: the set may have too much, and is intersected. */
static int af_addresses_of(const char *function, struct af_addresses *set)
{
	int (*lookup_size)(unsigned long, unsigned long *, unsigned long *) =
		(void *)af_symbol("kallsyms_lookup_size_offset");
	unsigned long address = af_symbol(function), size, offset, at, page[32] = {};

	set->count = 0;
	if (!lookup_size || !address || !lookup_size(address, &size, &offset))
		return -ENOENT;
	for (at = address; at < address + size; at += AARCH64_INSN_SIZE) {
		u32 instruction = *(const u32 *)at, source = (instruction >> 5) & 31;

		if ((instruction & 0x9f000000) == 0x90000000) {			/* adrp */
			page[instruction & 31] = af_adrp_page(at, instruction);
		} else if ((instruction & 0xffc00000) == 0x91000000 && page[source]) {	/* add, immediate */
			unsigned long formed = page[source] + ((instruction >> 10) & 0xfff);

			if (af_addresses_contain(set, formed))
				continue;
			if (set->count == ARRAY_SIZE(set->at))
				return -E2BIG;
			set->at[set->count++] = formed;
		}
	}
	return 0;
}

/* setup_arch() notes in init_mm where the kernel's text is. */
static bool af_is_init_mm(unsigned long address)
{
	const struct mm_struct *mm = (void *)address;
	unsigned long start, end;

	return !get_kernel_nofault(start, &mm->start_code) && !get_kernel_nofault(end, &mm->end_code) &&
	       start && start == af_symbol("_stext") && end == af_symbol("_etext");
}

/*
 * mmlist_lock is what dropping an mm, unmapping a page to swap and swapoff have in common, and has a cache line of its
 * own.
 */
static bool af_is_mmlist_lock(unsigned long address, const struct af_addresses *drop,
			      const struct af_addresses *swapoff)
{
	return IS_ALIGNED(address, SMP_CACHE_BYTES) && af_addresses_contain(drop, address) &&
	       af_addresses_contain(swapoff, address);
}

int af_arch_find_variables(spinlock_t **mmlist_lock, struct mm_struct **init_mm)
{
	struct af_addresses drop, unmap, swapoff;
	unsigned int i, locks = 0, mms = 0;

	if (af_addresses_of("__mmput", &drop) || af_addresses_of("try_to_unmap_one", &unmap) ||
	    af_addresses_of("__arm64_sys_swapoff", &swapoff))
		return -ENOENT;
	for (i = 0; i < unmap.count; i++) {
		if (af_is_mmlist_lock(unmap.at[i], &drop, &swapoff)) {
			*mmlist_lock = (spinlock_t *)unmap.at[i];
			locks++;
		} else if (af_is_init_mm(unmap.at[i])) {
			*init_mm = (struct mm_struct *)unmap.at[i];
			mms++;
		}
	}
	return locks == 1 && mms == 1 ? 0 : -ENOENT;
}
