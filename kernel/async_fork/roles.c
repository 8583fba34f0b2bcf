// SPDX-License-Identifier: GPL-2.0
/* One hash table of the mms that the module has to do with. Most mms of a machine are not in it. */
#include <linux/rculist.h>

#include "internal.h"

struct hlist_head af_roles[1 << AF_ROLE_BITS];
static DEFINE_SPINLOCK(af_roles_lock);

atomic_t af_live __read_mostly = ATOMIC_INIT(0);
atomic_t af_tracked __read_mostly = ATOMIC_INIT(0);
atomic_t af_generation_of_all = ATOMIC_INIT(0);

/* The counters first: a hook that finds the role must have passed its gate, not the other way round. */
void af_role_add(struct af_role *role, struct mm_struct *mm, enum af_kind kind)
{
	role->mm = mm;
	role->kind = kind;
	atomic_inc(&af_tracked);
	if (BIT(kind) & AF_LIVE_ROLES)
		atomic_inc(&af_live);
	spin_lock(&af_roles_lock);
	role->hashed = true;
	hlist_add_head_rcu(&role->node, af_role_bucket(mm));
	spin_unlock(&af_roles_lock);
}

/* True for the one caller that removed it. */
bool af_role_remove(struct af_role *role)
{
	bool removed;

	spin_lock(&af_roles_lock);
	removed = role->hashed;
	if (removed) {
		hlist_del_init_rcu(&role->node);
		role->hashed = false;
	}
	spin_unlock(&af_roles_lock);
	if (!removed)
		return false;
	if (BIT(role->kind) & AF_LIVE_ROLES)
		atomic_dec(&af_live);
	atomic_dec(&af_tracked);
	return true;
}

/* Under rcu_read_lock(). */
struct af_role *af_role_find(struct mm_struct *mm, enum af_kind kind)
{
	struct af_role *role;

	hlist_for_each_entry_rcu(role, af_role_bucket(mm), node)
		if (role->mm == mm && role->kind == kind)
			return role;
	return NULL;
}

/*
 * What the mm is, one bit for each kind: the quick way out for everybody else. Without locks and barriers: whoever must
 * see a role has taken the mm's mmap_lock, or is the mm's only user, after it was added.
 */
unsigned int af_roles_of(struct mm_struct *mm)
{
	struct hlist_head *head = af_role_bucket(mm);
	struct af_role *role;
	unsigned int roles = 0;

	if (likely(!READ_ONCE(head->first)))
		return 0;
	rcu_read_lock();
	hlist_for_each_entry_rcu(role, head, node)
		if (role->mm == mm)
			roles |= BIT(role->kind);
	rcu_read_unlock();
	return roles;
}

/* An mm has forked; whether it was this one. */
bool af_mm_has_forked(struct mm_struct *mm, const struct af_generation *before)
{
	return before->mm != READ_ONCE(mm->write_protect_seq.sequence) || af_is_skipped("check:own_forks");
}

/* Some role of this kind, under rcu_read_lock(). */
struct af_role *af_role_any(enum af_kind kind)
{
	struct af_role *role;
	int bucket;

	for (bucket = 0; bucket < ARRAY_SIZE(af_roles); bucket++)
		hlist_for_each_entry_rcu(role, &af_roles[bucket], node)
			if (role->kind == kind)
				return role;
	return NULL;
}
