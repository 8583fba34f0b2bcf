# SPDX-License-Identifier: GPL-2.0
"""A machine under QEMU's software emulation: how it is started, heard and ended."""

import collections
import os
import select
import shutil
import subprocess

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


class Running:
    """An emulator whose second serial line is its standard output; killed at the end of the `with` block."""

    def __init__(self, words, patience_seconds, errors=None):
        """patience_seconds: after so long a silence the machine hangs; may be changed meanwhile. errors: as Popen's."""
        self.patience_seconds = patience_seconds
        self.is_silent = False
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def lines(self):
        """Lines as they come, without their ends, until the machine has stopped or hangs (`is_silent`)."""
        data = b""
        while True:
            ready, _, _ = select.select([self.process.stdout], [], [], self.patience_seconds)
            self.is_silent = not ready
            part = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not part:
                return
            *lines, data = (data + part).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace").strip()


def console_lines(console):
    """What the kernel has said so far."""
    return console.read_text(errors="replace").splitlines() if console.exists() else []
