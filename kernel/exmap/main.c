// SPDX-License-Identifier: GPL-2.0
/*
 * exmap: memory whose pages a process allocates, frees and reads itself, many at a time (vmcache and exmap, SIGMOD
 * 2023), for an unpatched kernel and for processes that need not be trusted.
 */
#include <linux/miscdevice.h>
#include <linux/uaccess.h>

#include "internal.h"

static int exmap_device_open(struct inode *inode, struct file *file)
{
	struct exmap *map = exmap_new();

	if (!map)
		return -ENOMEM;
	file->private_data = map;
	return 0;
}

static int exmap_device_release(struct inode *inode, struct file *file)
{
	exmap_teardown(file->private_data);
	return 0;
}

/*
 * A struct of a program that may be older or newer than the module: what the program's lacks is 0, and what only the
 * program's has must be 0, else E2BIG. least: the size that it had first.
 */
static int exmap_struct_get(void *known, size_t known_size, size_t least, const void __user *argument, size_t size)
{
	if (size < least)
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	return copy_struct_from_user(known, known_size, argument, size);
}

/* The same of a struct whose first field says how large it is. */
static int exmap_sized_struct_get(void *known, size_t known_size, size_t least, const void __user *argument)
{
	u32 size;

	if (get_user(size, (const u32 __user *)argument))
		return -EFAULT;
	return exmap_struct_get(known, known_size, least, argument, size);
}

static long exmap_ioctl_setup(struct exmap *map, const void __user *argument)
{
	struct exmap_setup setup;

	return exmap_sized_struct_get(&setup, sizeof(setup), EXMAP_SETUP_SIZE_1, argument) ?: exmap_setup(map, &setup);
}

static long exmap_ioctl_backing(struct exmap *map, const void __user *argument)
{
	struct exmap_backing backing;

	return exmap_sized_struct_get(&backing, sizeof(backing), EXMAP_BACKING_SIZE_1, argument) ?:
	       exmap_backing_set(map, &backing);
}

static long exmap_ioctl_action(struct exmap *map, const void __user *argument, size_t size)
{
	struct exmap_action action;

	return exmap_struct_get(&action, sizeof(action), EXMAP_ACTION_SIZE_1, argument, size) ?:
	       exmap_action(map, &action, NULL, 0);
}

static long exmap_ioctl_statistics(struct exmap *map, void __user *argument)
{
	struct exmap_statistics statistics;
	u32 size;

	if (copy_from_user(&statistics, argument, offsetofend(struct exmap_statistics, version)))
		return -EFAULT;
	size = statistics.size;
	if (size < EXMAP_STATISTICS_SIZE_1 || statistics.version != EXMAP_VERSION)
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	exmap_statistics_read(map, &statistics);
	statistics.size = min_t(u32, size, sizeof(statistics));
	return copy_to_user(argument, &statistics, statistics.size) ||
	       clear_user(argument + statistics.size, size - statistics.size) ? -EFAULT : 0;
}

/* Sizes are part of the numbers of ioctls, and of no account: structs may grow. */
#define EXMAP_NUMBER(command) ((command) & ~IOCSIZE_MASK)

static long exmap_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct exmap *map = file->private_data;
	void __user *pointer = (void __user *)argument;
	int ret;

	if (EXMAP_NUMBER(command) == EXMAP_NUMBER(EXMAP_SETUP))
		return exmap_ioctl_setup(map, pointer);
	ret = exmap_may_use(map);
	switch (EXMAP_NUMBER(command)) {
	case EXMAP_NUMBER(EXMAP_BACKING):
		return ret ?: exmap_ioctl_backing(map, pointer);
	case EXMAP_NUMBER(EXMAP_ACTION):
		return ret ?: exmap_ioctl_action(map, pointer, _IOC_SIZE(command));
	case EXMAP_NUMBER(EXMAP_STATISTICS):
		return ret ?: exmap_ioctl_statistics(map, pointer);
	default:
		return -ENOTTY;
	}
}

/* No compat_ioctl: programs of 32 bits have neither the offsets of interfaces nor the addresses. */
static const struct file_operations exmap_file_operations = {
	.owner = THIS_MODULE,
	.open = exmap_device_open,
	.release = exmap_device_release,
	.unlocked_ioctl = exmap_ioctl,
	.mmap = exmap_mmap,
	.read_iter = exmap_read_iter,
	.uring_cmd = exmap_uring_cmd,
	.llseek = noop_llseek,
};

static struct miscdevice exmap_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "exmap",
	.fops = &exmap_file_operations,
	.mode = 0600,
};

static int __init exmap_init(void)
{
	int ret = exmap_symbols_find();

	ret = ret ?: exmap_statistics_init();
	if (ret)
		return ret;
	ret = misc_register(&exmap_device);
	if (ret) {
		exmap_statistics_exit();
		return ret;
	}
	exmap_delays_init();
	pr_info("loaded\n");
	return 0;
}

/* Open files hold the module, so there are none. */
static void __exit exmap_exit(void)
{
	exmap_delays_exit();
	misc_deregister(&exmap_device);
	exmap_statistics_exit();
}

module_init(exmap_init);
module_exit(exmap_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Memory whose pages are allocated, freed and read explicitly, many at a time");
MODULE_VERSION("0.1.0");
