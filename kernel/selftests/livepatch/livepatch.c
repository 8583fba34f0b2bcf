// SPDX-License-Identifier: GPL-2.0
/* A live patch of a function that async_fork hooks, for tool/livepatch. Core dumps have holes while it is applied. */
#include <linux/livepatch.h>
#include <linux/mm.h>
#include <linux/module.h>

static struct page *patched_get_dump_page(unsigned long addr)
{
	return NULL;
}

static struct klp_func functions[] = {
	{ .old_name = "get_dump_page", .new_func = patched_get_dump_page },
	{ }
};

static struct klp_object objects[] = {
	{ .funcs = functions },		/* without a name: vmlinux */
	{ }
};

static struct klp_patch patch = { .mod = THIS_MODULE, .objs = objects };

static int __init livepatch_init(void)
{
	return klp_enable_patch(&patch);
}

/* The kernel lets it go only after the patch has been disabled. */
static void __exit livepatch_exit(void)
{
}

module_init(livepatch_init);
module_exit(livepatch_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("test of async_fork: a live patch of one of its functions");
MODULE_INFO(livepatch, "Y");
