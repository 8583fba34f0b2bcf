// SPDX-License-Identifier: GPL-2.0
/*
 * Somebody who keeps copies of page tables, as KVM does, for exmap_areas/notified: whoever opens /dev/exmap_notifier has
 * his memory watched, and reads how often its pages were announced to go, how often they had gone, and which those were.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

struct watch {
	struct mmu_notifier notifier;
	struct mm_struct *mm;
	struct seen {
		u64 begun, ended, start, end;
	} seen;
};

static int watch_begin(struct mmu_notifier *notifier, const struct mmu_notifier_range *range)
{
	struct watch *watch = container_of(notifier, struct watch, notifier);

	watch->seen.begun++;
	watch->seen.start = range->start;
	watch->seen.end = range->end;
	return 0;
}

static void watch_end(struct mmu_notifier *notifier, const struct mmu_notifier_range *range)
{
	struct watch *watch = container_of(notifier, struct watch, notifier);

	watch->seen.ended++;
}

static const struct mmu_notifier_ops watch_notifier_operations = {
	.invalidate_range_start = watch_begin,
	.invalidate_range_end = watch_end,
};

static int watch_open(struct inode *inode, struct file *file)
{
	struct watch *watch = kzalloc(sizeof(*watch), GFP_KERNEL);
	int ret;

	if (!watch)
		return -ENOMEM;
	watch->notifier.ops = &watch_notifier_operations;
	watch->mm = current->mm;
	mmgrab(watch->mm);
	ret = mmu_notifier_register(&watch->notifier, watch->mm);
	file->private_data = watch;
	if (ret) {
		mmdrop(watch->mm);
		kfree(watch);
	}
	return ret;
}

static int watch_release(struct inode *inode, struct file *file)
{
	struct watch *watch = file->private_data;

	mmu_notifier_unregister(&watch->notifier, watch->mm);
	mmdrop(watch->mm);
	kfree(watch);
	return 0;
}

static ssize_t watch_read(struct file *file, char __user *buffer, size_t length, loff_t *offset)
{
	struct watch *watch = file->private_data;
	struct seen seen = watch->seen;
	loff_t start = 0;

	return simple_read_from_buffer(buffer, length, &start, &seen, sizeof(seen));
}

static const struct file_operations watch_operations = {
	.owner = THIS_MODULE,
	.open = watch_open,
	.release = watch_release,
	.read = watch_read,
	.llseek = noop_llseek,
};

static struct miscdevice watch_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "exmap_notifier",
	.fops = &watch_operations,
	.mode = 0600,
};

module_misc_device(watch_device);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("test of exmap: is told of pages that go");
