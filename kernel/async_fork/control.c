// SPDX-License-Identifier: GPL-2.0
/* /dev/async_fork and /proc/async_fork: include/uapi/async_fork.h says what they do. */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/proc_fs.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "internal.h"

static bool af_control_is_valid(const struct async_fork_control *control)
{
	if (control->size != sizeof(*control) || control->version != ASYNC_FORK_VERSION || control->reserved ||
	    control->pid < 0 || control->strategy > ASYNC_FORK_ODF)
		return false;
	if (control->strategy == ASYNC_FORK_ASYNC)
		return control->copy_threads >= 1 && control->copy_threads <= ASYNC_FORK_THREADS_MAX;
	return !control->copy_threads;
}

static ssize_t af_control_write(struct file *file, const char __user *buffer, size_t length, loff_t *offset)
{
	struct async_fork_control control;
	struct af_strategy strategy;
	struct task_struct *task;
	struct mm_struct *mm;
	int ret = af_strategy_may_be_set(file, ASYNC_FORK_INHERIT);

	if (ret)
		return ret;
	if (length != sizeof(control))
		return -EINVAL;
	if (copy_from_user(&control, buffer, sizeof(control)))
		return -EFAULT;
	if (!af_control_is_valid(&control))
		return -EINVAL;
	ret = af_strategy_may_be_set(file, control.strategy);
	if (ret)
		return ret;
	mm = af_mm_of_pid(control.pid, &task);
	if (!mm)
		return -ESRCH;
	strategy.strategy = control.strategy;
	strategy.copy_threads = control.copy_threads;
	ret = af_setting_set(mm, &strategy, task_tgid_nr(task));
	mmput(mm);
	put_task_struct(task);
	return ret ?: length;
}

static ssize_t af_control_read(struct file *file, char __user *buffer, size_t length, loff_t *offset)
{
	struct async_fork_statistics *statistics = file->private_data;

	if (!*offset)
		af_statistics_read(statistics);
	return simple_read_from_buffer(buffer, length, offset, statistics, sizeof(*statistics));
}

/* Each open file keeps one snapshot, so that reads in pieces fit together. */
static int af_control_open(struct inode *inode, struct file *file)
{
	file->private_data = kzalloc(sizeof(struct async_fork_statistics), GFP_KERNEL_ACCOUNT);
	return file->private_data ? 0 : -ENOMEM;
}

static int af_control_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static const struct file_operations af_control_operations = {
	.owner = THIS_MODULE,
	.open = af_control_open,
	.release = af_control_release,
	.read = af_control_read,
	.write = af_control_write,
	.llseek = default_llseek,
};

static struct miscdevice af_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "async_fork",
	.fops = &af_control_operations,
	.mode = 0600,
};

int af_control_add(void)
{
	int ret = misc_register(&af_device);

	if (ret)
		return ret;
	ret = -ENOMEM;
	if (!proc_create_single("async_fork", 0444, NULL, af_statistics_show))
		goto no_statistics;
	ret = af_processes_add();
	if (!ret)
		return 0;
	remove_proc_entry("async_fork", NULL);
no_statistics:
	misc_deregister(&af_device);
	return ret;
}

void af_control_remove(void)
{
	af_processes_remove();
	remove_proc_entry("async_fork", NULL);
	misc_deregister(&af_device);
}
