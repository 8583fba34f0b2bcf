/* WiredTiger's handles are tables of functions. Each one that is needed is a function here. */

#include <stddef.h>
#include <wiredtiger.h>

int sf_wt_open(const char *dir, const char *config, WT_CONNECTION **connection)
{
	return wiredtiger_open(dir, NULL, config, connection);
}

int sf_wt_close(WT_CONNECTION *connection)
{
	return connection->close(connection, NULL);
}

int sf_wt_open_session(WT_CONNECTION *connection, WT_SESSION **session)
{
	return connection->open_session(connection, NULL, "isolation=snapshot", session);
}

int sf_wt_close_session(WT_SESSION *session)
{
	return session->close(session, NULL);
}

int sf_wt_create(WT_SESSION *session, const char *uri, const char *config)
{
	return session->create(session, uri, config);
}

int sf_wt_open_cursor(WT_SESSION *session, const char *uri, const char *config, WT_CURSOR **cursor)
{
	return session->open_cursor(session, uri, NULL, config, cursor);
}

int sf_wt_close_cursor(WT_CURSOR *cursor)
{
	return cursor->close(cursor);
}

int sf_wt_begin(WT_SESSION *session)
{
	return session->begin_transaction(session, NULL);
}

int sf_wt_commit(WT_SESSION *session)
{
	return session->commit_transaction(session, NULL);
}

int sf_wt_rollback(WT_SESSION *session)
{
	return session->rollback_transaction(session, NULL);
}

int sf_wt_checkpoint(WT_SESSION *session)
{
	return session->checkpoint(session, NULL);
}

static void set_key(WT_CURSOR *cursor, const void *key, size_t key_bytes)
{
	WT_ITEM item = { .data = key, .size = key_bytes };

	cursor->set_key(cursor, &item);
}

int sf_wt_search(WT_CURSOR *cursor, const void *key, size_t key_bytes)
{
	set_key(cursor, key, key_bytes);
	return cursor->search(cursor);
}

int sf_wt_search_near(WT_CURSOR *cursor, const void *key, size_t key_bytes, int *order)
{
	set_key(cursor, key, key_bytes);
	return cursor->search_near(cursor, order);
}

int sf_wt_next(WT_CURSOR *cursor)
{
	return cursor->next(cursor);
}

int sf_wt_prev(WT_CURSOR *cursor)
{
	return cursor->prev(cursor);
}

int sf_wt_reset(WT_CURSOR *cursor)
{
	return cursor->reset(cursor);
}

int sf_wt_key(WT_CURSOR *cursor, const void **key, size_t *key_bytes)
{
	WT_ITEM item = { 0 };
	int error = cursor->get_key(cursor, &item);

	*key = item.data;
	*key_bytes = item.size;
	return error;
}

int sf_wt_value(WT_CURSOR *cursor, const void **value, size_t *value_bytes)
{
	WT_ITEM item = { 0 };
	int error = cursor->get_value(cursor, &item);

	*value = item.data;
	*value_bytes = item.size;
	return error;
}

int sf_wt_insert(WT_CURSOR *cursor, const void *key, size_t key_bytes, const void *value, size_t value_bytes)
{
	WT_ITEM item = { .data = value, .size = value_bytes };

	set_key(cursor, key, key_bytes);
	cursor->set_value(cursor, &item);
	return cursor->insert(cursor);
}

int sf_wt_remove(WT_CURSOR *cursor, const void *key, size_t key_bytes)
{
	set_key(cursor, key, key_bytes);
	return cursor->remove(cursor);
}

int sf_wt_rollback_code(void)
{
	return WT_ROLLBACK;
}

int sf_wt_notfound_code(void)
{
	return WT_NOTFOUND;
}
