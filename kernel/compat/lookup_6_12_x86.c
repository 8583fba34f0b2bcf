// SPDX-License-Identifier: GPL-2.0
/* Linux 6.12 on x86: whoever looks up an entry's table asks pmd_bad(), which is true for a protected entry. */
#include "async_fork/internal.h"
#include "async_fork/hooks.h"
#include "async_fork/symbols.h"

/* The text of a function; set before anything is hooked. */
struct af_text {
	const char *name;
	unsigned long start;
	unsigned long bytes;
};

static struct af_text af_rmap_text = { "page_vma_mapped_walk" };
static struct af_text af_map_text[] = {
	{ "__pte_offset_map" }, { "pte_offset_map_nolock" }, { "__pte_offset_map_lock" },
};

static unsigned long af_return_to_tracer, af_return_to_probe;	/* 0: there is none */

static bool af_is_in(const struct af_text *text, unsigned long address)
{
	return address - text->start < text->bytes;
}

static bool af_is_in_map(unsigned long address)
{
	return af_is_in(&af_map_text[0], address) || af_is_in(&af_map_text[1], address) ||
	       af_is_in(&af_map_text[2], address);
}

static int af_text_find(struct af_text *text)
{
	unsigned long offset;

	text->start = af_symbol(text->name);
	if (text->start && af_sym(kallsyms_lookup_size_offset)(text->start, &text->bytes, &offset))
		return 0;
	pr_err("refused: no function %s in this kernel\n", text->name);
	return -ENOENT;
}

int af_version_prepare(void)
{
	int i, ret = af_text_find(&af_rmap_text);

	for (i = 0; i < ARRAY_SIZE(af_map_text) && !ret; i++)
		ret = af_text_find(&af_map_text[i]);
	af_return_to_tracer = af_symbol("return_to_handler");
	af_return_to_probe = af_symbol("arch_rethook_trampoline");
	return ret;
}

/* Not one of a copy on a stack, as GUP-fast, multi-gen LRU and perf have: they read only, or their hooks have looked. */
static bool af_is_in_table(pmd_t *pmd)
{
	return virt_addr_valid(pmd) && PageTable(virt_to_page(pmd));
}

/* Where functions return to whose end is traced: their callers are not known. */
static bool af_is_traced_return(unsigned long address)
{
	return address == af_return_to_tracer || address == af_return_to_probe;
}

/*
 * The safety net: nobody but the reverse map may come to a protected table; others are synchronised by their hooks
 * before. Who does it nevertheless is let through, as he would try again and again if he were told that there is no
 * table.
 */
static void af_check_walker(pmd_t *pmd, unsigned long caller)
{
	if (af_is_in(&af_rmap_text, caller) || !af_is_in_table(pmd) || af_is_traced_return(caller))
		return;
	atomic64_inc(&af_count.bad_pmd_caught);
	WARN_ONCE(1, "async_fork: a page table walker that is not hooked met a protected table: %pS\n", (void *)caller);
}

/*
 * pte_offset_map() asks pmd_bad(), takes a protected entry for a bad one and says that there is no table, whereupon
 * page_vma_mapped_walk(), and with it reclaim and migration, would look again without end. Here the entry is what it is
 * in 6.1 for those who do not ask. Also called in NMIs, so without SRCU: these hooks do not sleep, and RCU-tasks waits
 * for them. That the entry becomes protected after the gate is possible for rmap only, which looks again.
 */
pte_t *af_hook___pte_offset_map(pmd_t *pmd, unsigned long addr, pmd_t *copy)
{
	pmd_t value = READ_ONCE(*pmd);

	if (!af_pmd_is_protected(value))
		return af_orig(__pte_offset_map)(pmd, addr, copy);
	if (!af_is_in_map(_RET_IP_))
		af_check_walker(pmd, _RET_IP_);
	rcu_read_lock();	/* until pte_unmap() */
	if (copy)
		*copy = value;
	return pte_offset_kernel(&value, addr);
}

/* The next two are hooked for their callers' sake only: the original comes to the hook above. */
pte_t *af_hook_pte_offset_map_nolock(struct mm_struct *mm, pmd_t *pmd, unsigned long addr, spinlock_t **lock)
{
	af_check_walker(pmd, _RET_IP_);
	return af_orig(pte_offset_map_nolock)(mm, pmd, addr, lock);
}

pte_t *af_hook___pte_offset_map_lock(struct mm_struct *mm, pmd_t *pmd, unsigned long addr, spinlock_t **lock)
{
	af_check_walker(pmd, _RET_IP_);
	return af_orig(__pte_offset_map_lock)(mm, pmd, addr, lock);
}

/* An entry that became protected after the gate, see above. */
bool af_bad_is_harmless(unsigned long caller)
{
	return af_is_in_map(caller);
}
