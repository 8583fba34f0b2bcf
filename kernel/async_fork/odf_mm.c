// SPDX-License-Identifier: GPL-2.0
/* On-Demand-Fork: the mms that share tables, by reference. */
#include <linux/slab.h>

#include "internal.h"

/* With a reference; NULL if the mm shares nothing. */
struct af_odf_mm *af_odf_of(struct mm_struct *mm)
{
	struct af_odf_mm *om = NULL;
	struct af_role *role;

	rcu_read_lock();
	role = af_role_find(mm, AF_ODF);
	if (role) {
		om = container_of(role, struct af_odf_mm, role);
		if (!refcount_inc_not_zero(&om->ref))
			om = NULL;
	}
	rcu_read_unlock();
	return om;
}

void af_odf_put(struct af_odf_mm *om)
{
	if (refcount_dec_and_test(&om->ref))
		kfree_rcu(om, rcu);
}
