// SPDX-License-Identifier: GPL-2.0
/* The file that reads are from. */
#include <linux/file.h>
#include <linux/fs.h>

#include "internal.h"

/* Returns the one before. */
static struct file *exmap_backing_swap(struct exmap *map, struct file *file)
{
	spin_lock(&map->backing_lock);
	swap(map->backing, file);
	spin_unlock(&map->backing_lock);
	return file;
}

int exmap_backing_set(struct exmap *map, const struct exmap_backing *backing)
{
	struct file *file = NULL;
	int ret = 0;

	if (backing->flags || backing->reserved || backing->fd < -1)
		return -EINVAL;
	if (backing->fd >= 0) {
		file = fget(backing->fd);
		if (!file)
			return -EBADF;
		if (!(file->f_mode & FMODE_READ))
			ret = -EBADF;
		else if ((!S_ISREG(file_inode(file)->i_mode) && !S_ISBLK(file_inode(file)->i_mode)) ||
			 !file->f_op->read_iter)
			ret = -EINVAL;
	}
	if (!ret)
		file = exmap_backing_swap(map, file);
	if (file)
		fput(file);
	return ret;
}

void exmap_backing_drop(struct exmap *map)
{
	struct file *file = exmap_backing_swap(map, NULL);

	if (file)
		fput(file);
}

/* NULL: there is none. */
struct file *exmap_backing_get(struct exmap *map)
{
	struct file *file;

	spin_lock(&map->backing_lock);
	file = map->backing ? get_file(map->backing) : NULL;
	spin_unlock(&map->backing_lock);
	return file;
}
