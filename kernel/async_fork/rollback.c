// SPDX-License-Identifier: GPL-2.0
/*
 * Errors (paper, 4.3). The parent never pays for one: its entries become writable again, and the child, whose memory is
 * incomplete, is killed before it runs. Whoever meets the error rolls back its own table only and marks the session;
 * the rest is rolled back by the child on its way out, or table by table when the parent needs one.
 */
#include "internal.h"

/* True for the one caller that has to tell. The console may be slow: not while a table is claimed. */
bool af_session_mark_failed(struct af_session *s)
{
	if (test_and_set_bit(AF_FAILED, &s->flags))
		return false;
	atomic64_inc(&af_count.sessions_failed);
	return true;
}

void af_session_tell_failed(int error)
{
	pr_info_ratelimited("copy of a fork failed (%d), its child will be killed\n", error);
}

void af_session_fail(struct af_session *s, int error)
{
	if (af_session_mark_failed(s))
		af_session_tell_failed(error);
}

/* addr: start of the table. Returns when the table is done, whoever did it. */
void af_table_roll_back(struct af_session *s, u8 *state, unsigned long addr)
{
	while (smp_load_acquire(state) != AF_DONE) {	/* pairs with af_session_table_done() */
		pmd_t *pmd;

		if (READ_ONCE(*state) == AF_BUSY || !af_table_claim(state)) {
			af_state_wait(state);
			continue;
		}
		pmd = af_pmd_find(s->parent.mm, addr);
		if (!WARN_ON_ONCE(!pmd))
			af_pmd_unprotect(s->parent.mm, pmd, addr);
		atomic64_inc(&af_count.tables_rolled_back);
		af_session_table_done(s, state);
	}
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
