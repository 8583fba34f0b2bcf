// SPDX-License-Identifier: GPL-2.0
/*
 * exmap: memory whose pages a process allocates, frees and reads itself, many at a time (vmcache and exmap, SIGMOD 2023),
 * for an unpatched kernel and for processes that need not be trusted.
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

static long exmap_ioctl_setup(struct exmap *map, void __user *argument)
{
	struct exmap_setup setup;

	if (copy_from_user(&setup, argument, sizeof(setup)))
		return -EFAULT;
	return exmap_setup(map, &setup);
}

static long exmap_ioctl_backing(struct exmap *map, void __user *argument)
{
	struct exmap_backing backing;

	if (copy_from_user(&backing, argument, sizeof(backing)))
		return -EFAULT;
	return exmap_backing_set(map, &backing);
}

static long exmap_ioctl_action(struct exmap *map, void __user *argument)
{
	struct exmap_action action;

	if (copy_from_user(&action, argument, sizeof(action)))
		return -EFAULT;
	return exmap_action(map, &action, NULL, 0);
}

static long exmap_ioctl_statistics(struct exmap *map, void __user *argument)
{
	struct exmap_statistics statistics;

	if (copy_from_user(&statistics, argument, offsetofend(struct exmap_statistics, version)))
		return -EFAULT;
	if (statistics.size != sizeof(statistics) || statistics.version != EXMAP_VERSION)
		return -EINVAL;
	exmap_statistics_read(map, &statistics);
	return copy_to_user(argument, &statistics, sizeof(statistics)) ? -EFAULT : 0;
}

static long exmap_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct exmap *map = file->private_data;
	void __user *pointer = (void __user *)argument;
	int ret;

	if (command == EXMAP_SETUP)
		return exmap_ioctl_setup(map, pointer);
	ret = exmap_may_use(map);
	switch (command) {
	case EXMAP_BACKING:
		return ret ?: exmap_ioctl_backing(map, pointer);
	case EXMAP_ACTION:
		return ret ?: exmap_ioctl_action(map, pointer);
	case EXMAP_STATISTICS:
		return ret ?: exmap_ioctl_statistics(map, pointer);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations exmap_file_operations = {
	.owner = THIS_MODULE,
	.open = exmap_device_open,
	.release = exmap_device_release,
	.unlocked_ioctl = exmap_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
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
	if (ret)
		exmap_statistics_exit();
	else
		pr_info("loaded\n");
	return ret;
}

/* Open files hold the module, so there are none. */
static void __exit exmap_exit(void)
{
	misc_deregister(&exmap_device);
	exmap_statistics_exit();
}

module_init(exmap_init);
module_exit(exmap_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Memory whose pages are allocated, freed and read explicitly, many at a time");
MODULE_VERSION("0.1.0");
