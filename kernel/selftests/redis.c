// SPDX-License-Identifier: GPL-2.0
/*
 * Debian's own redis-server and valkey-server: BGSAVE, BGREWRITEAOF and the synchronisation of a replica under writes.
 * The cut is exact: writes are paused from the digest to the fork (inside MULTI the fork would only be scheduled), so
 * the dump must have the digest that was reported.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "selftest.h"

#define PORT 7001
#define REPLICA_PORT 7003
#define TRACING "/sys/kernel/tracing/"
#define INTERRUPTED TRACING "events/kprobes/af_interrupted/"
#define HISTOGRAM "hist:keys=ns.log2:sort=ns if comm == \"redis-server\""
#define TRACED_KEYS 40000		/* more tables, more interruptions */
#define KEYS 8000
#define VALUE_BYTES 2000
#define WRITERS 2
#define SAVES 2
#define PATIENCE_MS 60000

static const char *program = "/bin/redis-server";
static char directory[64];

struct server { pid_t pid; int fd; };

/* ---------- the protocol ---------- */

static int dial(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
	for (int waited = 0; waited < PATIENCE_MS; waited += 20) {
		int fd = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));

		if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
			return fd;
		close(fd);
		sleep_ms(20);
	}
	fail("redis does not listen on port %d", port);
}

static void read_line(int fd, char *line, size_t size)
{
	size_t used = 0;

	while (used + 1 < size && read(fd, line + used, 1) == 1) {
		if (line[used] == '\n')
			break;
		used++;
	}
	if (used && line[used - 1] == '\r')
		used--;
	line[used] = 0;
}

/* Reads one reply; the text of the last string in it, shortened, goes to `text`. */
static void reply(int fd, char *text, size_t size)
{
	char line[512];

	read_line(fd, line, sizeof(line));
	switch (line[0]) {
	case '$': {
		long length = atol(line + 1), got = 0;
		char *bytes = malloc(length + 3);

		while (got < length + 2) {
			ssize_t part = read(fd, bytes + got, length + 2 - got);

			expect(part > 0, "redis closed the connection");
			got += part;
		}
		bytes[length] = 0;
		snprintf(text, size, "%s", bytes);
		free(bytes);
		break;
	}
	case '*':
		for (long i = atol(line + 1); i > 0; i--)
			reply(fd, text, size);
		break;
	case '-':
		fail("redis: %s", line);
	case 0:
		fail("redis is gone");
	default:
		snprintf(text, size, "%s", line + 1);
	}
}

static const char *command(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
static const char *command(int fd, const char *format, ...)
{
	static char text[8192];
	char line[VALUE_BYTES + 512];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(line, sizeof(line) - 2, format, arguments);
	va_end(arguments);
	strcpy(line + length, "\r\n");
	expect(write(fd, line, length + 2) == length + 2, "write to redis: %s", strerror(errno));
	reply(fd, text, sizeof(text));
	return text;
}

static long info(int fd, const char *section, const char *field)
{
	const char *text = command(fd, "INFO %s", section), *found = strstr(text, field);

	expect(found, "INFO has no %s", field);
	return atol(found + strlen(field) + 1);
}

static void digest(int fd, char *text)
{
	snprintf(text, 64, "%s", command(fd, "DEBUG DIGEST"));
	expect(strlen(text) == 40, "DEBUG DIGEST: %s", text);
}

/* ---------- servers ---------- */

static struct server start(int port, const char *where, const char *dump, const char *append_only)
{
	struct server server;
	char number[16];

	snprintf(number, sizeof(number), "%d", port);
	server.pid = must_fork();
	if (!server.pid) {
		execl(program, program, "--port", number, "--dir", where, "--dbfilename", dump, "--appendonly",
		      append_only,
		      "--save", "", "--enable-debug-command", "yes", "--logfile", "redis.log",
		      "--jemalloc-bg-thread", "no", NULL);
		_exit(127);
	}
	server.fd = dial(port);
	/* It answers "loading" until its data is there. */
	for (int waited = 0; waited < PATIENCE_MS && info(server.fd, "persistence", "loading"); waited += 50)
		sleep_ms(50);
	return server;
}

static void stop(struct server *server)
{
	close(server->fd);
	kill(server->pid, SIGKILL);
	wait_status(server->pid);
}

static void populate(int fd)
{
	command(fd, "DEBUG POPULATE %d key %d", KEYS, VALUE_BYTES);
	for (int i = 0; i < 200; i++) {
		command(fd, "HSET hash:%d a %d b %d c %d", i % 20, i, i + 1, i + 2);
		command(fd, "RPUSH list:%d %d %d %d", i % 20, i, i + 1, i + 2);
		command(fd, "ZADD zset:%d %d m%d %d n%d", i % 20, i, i, i + 1, i);
		command(fd, "SADD set:%d x%d y%d", i % 20, i, i);
		command(fd, "XADD stream:%d * f %d", i % 5, i);
	}
}

static pid_t start_writer(int seed)
{
	pid_t pid = must_fork();

	if (pid)
		return pid;
	int fd = dial(PORT);

	for (uint64_t i = seed * 1000003ULL; ; i++) {
		uint64_t key = (i * 2654435761ULL >> 7) % KEYS;

		command(fd, "SET key:%lu %0*lu", key, VALUE_BYTES, i);
		if (i % 8 == 0)
			command(fd, "HSET hash:%lu a %lu", i % 20, i);
		if (i % 16 == 0)
			command(fd, "DEL key:%lu", (key + 1) % KEYS);
	}
}

static void start_writers(pid_t *writers)
{
	for (int i = 0; i < WRITERS; i++)
		writers[i] = start_writer(i + 1);
}

static void stop_writers(const pid_t *writers)
{
	for (int i = 0; i < WRITERS; i++) {
		kill(writers[i], SIGKILL);
		wait_status(writers[i]);
	}
}

/* ---------- scenarios ---------- */

static void prepare(void)
{
	if (access(program, X_OK))
		skip("%s is not installed on the machine that built this one", strrchr(program, '/') + 1);
	snprintf(directory, sizeof(directory), "/tmp/redis.%d", getpid());
	must(mkdir(directory, 0755));
	must_write_file("/proc/sys/vm/overcommit_memory", "1");
}

static void expect_strategy_used(const struct async_fork_statistics *before)
{
	struct async_fork_statistics now = statistics();

	if (mode & MODES_ASYNC)
		expect(now.forks_async > before->forks_async, "redis's fork was not an Async-fork");
	if (mode == MODE_ODF)
		expect(now.forks_odf > before->forks_odf, "redis's fork was not an On-Demand-Fork");
}

/* The digest of what is in the file, by a server of its own. */
static void digest_of_dump(const char *where, const char *name, char *text)
{
	struct server reader = start(PORT + 1, where, name, "no");

	digest(reader.fd, text);
	stop(&reader);
}

static void cut(int fd, const char *how, char *text)
{
	char request[128], answer[256];
	int length = snprintf(request, sizeof(request), "DEBUG DIGEST\r\n%s\r\nCLIENT UNPAUSE\r\n", how);

	command(fd, "CLIENT PAUSE %d WRITE", PATIENCE_MS);
	expect(write(fd, request, length) == length, "write to redis: %s", strerror(errno));
	reply(fd, text, 64);
	expect(strlen(text) == 40, "DEBUG DIGEST: %s", text);
	reply(fd, answer, sizeof(answer));
	expect(strstr(answer, "started"), "%s: %s", how, answer);
	reply(fd, answer, sizeof(answer));
}

static void wait_for(int fd, const char *field)
{
	for (int waited = 0; info(fd, "persistence", field); waited += 50) {
		expect(waited < PATIENCE_MS, "%s does not end", field);
		sleep_ms(50);
	}
}

static void bgsave(void)
{
	struct async_fork_statistics before;
	char at_cut[64], in_dump[64];
	pid_t writers[WRITERS];

	prepare();
	before = statistics();
	struct server server = start(PORT, directory, "dump.rdb", "no");

	populate(server.fd);
	opt_in_pid(server.pid);
	start_writers(writers);
	for (int save = 0; save < SAVES; save++) {
		sleep_ms(200);
		cut(server.fd, "BGSAVE", at_cut);
		wait_for(server.fd, "rdb_bgsave_in_progress");
		expect(strstr(command(server.fd, "INFO persistence"), "rdb_last_bgsave_status:ok"), "BGSAVE failed");
		digest_of_dump(directory, "dump.rdb", in_dump);
		expect(!strcmp(at_cut, in_dump), "save %d: digest %s at the cut, %s in the dump", save, at_cut,
		       in_dump);
	}
	stop_writers(writers);
	expect_strategy_used(&before);
	stop(&server);
}

/* The base file of a rewritten AOF is the state at the cut; base and increments together are the state at the end. */
static void bgrewriteaof(void)
{
	char at_cut[64], in_file[64], appends[128], base[64];
	struct async_fork_statistics before;
	pid_t writers[WRITERS];

	prepare();
	before = statistics();
	struct server server = start(PORT, directory, "dump.rdb", "yes");

	populate(server.fd);
	opt_in_pid(server.pid);
	start_writers(writers);
	snprintf(appends, sizeof(appends), "%s/appendonlydir", directory);
	for (int rewrite = 2; rewrite < 2 + SAVES; rewrite++) {
		sleep_ms(200);
		cut(server.fd, "BGREWRITEAOF", at_cut);
		wait_for(server.fd, "aof_rewrite_scheduled");
		wait_for(server.fd, "aof_rewrite_in_progress");
		expect(strstr(command(server.fd, "INFO persistence"), "aof_last_bgrewrite_status:ok"),
		       "BGREWRITEAOF failed");
		snprintf(base, sizeof(base), "appendonly.aof.%d.base.rdb", rewrite);
		digest_of_dump(appends, base, in_file);
		expect(!strcmp(at_cut, in_file), "digest %s at the cut, %s in %s", at_cut, in_file, base);
	}
	stop_writers(writers);
	expect_strategy_used(&before);
	digest(server.fd, at_cut);
	stop(&server);
	server = start(PORT, directory, "dump.rdb", "yes");
	digest(server.fd, in_file);
	expect(!strcmp(at_cut, in_file), "digest %s at the end, %s after a restart", at_cut, in_file);
	stop(&server);
}

/* Saves that end half way: FLUSHALL and SIGTERM kill the child. */
static void killed_saves(void)
{
	prepare();
	struct server server = start(PORT, directory, "dump.rdb", "no");

	opt_in_pid(server.pid);
	for (int i = 0; i < 5; i++) {
		populate(server.fd);
		command(server.fd, "BGSAVE");
		usleep(i * 5000);
		command(server.fd, "SET key:%d written-after-the-cut", i);
		command(server.fd, "FLUSHALL");
		expect(!strcmp(command(server.fd, "DBSIZE"), "0"), "FLUSHALL left keys");
		wait_for(server.fd, "rdb_bgsave_in_progress");
	}
	populate(server.fd);
	command(server.fd, "BGSAVE");
	kill(server.pid, SIGTERM);
	int status = wait_status(server.pid);

	close(server.fd);
	expect(WIFEXITED(status) && !WEXITSTATUS(status), "redis ended with %x", status);
}

/*
 * A replica that is sent the dump by the child itself (through the parent, no file): with what was written meanwhile it
 * has the parent's data.
 */
static void replica_sync(void)
{
	char of_server[64], of_replica[64], dump[128];
	struct async_fork_statistics before;
	pid_t writers[WRITERS];

	prepare();
	before = statistics();
	struct server server = start(PORT, directory, "dump.rdb", "no");
	struct server replica = start(REPLICA_PORT, directory, "replica.rdb", "no");

	snprintf(dump, sizeof(dump), "%s/dump.rdb", directory);
	populate(server.fd);
	opt_in_pid(server.pid);
	command(server.fd, "CONFIG SET repl-diskless-sync yes");
	command(server.fd, "CONFIG SET repl-diskless-sync-delay 0");
	start_writers(writers);
	sleep_ms(200);
	command(replica.fd, "REPLICAOF 127.0.0.1 %d", PORT);
	for (int waited = 0; !strstr(command(replica.fd, "INFO replication"), "master_link_status:up"); waited += 50) {
		expect(waited < PATIENCE_MS, "the replica is not synchronised");
		sleep_ms(50);
	}
	stop_writers(writers);
	expect_strategy_used(&before);
	expect(info(server.fd, "stats", "sync_full") == 1, "the replica was not sent one full dump");
	expect(access(dump, F_OK), "the server wrote a file");
	command(server.fd, "SET last written");
	expect(!strcmp(command(server.fd, "WAIT 1 %d", PATIENCE_MS), "1"), "the replica does not follow");
	digest(server.fd, of_server);
	digest(replica.fd, of_replica);
	expect(!strcmp(of_server, of_replica), "digest %s, but %s of the replica", of_server, of_replica);
	stop(&replica);
	stop(&server);
}

static uint64_t interruptions_counted(void)
{
	struct async_fork_statistics now = statistics();
	uint64_t sum = 0;

	for (int i = 0; i < ASYNC_FORK_BUCKETS; i++)
		sum += now.sync_histogram[i];
	return sum;
}

/* The recipe of docs/guide/kernel-module.md: the kernel's own tracing draws Figure 11 of a BGSAVE. */
static void interruptions(void)
{
	char text[16384], at_cut[64];
	pid_t writers[WRITERS];

	prepare();
	if (!write_file(TRACING "kprobe_events", "p:af_interrupted async_fork:af_interrupted addr=$arg1:x64 "
			"reason=$arg2:u32 ns=$arg3:u64") || access(INTERRUPTED "hist", F_OK))
		skip("no events at kprobes, or no histograms, in this kernel: %s", strerror(errno));
	struct server server = start(PORT, directory, "dump.rdb", "no");

	command(server.fd, "DEBUG POPULATE %d key %d", TRACED_KEYS, VALUE_BYTES);
	opt_in_pid(server.pid);
	uint64_t before = interruptions_counted();

	must_write_file(INTERRUPTED "trigger", HISTOGRAM);
	start_writers(writers);
	sleep_ms(200);
	cut(server.fd, "BGSAVE", at_cut);
	wait_for(server.fd, "rdb_bgsave_in_progress");
	stop_writers(writers);
	stop(&server);

	int fd = must(open(INTERRUPTED "hist", O_RDONLY | O_CLOEXEC));
	ssize_t length = must(read(fd, text, sizeof(text) - 1));

	close(fd);
	must_write_file(INTERRUPTED "trigger", "!" HISTOGRAM);
	must_write_file(TRACING "kprobe_events", "-:af_interrupted");
	text[length] = 0;
	printf("%s", text);
	const char *hits = strstr(text, "Hits: ");

	expect(hits, "no histogram");
	expect(strtoull(hits + 6, NULL, 10) == interruptions_counted() - before,
	       "the histogram has %.10s, the module counted %lu", hits + 6, interruptions_counted() - before);
	if (!strtoull(hits + 6, NULL, 10))
		missed("the parent was not interrupted");
}

static void with_valkey(void (*scenario)(void))
{
	program = "/bin/valkey-server";
	scenario();
}

static void valkey_bgsave(void)
{
	with_valkey(bgsave);
}

static void valkey_bgrewriteaof(void)
{
	with_valkey(bgrewriteaof);
}

static void valkey_killed_saves(void)
{
	with_valkey(killed_saves);
}

static void valkey_replica_sync(void)
{
	with_valkey(replica_sync);
}

const struct scenario scenarios[] = {
	{ "bgsave", bgsave, MODES_ALL },
	{ "bgrewriteaof", bgrewriteaof, MODES_ALL },
	{ "killed_saves", killed_saves, MODES_ALL },
	{ "replica_sync", replica_sync, MODES_ALL },
	{ "interruptions", interruptions, MODES_MODULE },
	{ "valkey_bgsave", valkey_bgsave, MODES_ALL },
	{ "valkey_bgrewriteaof", valkey_bgrewriteaof, MODES_ALL },
	{ "valkey_killed_saves", valkey_killed_saves, MODES_ALL },
	{ "valkey_replica_sync", valkey_replica_sync, MODES_ALL },
	{ 0 },
};
