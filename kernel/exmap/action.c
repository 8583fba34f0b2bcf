// SPDX-License-Identifier: GPL-2.0
/* EXMAP_ACTION, by ioctl and by io_uring. */
#include <linux/blk_types.h>
#include <linux/nospec.h>

#include "internal.h"

static bool exmap_action_is_valid(const struct exmap *map, const struct exmap_action *action)
{
	bool read = action->opcode == EXMAP_READ;
	u64 most = (u64)LLONG_MAX - (map->map_pages << PAGE_SHIFT);

	if (!exmap_checked(bound_opcode, action->opcode < EXMAP_OPCODES) ||
	    !exmap_checked(bound_interface, action->interface < map->interface_count) ||
	    !exmap_checked(bound_count, action->entry_count <= EXMAP_ENTRIES_MAX))
		return false;
	if (!exmap_checked(bound_flags, !(action->flags & ~(action->opcode == EXMAP_ALLOC ? EXMAP_ALLOC_ZERO : 0))))
		return false;
	return read ? IS_ALIGNED(action->offset, SECTOR_SIZE) && action->offset <= most : !action->offset;
}

/* ALLOC and FREE. The interface's mutex is held. */
static long exmap_action_locked(struct exmap *map, struct exmap_interface *interface, const struct exmap_action *action,
				bool nowait)
{
	struct exmap_call call;
	long ret;

	ret = exmap_entries_get(map, interface, interface->entries, action->entry_count);
	if (ret)
		return ret;
	exmap_call_begin(&call, map, interface, interface->entries, action->entry_count, nowait);
	call.zero = action->flags & EXMAP_ALLOC_ZERO;
	ret = action->opcode == EXMAP_FREE ? exmap_free(&call) : exmap_alloc(&call);
	exmap_call_end(&call);
	if (ret)
		return ret;
	return exmap_write_results(interface, call.entries, call.count);
}

/* -EIOCBQUEUED: the rest is done when a read ends. */
long exmap_action(struct exmap *map, const struct exmap_action *action, struct io_uring_cmd *cmd,
		  unsigned int issue_flags)
{
	bool nowait = cmd && issue_flags & IO_URING_F_NONBLOCK;
	struct exmap_interface *interface;
	long ret;

	if (!exmap_action_is_valid(map, action))
		return -EINVAL;
	interface = map->interfaces[array_index_nospec(action->interface, map->interface_count)];
	if (!action->entry_count)
		return 0;
	if (action->opcode == EXMAP_READ)
		return exmap_read_entries(map, interface, action, cmd, issue_flags);
	if (!nowait)
		ret = mutex_lock_killable(&interface->mutex);
	else
		ret = mutex_trylock(&interface->mutex) ? 0 : -EAGAIN;
	if (ret)
		return ret;
	ret = exmap_action_locked(map, interface, action, nowait);
	mutex_unlock(&interface->mutex);
	return ret;
}

int exmap_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct exmap *map = cmd->file->private_data;
	struct exmap_action action;
	long ret;

	if (cmd->cmd_op != EXMAP_ACTION)
		return -ENOTTY;
	/* It may be in memory that user space can change. */
	memcpy(&action, compat_uring_payload(cmd), sizeof(action));
	barrier_data(&action);
	ret = exmap_may_use(map);
	ret = ret ?: exmap_action(map, &action, cmd, issue_flags);
	/* Numbers of pages are not what every version expects a handler to return. */
	if (ret != -EAGAIN && ret != -EIOCBQUEUED) {
		io_uring_cmd_done(cmd, ret, 0, issue_flags);
		ret = -EIOCBQUEUED;
	}
	return ret;
}
