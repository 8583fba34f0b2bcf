// SPDX-License-Identifier: GPL-2.0
/*
 * Random operations against a model: for each page of the region the generation that it must show. Children check
 * their whole memory against the model at the cut, go on with random operations of their own, fork as well, and end at
 * random times. STRESS_SEED picks the sequence; the first line of the output says it.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>

#include "selftest.h"

#define TABLES 10
#define OPERATIONS 150
#define CHILDREN 4
#define DEPTH 2			/* children of children */

static struct region region;
/* Less than a table, so that fork copies it at once whatever the strategy. 0: a page of zeros. */
static uint16_t model[TABLES * TABLE_PAGES];
static uint16_t generation;
static struct snapshot children[CHILDREN];
static int depth;
static char trail[OPERATIONS + 1];	/* what has been done, one letter each */

static size_t wrong_pages(void)
{
	size_t wrong = 0;

	for (size_t page = 0; page < region.pages; page++) {
		const volatile uint64_t *word = (uint64_t *)(region.base + page * PAGE_BYTES);

		if (model[page] ? page_shows(&region, page, model[page]) : !word[0] && !word[1] && !word[511])
			continue;
		if (wrong++ < 2)
			dprintf(STDOUT_FILENO, "depth %d after %s: page %zu shows %lu %lu %lu, not %u\n", depth,
				trail, page, word[0],
				word[1], word[511], model[page]);
	}
	return wrong;
}

struct range { size_t first, count; };

/* Often whole tables, often their borders. */
static struct range random_range(size_t most)
{
	struct range range;

	if (random_number() % 2) {
		range.first = random_number() % TABLES * TABLE_PAGES;
		range.count = TABLE_PAGES;
	} else {
		range.first = random_number() % region.pages;
		range.count = 1 + random_number() % most;
	}
	if (range.first + range.count > region.pages)
		range.count = region.pages - range.first;
	return range;
}

static char *at(struct range range)
{
	return region.base + range.first * PAGE_BYTES;
}

static void write_some(void)
{
	generation++;
	for (int i = 0; i < 40; i++) {
		size_t page = random_number() % region.pages;

		page_write(&region, page, generation);
		model[page] = generation;
	}
}

static void write_range(void)
{
	struct range range = random_range(300);

	generation++;
	for (size_t page = range.first; page < range.first + range.count; page++) {
		page_write(&region, page, generation);
		model[page] = generation;
	}
}

static void forget(struct range range)
{
	memset(&model[range.first], 0, range.count * sizeof(model[0]));
}

static void give_back(void)
{
	struct range range = random_range(700);

	must(madvise(at(range), range.count * PAGE_BYTES, MADV_DONTNEED));
	forget(range);
}

static void map_anew(void)
{
	struct range range = random_range(700);

	must(munmap(at(range), range.count * PAGE_BYTES));
	expect(mmap(at(range), range.count * PAGE_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at(range), "mmap: %s", strerror(errno));
	must(madvise(at(range), range.count * PAGE_BYTES, MADV_NOHUGEPAGE));
	forget(range);
}

static void protect(void)
{
	struct range range = random_range(700);

	must(mprotect(at(range), range.count * PAGE_BYTES, PROT_READ));
	must(mprotect(at(range), range.count * PAGE_BYTES, PROT_READ | PROT_WRITE));
}

static void move_away_and_back(void)
{
	struct range range = random_range(700);
	size_t bytes = range.count * PAGE_BYTES;
	char *away;

	/* mremap() takes no range of several VMAs */
	away = mremap(at(range), bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	if (away == MAP_FAILED) {
		expect(errno == EFAULT || errno == EINVAL, "mremap: %s", strerror(errno));
		return;
	}
	expect(mremap(away, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at(range)) == at(range), "mremap back: %s",
	       strerror(errno));
}

static void page_out(void)
{
	struct range range = random_range(700);

	must(madvise(at(range), range.count * PAGE_BYTES, random_number() % 2 ? MADV_PAGEOUT : MADV_COLD));
}

static void collapse(void)
{
	struct range range = { random_number() % TABLES * TABLE_PAGES, TABLE_PAGES };

	must(madvise(at(range), TABLE_BYTES, MADV_HUGEPAGE));
	page_write(&region, range.first, ++generation);
	model[range.first] = generation;
	madvise(at(range), TABLE_BYTES, 25 /* MADV_COLLAPSE */);
	must(madvise(at(range), TABLE_BYTES, MADV_NOHUGEPAGE));
}

/* By the kernel on behalf of another: pages come through get_user_pages(). */
static void write_by_file(void)
{
	size_t page = random_number() % region.pages;
	uint64_t words[PAGE_BYTES / 8] = { page, ++generation };
	int fd = must(open("/proc/self/mem", O_RDWR | O_CLOEXEC));

	words[511] = page * 3 + generation;
	expect(pwrite(fd, words, sizeof(words), (off_t)(region.base + page * PAGE_BYTES)) == sizeof(words), "write: %s",
	       strerror(errno));
	close(fd);
	model[page] = generation;
}

static void look(void)
{
	read_field("/proc/self/smaps_rollup", "Rss");
	if (random_number() % 4 == 0)
		write_file("/proc/self/clear_refs", "1");
}

static void change_strategy(void)
{
	static const struct { enum async_fork_strategy strategy; unsigned int threads; } any[] = {
		{ ASYNC_FORK_DEFAULT, 0 }, { ASYNC_FORK_ASYNC, 1 }, { ASYNC_FORK_ASYNC, 3 }, { ASYNC_FORK_ODF, 0 },
	};
	size_t pick = random_number() % 4;

	if (mode != MODE_DEFAULT && random_number() % 2)
		expect(!control(0, any[pick].strategy, any[pick].threads), "control");
	else
		opt_in();
}

static void operate(void);

static void end_child(struct snapshot *child)
{
	if (random_number() % 3 == 0) {
		kill(child->pid, SIGKILL);
		close(child->go);
		wait_status(child->pid);
	} else {
		snapshot_end(child);
	}
	child->pid = 0;
}

/* The child: checks at once, operates, and checks when it is told to end. */
static void live_as_child(int go)
{
	char byte;

	depth++;
	for (int i = 0; i < CHILDREN; i++)
		if (children[i].pid) {
			close(children[i].go);
			children[i].pid = 0;
		}
	if (wrong_pages())
		fail("child: wrong at its start");
	opt_in();
	if (depth < DEPTH)
		operate();
	if (read(go, &byte, 1) != 1)
		_exit(VERDICT_FAIL);
	if (wrong_pages())
		fail("child: wrong at its end");
	_exit(VERDICT_PASS);
}

static void fork_child(void)
{
	struct snapshot *child = &children[random_number() % CHILDREN];
	int ends[2];

	if (child->pid)
		end_child(child);
	must(pipe2(ends, O_CLOEXEC));
	child->pid = must_fork();
	if (!child->pid) {
		close(ends[1]);
		live_as_child(ends[0]);
	}
	close(ends[0]);
	child->go = ends[1];
}

static const struct { void (*run)(void); char letter; unsigned int weight; } operations[] = {
	{ write_some, 'w', 8 }, { write_range, 'W', 4 }, { give_back, 'd', 3 }, { map_anew, 'u', 3 }, { protect, 'p',
		3 },
	{ move_away_and_back, 'm', 3 }, { page_out, 'o', 2 }, { collapse, 'c', 1 }, { write_by_file, 'g', 3 }, { look,
		'l', 1 },
	{ change_strategy, 's', 3 }, { fork_child, 'f', 8 },
};

static void operate(void)
{
	int count = depth ? OPERATIONS / 8 : OPERATIONS;
	unsigned int all = 0;

	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		all += operations[i].weight;
	for (int i = 0; i < count; i++) {
		unsigned int pick = random_number() % all;
		size_t which = 0;

		while (pick >= operations[which].weight)
			pick -= operations[which++].weight;
		trail[strlen(trail) % OPERATIONS] = operations[which].letter;
		operations[which].run();
	}
	for (int i = 0; i < CHILDREN; i++)
		if (children[i].pid)
			end_child(&children[i]);
	if (wrong_pages())
		fail("wrong after all operations");
}

static void seeded(unsigned int round)
{
	const char *given = getenv("STRESS_SEED");
	unsigned int seed = given ? (unsigned int)atoi(given) : round;

	printf("seed %u\n", seed);
	for (unsigned int i = 0; i < seed * 1000; i++)
		random_number();
	region = region_map(TABLES * TABLE_BYTES);
	opt_in();
	write_range();
	operate();
	expect(!munmap(region.base, region.pages * PAGE_BYTES), "munmap: %s", strerror(errno));
}

static void one(void) { seeded(1); }
static void two(void) { seeded(2); }
static void three(void) { seeded(3); }
static void four(void) { seeded(4); }

const struct scenario scenarios[] = {
	{ "seed1", one, MODES_ALL },
	{ "seed2", two, MODES_ALL },
	{ "seed3", three, MODES_ALL },
	{ "seed4", four, MODES_ALL },
	{ 0 },
};
