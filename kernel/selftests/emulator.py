# SPDX-License-Identifier: GPL-2.0
"""A machine under QEMU's software emulation: how it is started, heard and ended."""

import collections
import os
import select
import shutil
import signal
import subprocess
import threading
import time

# words: of the kernel's command line.
Emulator = collections.namedtuple("Emulator", "qemu machine cpu words")
Variant = collections.namedtuple("Variant", "cpu words")

EMULATORS = {
    # Without the fast string instructions, which are fast in hardware only: the emulator goes byte by byte. Copying a page
    # would cost 4,096 instructions of the clock instead of a few hundred.
    # no_timer_check: a timer's interrupt that the host has delayed is no broken board.
    "x86_64": Emulator("qemu-system-x86_64", ["-machine", "pc"], "max,-erms,-fsrm", "no_timer_check"),
    # pauth-impdef: emulating the architected algorithm of pointer authentication takes most of the time.
    "arm64": Emulator("qemu-system-aarch64", ["-machine", "virt,gic-version=3"], "max,pauth-impdef=on", ""),
}
# Other machines than the usual one, each a job of its own (run --machine). What they have is looked for in control/machine.
VARIANTS = {
    # A processor with Retbleed and Meltdown: calls that are counted (Linux 6.12), page tables of the user's own.
    "mitigations": Variant("Skylake-Server,-erms,-fsrm", "retbleed=stuff pti=on"),
    # What most of production has, where "max" has five; tasks may lose their CPU at any place in the kernel.
    "four-levels": Variant(None, "no5lvl pti=on preempt=full"),
}
# How a kernel ends that hangs. Limits are long: a host with other work may leave a machine without CPU for a while.
WATCHED = ("panic=-1 oops=panic softlockup_panic=1 watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120 "
           "sysctl.kernel.hung_task_timeout_secs=120")
CLOCKS = {
    # The host's time, one thread of the host for each CPU.
    "host": ["-accel", "tcg,thread=multi"],
    # One instruction is one nanosecond, and time jumps while every CPU sleeps.
    "instructions": ["-accel", "tcg", "-icount", "shift=0,sleep=off"],
}
STALL_AFTER_SECONDS = 1
STDIO = ["-serial", "stdio"]


def command(arch, kernel, initrd, append, memory_mb, console, answers, cpus="2", clock="host", more=(),
            variant=None):
    """
    console: a file. answers: options of the second serial line. variant: a name in VARIANTS. The emulator does not outlive
    the process that starts it.
    """
    emulator = EMULATORS[arch]
    other = VARIANTS[variant] if variant else Variant(None, "")
    append = " ".join(filter(None, (append, emulator.words, other.words)))
    mortal = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    return [*mortal, emulator.qemu, *emulator.machine, *CLOCKS[clock], "-cpu", other.cpu or emulator.cpu, "-m", f"{memory_mb}M",
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

    def stall_later(self, seconds):
        """As by a host with other work: soon all of the machine stands still for so long, and the clock goes on."""
        def stall():
            time.sleep(STALL_AFTER_SECONDS)
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            self.process.send_signal(signal.SIGCONT)

        threading.Thread(target=stall, daemon=True).start()

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
