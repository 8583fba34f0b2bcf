// SPDX-License-Identifier: GPL-2.0
/*
 * Errors (paper, 4.3). The parent never pays for one: its entries become writable again, and the child, whose memory is
 * incomplete, is killed before it runs. Whoever meets the error rolls back its own table only and marks the session;
 * the rest is rolled back by the child on its way out, or table by table when the parent needs one.
 */
#include "internal.h"

void af_session_fail(struct af_session *s, int error)
{
	if (test_and_set_bit(AF_FAILED, &s->flags))
		return;
	atomic64_inc(&af_count.sessions_failed);
	pr_info_ratelimited("copy of a fork failed (%d), its child will be killed\n", error);
}

/* addr: start of the table. Returns when the table is done, whoever did it. */
void af_table_roll_back(struct af_session *s, u8 *state, unsigned long addr)
{
	pmd_t *pmd;

	if (READ_ONCE(*state) == AF_PENDING && cmpxchg(state, AF_PENDING, AF_BUSY) == AF_PENDING) {
		pmd = af_pmd_find(s->parent.mm, addr);
		if (!WARN_ON_ONCE(!pmd))
			af_pmd_unprotect(s->parent.mm, pmd, addr);
		atomic64_inc(&af_count.tables_rolled_back);
		af_session_table_done(s, state);
		return;
	}
	af_state_wait(state);
}

/* Everything that is left. Afterwards nobody touches the child's page tables any more. */
void af_session_roll_back(struct af_session *s)
{
	struct af_chunk *chunk;
	unsigned long i;
	int k;

	set_bit(AF_FAILED, &s->flags);
	xa_for_each(&s->chunks, i, chunk)
		for (k = 0; k < PTRS_PER_PMD; k++)
			if (READ_ONCE(chunk->state[k]) != AF_NONE)
				af_table_roll_back(s, &chunk->state[k],
						   (i << PUD_SHIFT) + ((unsigned long)k << PMD_SHIFT));
	af_session_leave_parent(s);
}
