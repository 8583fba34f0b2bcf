// SPDX-License-Identifier: GPL-2.0
/* /proc/async_fork_processes: include/uapi/async_fork.h says what is in it. */
#include <linux/capability.h>
#include <linux/proc_fs.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"

/* With mmget(), and a reference to the task. NULL: no such process, or a kernel thread. */
struct mm_struct *af_mm_of_pid(pid_t pid, struct task_struct **task)
{
	struct pid *number = pid ? find_get_pid(pid) : get_task_pid(current, PIDTYPE_PID);
	struct mm_struct *mm;

	*task = get_pid_task(number, PIDTYPE_PID);
	put_pid(number);
	if (!*task)
		return NULL;
	mm = get_task_mm(*task);
	if (!mm)
		put_task_struct(*task);
	return mm;
}

/* How a fork of the process would be made now. */
static int af_asked_show(struct seq_file *m, pid_t pid)
{
	struct task_struct *task;
	struct mm_struct *mm = af_mm_of_pid(pid, &task);
	enum async_fork_refusal why;
	struct af_strategy strategy;
	bool own;

	if (!mm)
		return -ESRCH;
	strategy = af_strategy_of(task, mm, &own);
	af_strategy_show(m, "asked", pid, &strategy);
	seq_printf(m, " %s %s\n", own ? "own" : "cgroup",
		   af_fork_would_be_refused(mm, &why) ? af_refusal_name(why) : "-");
	mmput(mm);
	put_task_struct(task);
	return 0;
}

static int af_processes_show(struct seq_file *m, void *unused)
{
	pid_t asked = READ_ONCE(*(pid_t *)m->private);

	if (asked)
		return af_asked_show(m, asked);
	af_settings_show(m);
	af_refused_show(m);
	return 0;
}

static int af_processes_open(struct inode *inode, struct file *file)
{
	pid_t *asked = kzalloc(sizeof(*asked), GFP_KERNEL_ACCOUNT);
	int ret = asked ? single_open(file, af_processes_show, asked) : -ENOMEM;

	if (ret)
		kfree(asked);
	return ret;
}

static int af_processes_release(struct inode *inode, struct file *file)
{
	kfree(((struct seq_file *)file->private_data)->private);
	return single_release(inode, file);
}

/* The process that this open file is about from now on; 0: all that are known. */
static ssize_t af_processes_write(struct file *file, const char __user *buffer, size_t length, loff_t *offset)
{
	pid_t *asked = ((struct seq_file *)file->private_data)->private;
	int pid, ret;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	ret = kstrtoint_from_user(buffer, length, 10, &pid);
	if (ret)
		return ret;
	if (pid < 0)
		return -EINVAL;
	WRITE_ONCE(*asked, pid);
	return length;
}

static const struct proc_ops af_processes_operations = {
	.proc_open = af_processes_open,
	.proc_release = af_processes_release,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_write = af_processes_write,
};

int af_processes_add(void)
{
	return proc_create("async_fork_processes", 0600, NULL, &af_processes_operations) ? 0 : -ENOMEM;
}

void af_processes_remove(void)
{
	remove_proc_entry("async_fork_processes", NULL);
}
