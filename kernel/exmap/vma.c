// SPDX-License-Identifier: GPL-2.0
/* The mappings of a map: its addresses, and the pages of its interfaces. */
#include <linux/highmem.h>
#include <linux/nospec.h>

#include "internal.h"

static const struct vm_operations_struct exmap_operations;

/* NULL: the map is not mapped. */
struct vm_area_struct *exmap_vma(struct exmap *map)
{
	unsigned long base = READ_ONCE(map->base);
	struct vm_area_struct *vma = base ? vma_lookup(map->mm, base) : NULL;

	/* In 6.1 a VMA on its way out of the mm is in no tree, with mmap_lock held for reading only. */
	return vma && vma->vm_ops == &exmap_operations && vma->vm_private_data == map && vma->vm_start == base ?
	       vma : NULL;
}

/* ---- faults ---- */

/* Whoever reads what is not allocated, an optimistic reader, finds zeros. */
static vm_fault_t exmap_fault_read(struct exmap_walk *walk, u64 page)
{
	struct exmap *map = walk->map;
	vm_fault_t ret = VM_FAULT_NOPAGE;
	pte_t *pte;

	if (exmap_skips(EXMAP_CHECK_zero_page))
		return VM_FAULT_SIGBUS;
	down_read(&map->zero);
	pte = exmap_walk_to(walk, page, true);
	if (!pte) {
		ret = VM_FAULT_OOM;
	} else if (exmap_pte_kind(*pte) == EXMAP_PTE_NONE) {
		exmap_pte_set_zero(walk, page, pte);
		exmap_count(map, zero_faults, 1);
	}
	exmap_walk_end(walk);
	up_read(&map->zero);
	return ret;
}

static vm_fault_t exmap_fault_write(struct exmap_walk *walk, u64 page)
{
	pte_t *pte = exmap_walk_to(walk, page, false);
	bool allocated = pte && exmap_pte_kind(*pte) == EXMAP_PTE_FRAME;

	exmap_walk_end(walk);
	if (allocated)
		return VM_FAULT_NOPAGE;		/* since the fault */
	exmap_count(walk->map, write_faults, 1);
	return VM_FAULT_SIGBUS;
}

static vm_fault_t exmap_fault(struct vm_fault *vmf)
{
	struct exmap_walk walk = exmap_walk_of(vmf->vma->vm_private_data, vmf->vma);
	u64 page = (vmf->address - vmf->vma->vm_start) >> PAGE_SHIFT;

	return vmf->flags & FAULT_FLAG_WRITE ? exmap_fault_write(&walk, page) : exmap_fault_read(&walk, page);
}

/* A write to what is mapped for reading: a zero page. Without this the kernel would make it writable. */
static vm_fault_t exmap_pfn_mkwrite(struct vm_fault *vmf)
{
	struct exmap_walk walk = exmap_walk_of(vmf->vma->vm_private_data, vmf->vma);

	return exmap_fault_write(&walk, (vmf->address - vmf->vma->vm_start) >> PAGE_SHIFT);
}

/* ---- what may be done with the mapping ---- */

static void exmap_frame_copy(const struct exmap_frame *frame, unsigned int offset, void *buffer, int length, int write)
{
	void *bytes = kmap_local_page(exmap_frame_page(frame));

	if (write)
		memcpy(bytes + offset, buffer, length);
	else
		memcpy(buffer, bytes + offset, length);
	kunmap_local(bytes);
}

/*
 * ptrace and /proc/PID/mem, which get no page of it. The copy is made under the table's lock, at most a page of it: with
 * a count instead, a free would be EBUSY because another process looks.
 */
static int exmap_access(struct vm_area_struct *vma, unsigned long address, void *buffer, int length, int write)
{
	struct exmap_walk walk = exmap_walk_of(vma->vm_private_data, vma);
	unsigned int offset = offset_in_page(address);
	u32 frame = EXMAP_NO_FRAME;
	pte_t *pte;

	length = min_t(int, length, PAGE_SIZE - offset);
	pte = exmap_walk_to(&walk, (address - vma->vm_start) >> PAGE_SHIFT, false);
	if (pte)
		frame = exmap_pte_frame_if_any(*pte);
	if (frame != EXMAP_NO_FRAME)
		exmap_frame_copy(&walk.map->frames[frame], offset, buffer, length, write);
	else if (!write)
		memset(buffer, 0, length);
	else
		length = -EFAULT;
	exmap_walk_end(&walk);
	return length;
}

/* mremap makes a second VMA before it asks whether it may. */
static void exmap_open(struct vm_area_struct *vma)
{
	struct exmap *map = vma->vm_private_data;

	map->vmas++;
}

/* The page tables are gone, the TLBs flushed. */
static void exmap_close(struct vm_area_struct *vma)
{
	struct exmap *map = vma->vm_private_data;

	if (--map->vmas)
		return;
	WRITE_ONCE(map->base, 0);
	exmap_frames_unmapped(map);
	if (exmap_mm_has_ended(vma->vm_mm) && !exmap_skips(EXMAP_CHECK_end))
		exmap_end(map);
}

static int exmap_may_split(struct vm_area_struct *vma, unsigned long address)
{
	return exmap_skips(EXMAP_CHECK_split) ? 0 : -EINVAL;
}

static int exmap_mremap(struct vm_area_struct *vma)
{
	return exmap_skips(EXMAP_CHECK_mremap) ? 0 : -EINVAL;
}

static int exmap_mprotect(struct vm_area_struct *vma, unsigned long start, unsigned long end, unsigned long flags)
{
	return flags == vma->vm_flags ? 0 : -EACCES;
}

static const struct vm_operations_struct exmap_operations = {
	.open = exmap_open,
	.close = exmap_close,
	.may_split = exmap_may_split,
	.mremap = exmap_mremap,
	.mprotect = exmap_mprotect,
	.fault = exmap_fault,
	.pfn_mkwrite = exmap_pfn_mkwrite,
	.access = exmap_access,
};

/* ---- mmap ---- */

static int exmap_mmap_map(struct exmap *map, struct vm_area_struct *vma)
{
	/* VM_IO: the caller cannot take the others back by madvise(). */
	unsigned long flags = VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP;

	if (vma_pages(vma) != map->map_pages)
		return -EINVAL;
	if (map->vmas)
		return -EBUSY;
	if (!exmap_skips(EXMAP_CHECK_dontcopy))
		flags |= VM_DONTCOPY;
	compat_vm_flags(vma, flags, VM_MAYEXEC);
	vma->vm_private_data = map;
	vma->vm_ops = &exmap_operations;
	map->vmas = 1;
	WRITE_ONCE(map->base, vma->vm_start);
	return 0;
}

static vm_fault_t exmap_interface_fault(struct vm_fault *vmf)
{
	struct exmap *map = vmf->vma->vm_private_data;
	unsigned long index = vmf->pgoff - (EXMAP_OFFSET_INTERFACE >> PAGE_SHIFT);

	if (index >= map->interface_count)
		return VM_FAULT_SIGBUS;
	index = array_index_nospec(index, map->interface_count);
	vmf->page = map->interfaces[index]->page;
	get_page(vmf->page);
	return 0;
}

static const struct vm_operations_struct exmap_interface_operations = {
	.fault = exmap_interface_fault,
};

static int exmap_mmap_interfaces(struct exmap *map, struct vm_area_struct *vma)
{
	unsigned long first = vma->vm_pgoff - (EXMAP_OFFSET_INTERFACE >> PAGE_SHIFT);

	if (first >= map->interface_count || vma_pages(vma) > map->interface_count - first)
		return -EINVAL;
	/* VM_IO: MADV_DOFORK is refused, a child would write entries of its parent's. */
	compat_vm_flags(vma, VM_IO | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYEXEC);
	vma->vm_private_data = map;
	vma->vm_ops = &exmap_interface_operations;
	return 0;
}

int exmap_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct exmap *map = file->private_data;
	int ret = exmap_may_use(map);

	if (ret)
		return ret;
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if ((vma->vm_flags & (VM_READ | VM_WRITE | VM_EXEC)) != (VM_READ | VM_WRITE))
		return -EACCES;
	if (!vma->vm_pgoff)
		return exmap_mmap_map(map, vma);
	return vma->vm_pgoff >= EXMAP_OFFSET_INTERFACE >> PAGE_SHIFT ? exmap_mmap_interfaces(map, vma) : -EINVAL;
}
