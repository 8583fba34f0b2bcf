// SPDX-License-Identifier: GPL-2.0
/* main() of a family of scenarios; see selftest.h. */
#include "selftest.h"

static const struct { const char *name; enum mode mode; } mode_names[] = {
	{ "default", MODE_DEFAULT }, { "async1", MODE_ASYNC1 }, { "async4", MODE_ASYNC4 }, { "odf", MODE_ODF },
	{ "exmap", MODE_EXMAP },
};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (const struct scenario *s = scenarios; s->name; s++) {
			printf("%s", s->name);
			for (size_t i = 0; i < sizeof(mode_names) / sizeof(mode_names[0]); i++)
				if (s->modes & mode_names[i].mode)
					printf(" %s", mode_names[i].name);
			printf("\n");
		}
		return 0;
	}
	if (argc != 3) {
		fprintf(stderr, "usage: %s --list | SCENARIO MODE\n", argv[0]);
		return 2;
	}
	mode = 0;
	for (size_t i = 0; i < sizeof(mode_names) / sizeof(mode_names[0]); i++)
		if (!strcmp(argv[2], mode_names[i].name))
			mode = mode_names[i].mode;
	if (mode == MODE_EXMAP)
		module_name = "exmap";
	for (const struct scenario *s = scenarios; s->name; s++)
		if (!strcmp(argv[1], s->name) && (s->modes & mode)) {
			s->run();
			exit(VERDICT_PASS);
		}
	fprintf(stderr, "no scenario %s for %s\n", argv[1], argv[2]);
	return 2;
}
