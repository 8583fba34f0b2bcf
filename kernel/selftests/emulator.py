#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""
How a machine under QEMU's software emulation is started: those of the selftests, which import this, and those of
`stillframe-bench fork`, which runs it. Run as a program it becomes the emulator.
"""

import argparse
import collections
import os
import shutil

Emulator = collections.namedtuple("Emulator", "qemu machine cpu")

EMULATORS = {
    # Without the fast string instructions, which are fast in hardware only: the emulator goes byte by byte. Copying a page
    # would cost 4,096 instructions of the clock instead of a few hundred.
    "x86_64": Emulator("qemu-system-x86_64", ["-machine", "pc"], "max,-erms,-fsrm"),
    # pauth-impdef: emulating the architected algorithm of pointer authentication takes most of the time.
    "arm64": Emulator("qemu-system-aarch64", ["-machine", "virt,gic-version=3"], "max,pauth-impdef=on"),
}
CLOCKS = {
    # The host's time, one thread of the host for each CPU.
    "host": ["-accel", "tcg,thread=multi"],
    # One instruction is one nanosecond, and time jumps while every CPU sleeps.
    "instructions": ["-accel", "tcg", "-icount", "shift=0,sleep=off"],
}
STDIO = ["-serial", "stdio"]


def command(arch, kernel, initrd, append, memory_mb, console, answers, cpus="2", clock="host", more=()):
    """console: a file. answers: options of the second serial line. The emulator does not outlive who starts it."""
    emulator = EMULATORS[arch]
    mortal = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    return [*mortal, emulator.qemu, *emulator.machine, *CLOCKS[clock], "-cpu", emulator.cpu, "-m", f"{memory_mb}M",
            "-smp", str(cpus), *more, "-display", "none", "-monitor", "none", "-nodefaults", "-no-reboot",
            "-kernel", str(kernel), "-initrd", str(initrd), "-serial", f"file:{console}", *answers, "-append", append]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", choices=EMULATORS, default="x86_64")
    parser.add_argument("--clock", choices=CLOCKS, required=True)
    parser.add_argument("--cpus", required=True)
    for name in ("kernel", "initrd", "append", "memory-mb", "console"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--answers", required=True, help="file for what comes through the second serial line")
    options = vars(parser.parse_args())
    words = command(**{**options, "answers": ["-serial", f"file:{options['answers']}"]})
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
