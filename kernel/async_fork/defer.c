// SPDX-License-Identifier: GPL-2.0
/* The parent's side at fork: what of a VMA is left to the child. */
#include <linux/slab.h>
#include <linux/userfaultfd_k.h>

#include "internal.h"
#include "hooks.h"

/*
 * Private anonymous memory, and of that only tables that one VMA covers wholly. Refused: what a driver maps, what
 * userfaultfd or KSM watches (their walkers change tables in places that are not hooked), VM_HUGETLB, shadow stacks. The
 * same for both strategies.
 */
bool af_vma_can_defer(struct vm_area_struct *vma)
{
	const unsigned long refused = VM_SHARED | VM_HUGETLB | VM_PFNMAP | VM_MIXEDMAP | VM_IO | VM_WIPEONFORK |
				      VM_MERGEABLE | COMPAT_VM_SHADOW_STACK | __VM_UFFD_FLAGS;

	return vma_is_anonymous(vma) && vma->anon_vma && !vma->vm_userfaultfd_ctx.ctx &&
	       !(vma->vm_flags & refused) &&
	       ALIGN(vma->vm_start, PMD_SIZE) < ALIGN_DOWN(vma->vm_end, PMD_SIZE);
}

/*
 * The kernel's copy for a part of a VMA. copy_page_range() reads bounds, flags, mm, vm_ops, anon_vma and page offset
 * of the two VMAs and changes nothing in them, so it can be given shortened copies; they are on no list or tree, and
 * file VMAs, which have an interval tree to be found in, do not come here.
 */
int af_copy_part(struct vm_area_struct *dst, struct vm_area_struct *src, unsigned long start, unsigned long end)
{
	struct vm_area_struct *part;
	int ret;

	if (start >= end)
		return 0;
	if (af_allocation_fails())
		return -ENOMEM;
	part = kmalloc_array(2, sizeof(*part), GFP_KERNEL);
	if (!part)
		return -ENOMEM;
	memcpy(&part[0], dst, sizeof(*dst));
	memcpy(&part[1], src, sizeof(*src));
	part[0].vm_pgoff += (start - dst->vm_start) >> PAGE_SHIFT;
	part[1].vm_pgoff += (start - src->vm_start) >> PAGE_SHIFT;
	part[0].vm_start = start;
	part[1].vm_start = start;
	part[0].vm_end = end;
	part[1].vm_end = end;
	ret = af_orig(copy_page_range)(&part[0], &part[1]);
	kfree(part);
	return ret;
}

static struct af_chunk *af_chunk_get(struct af_session *s, unsigned long addr)
{
	struct af_chunk *chunk = xa_load(&s->chunks, addr >> PUD_SHIFT);

	if (chunk)
		return chunk;
	if (af_allocation_fails())
		return NULL;
	chunk = kzalloc(sizeof(*chunk), GFP_KERNEL_ACCOUNT);
	if (chunk && xa_err(xa_store(&s->chunks, addr >> PUD_SHIFT, chunk, GFP_KERNEL))) {
		kfree(chunk);
		chunk = NULL;
	}
	return chunk;
}

static bool af_pmd_is_huge(pmd_t pmd)
{
	return !pmd_none(pmd) && (pmd_trans_huge(pmd) || pmd_devmap(pmd) || !pmd_present(pmd));
}

/* End of the run of huge entries that begins at addr. */
static unsigned long af_huge_end(pmd_t *pmd, unsigned long addr, unsigned long end)
{
	while (addr < end && af_pmd_is_huge(READ_ONCE(*pmd))) {
		addr += PMD_SIZE;
		pmd++;
	}
	return addr;
}

/*
 * Defers the tables of [addr, end), which lies in one PMD page, up to the first huge entry; *done is set to where it
 * stopped. The child's upper levels are made here, once a GiB (docs/internals/kernel-module.md, Why PMD tables are not
 * deferred). Nobody else looks at the session's tables before the fork lets go of mmap_lock, so they are counted once.
 */
static int af_defer_pmds(struct af_session *s, pmd_t *pmd, unsigned long addr, unsigned long end, unsigned long *done)
{
	struct af_chunk *chunk = NULL;
	long deferred = 0;
	int ret = 0;

	for (; addr < end; addr += PMD_SIZE, pmd++) {
		pmd_t entry = READ_ONCE(*pmd);

		if (pmd_none(entry))
			continue;
		if (af_pmd_is_huge(entry))
			break;
		if (WARN_ON_ONCE(pmd_bad(entry))) {
			ret = -EINVAL;
			break;
		}
		if (!chunk) {
			chunk = af_chunk_get(s, addr);
			if (!chunk || !af_pmd_alloc(s->child.mm, addr)) {
				ret = -ENOMEM;
				break;
			}
		}
		af_pmd_protect(pmd);
		/* release: who sees PENDING sees the child's upper levels */
		smp_store_release(&chunk->state[pmd_index(addr)], AF_PENDING);
		deferred++;
	}
	atomic_long_add(deferred, &s->pending);
	atomic64_add(deferred, &af_count.tables_deferred);
	*done = addr;
	return ret;
}

/* Edges and huge pages are the kernel's, the tables in between the child's. */
int af_defer_vma(struct af_session *s, struct vm_area_struct *dst, struct vm_area_struct *src)
{
	unsigned long addr = ALIGN(src->vm_start, PMD_SIZE), end = ALIGN_DOWN(src->vm_end, PMD_SIZE);
	int ret = af_copy_part(dst, src, src->vm_start, addr);

	while (!ret && addr < end) {
		unsigned long next = pud_addr_end(addr, end), huge_end;
		pmd_t *pmd = af_pmd_find(src->vm_mm, addr);

		if (!pmd) {
			addr = next;
			continue;
		}
		huge_end = af_huge_end(pmd, addr, next);
		if (huge_end > addr) {
			ret = af_copy_part(dst, src, addr, huge_end);
			addr = huge_end;
		} else {
			ret = af_defer_pmds(s, pmd, addr, next, &addr);
		}
	}
	return ret ?: af_copy_part(dst, src, end, src->vm_end);
}
