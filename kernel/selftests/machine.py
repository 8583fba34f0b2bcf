# SPDX-License-Identifier: GPL-2.0
"""The virtual machine of the kernel selftests: what it needs, its programs and plans."""

import collections
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from emulator import WATCHED, Running, command, console_lines
from initramfs import Initramfs
from kernel import HERE, KERNEL, OUTPUT, CannotRun, Kernel, output_of
from suite import SUITES
from unpacked import UnpackedValkey

CFLAGS = "-std=gnu11 -O2 -g -Wall -Wextra -Werror -static -pthread".split()
NOT_FAMILIES = {"selftest.c", "family.c", "runner.c", "exmap_map.c"}
NEEDED_MODULES = ("zram", "brd", "ext4")  # with what they depend on, in the order of insmod
MEMORY_MB = 1536
BOOT_SECONDS = 120

Run = collections.namedtuple("Run", "family scenario mode")


def installed(package):
    status = subprocess.run(["dpkg-query", "-W", "-f", "${Status}", package], text=True, capture_output=True)
    return status.returncode == 0 and status.stdout == "install ok installed"


class Machine:
    def __init__(self, arch, kernel, headers, slowness=1, fetch_valkey=False, tables=None, fuzz=0, variant=None,
                 stall=0):
        """variant: another machine than the usual one. stall: seconds that the host takes its CPUs away in a scenario."""
        self.asked = kernel
        self.kernel = Kernel(arch, kernel, headers)
        self.arch_name = arch
        self.arch = self.kernel.arch
        self.slowness = slowness
        self.fuzz = fuzz
        self.variant = variant
        self.stall = stall
        self.fetch_valkey = fetch_valkey
        self.cflags = CFLAGS + ([f"-DDEFAULT_TABLES={tables}"] if tables else [])
        self.boots = 0

    # ---------- what it needs ----------

    def prepare(self):
        if self.variant and self.arch_name != "x86_64":
            raise CannotRun(f"the machine {self.variant} is one of x86_64")
        self.install()
        self.kernel.find()
        self.directory = self.kernel.directory
        self.log_directory = self.directory / "log"
        shutil.rmtree(self.log_directory, ignore_errors=True)
        self.log_directory.mkdir(parents=True)
        self.production = self.kernel.build_modules(test=False)
        self.modules = self.kernel.build_modules(test=True)
        self.build_programs()
        self.build_initramfs()

    @property
    def release(self):
        return self.kernel.release

    def version(self):
        return self.kernel.version()

    def packages(self):
        # Headers of later kernels come with type information, for which modules are given some, too.
        more = ["pahole"] if self.asked else []
        return self.arch.packages + more + (["debootstrap"] if self.asked in SUITES else [])

    def install(self):
        if shutil.which("dpkg-query") is None:
            missing = [] if shutil.which(self.arch.qemu) else [self.arch.qemu]
            if missing:
                raise CannotRun(f"please install {' '.join(missing)}")
            return
        missing = [p for p in self.packages() if not installed(p)]
        if not missing:
            return
        if os.geteuid() != 0:
            raise CannotRun(f"as root, install: {' '.join(missing)}")
        print(f"kernel selftests: installing {' '.join(missing)}", flush=True)
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1")
        for command in (["apt-get", "update", "-qq"],
                        ["apt-get", "install", "-y", "-qq", "--no-install-recommends"] + missing):
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                raise CannotRun(f"{' '.join(command)} failed: {done.stdout.strip().splitlines()[-1:]}")

    def valkey(self):
        """Where valkey-server is: installed, or unpacked by an earlier run that was asked for it, or by this one."""
        packages = UnpackedValkey(OUTPUT / "packages-valkey")
        if shutil.which("valkey-server"):
            return shutil.which("valkey-server")
        try:
            if self.fetch_valkey:
                packages.fetch()
        except (OSError, subprocess.CalledProcessError) as why:
            print(f"kernel selftests: no valkey-server: {why}", flush=True)
        return packages.server if packages.server.exists() else None

    @staticmethod
    def tool():
        """The newest stillframe-fork that was built; its tests skip if there is none."""
        built = [OUTPUT.parent / profile / "stillframe-fork" for profile in ("release", "debug")]
        return max((p for p in built if p.exists()), key=lambda p: p.stat().st_mtime, default=None)

    # ---------- building ----------

    def hooks(self):
        """Names of the functions that async_fork hooks, and of its checks: what skip= takes."""
        architecture = "x86" if self.arch_name == "x86_64" else self.arch_name
        version = f"compat/linux_{self.version().replace('.', '_')}"
        lists = (f"async_fork/hook_list_{architecture}.h", f"{version}.h", f"{version}_{architecture}.h",
                 "async_fork/hook_list.h")
        listing = "".join((KERNEL / name).read_text() for name in lists)
        return re.findall(r"^\s*AF_HOOK\(\w+, [^,(]+, (\w+),", listing, re.MULTILINE) + self.checks()

    @staticmethod
    def exmap_checks():
        """What can be left out of exmap."""
        text = (KERNEL / "exmap" / "internal.h").read_text()
        listing = re.search(r"#define EXMAP_CHECKS\(X\)(.*?[^\\])\n", text, re.DOTALL).group(1)
        return [f"exmap:{name}" for name in re.findall(r"X\((\w+)\)", listing)]

    @staticmethod
    def checks():
        """What else can be left out of the module."""
        return re.findall(r'^\t"(check:\w+)",', (KERNEL / "async_fork" / "test_aids.c").read_text(), re.MULTILINE)

    def families(self):
        return sorted(source.stem for source in HERE.glob("*.c") if source.name not in NOT_FAMILIES)

    def build_programs(self):
        """For the machine and, if it runs other programs than this one, for this one, which asks them for --list."""
        self.programs = self.compile(self.directory / "programs", f"{self.arch.cross}gcc")
        self.lists = self.compile(self.directory / "lists", "gcc") if self.arch.cross else self.programs

    def compile(self, directory, compiler):
        directory = directory.with_name("-".join([directory.name] + self.cflags[len(CFLAGS):]))
        directory.mkdir(exist_ok=True)
        headers = list(HERE.glob("*.h")) + list((KERNEL / "include").rglob("*.h"))
        for name in self.families() + ["runner"]:
            sources = [HERE / f"{name}.c", HERE / "selftest.c"] + ([HERE / "family.c"] if name != "runner" else [])
            sources += [HERE / "exmap_map.c"] if name.startswith("exmap") else []
            program = directory / name
            if program.exists() and all(s.stat().st_mtime < program.stat().st_mtime for s in sources + headers):
                continue
            subprocess.run([compiler, *self.cflags, "-o", program, *sources], check=True)
        return directory

    def runs(self):
        found = []
        for family in self.families():
            for text in output_of(str(self.lists / family), "--list").splitlines():
                scenario, *modes = text.split()
                found += [Run(family, scenario, mode) for mode in modes]
        return found

    def build_initramfs(self):
        self.initramfs = Initramfs(self.directory, self.arch.cross)
        root = self.initramfs.root
        shutil.copy(HERE / "init", root / "init")
        shutil.copy(self.kernel.busybox or shutil.which("busybox"), root / "bin" / "busybox")
        for program in self.programs.iterdir():
            self.initramfs.strip(program, Path("bin") / program.name)
        for name, module in self.modules.items():
            self.initramfs.strip(module, Path("lib") / f"{name}.ko", "--strip-debug")
            self.initramfs.strip(self.production[name], Path("lib") / f"{name}-production.ko", "--strip-debug")
        if not self.arch.cross:
            for program in filter(None, (shutil.which("redis-server"), self.valkey(), self.tool())):
                if self.initramfs.program(program):
                    print(f"kernel selftests: {program} lacks libraries on this machine", flush=True)
            self.add_test_module(self.kernel.build_livepatch())
        self.add_test_module(self.kernel.build_notifier())
        self.initramfs.add_modules(self.kernel.with_needed(NEEDED_MODULES))
        self.packed = self.initramfs.pack()

    def add_test_module(self, module):
        """Scenarios load it."""
        if module:
            shutil.copy(module, self.initramfs.root / "lib" / module.name)

    # ---------- running ----------

    def command(self, initramfs, console):
        half = f"{MEMORY_MB // 2}M"
        # Two nodes: pages can be moved between them.
        nodes = ["-object", f"memory-backend-ram,id=m0,size={half}", "-object", f"memory-backend-ram,id=m1,size={half}",
                 "-numa", "node,nodeid=0,cpus=0,memdev=m0", "-numa", "node,nodeid=1,cpus=1,memdev=m1"]
        append = (f"console={self.arch.console} answers={self.arch.answers} {WATCHED} "
                  "kasan_multi_shot init_on_alloc=0 quiet loglevel=5" + (f" fuzz={self.fuzz}" if self.fuzz else ""))
        return command(self.arch_name, self.kernel.image, initramfs, append, MEMORY_MB, console, self.arch.serial,
                       cpus="2,sockets=2", more=nodes, variant=self.variant)

    def boot(self, plan):
        """Runs the plan in one boot; yields what the runner says: (index, verdict or START, seconds, reason)."""
        self.boots += 1
        initramfs = self.initramfs.for_plan(self.packed, "\n".join(plan) + "\n")
        self.console = self.log_directory / f"console-{self.boots}.log"
        words = self.command(initramfs, self.console)
        with Running(words, BOOT_SECONDS * self.slowness, errors=subprocess.STDOUT) as vm:
            yield from self.answers(vm, plan)

    def patience(self, text):
        """Seconds after which a silent machine counts as hung; the runner's own time limits come first."""
        return int(text.split()[4]) * 3 + 60 if text.startswith("run ") else 60 * self.slowness

    def answers(self, vm, plan):
        for line in vm.lines():
            match = re.match(r"@ (\d+) (\w+) (\d+) ?(.*)", line)
            if not match:
                continue
            number, verdict, milliseconds, reason = match.groups()
            if verdict == "DONE":
                yield len(plan), "DONE", 0, ""
                return
            vm.patience_seconds = self.patience(plan[int(number) - 1])
            if verdict == "START" and self.stall and plan[int(number) - 1].startswith("run "):
                vm.stall_later(self.stall)
            yield int(number) - 1, verdict, int(milliseconds) / 1000, reason

    def last_words(self):
        """Why a boot ended before its plan."""
        lines = [re.sub(r"^\[ *[\d.]+\] *", "", line) for line in console_lines(self.console)]
        for line in lines:
            if re.search(r"BUG:|Oops|Kernel panic|general protection|kernel BUG|soft lockup", line):
                return f"the kernel died: {line}"
        return f"the machine hung or stopped: {' | '.join(lines[-2:])}"

    def boot_until_done(self, plan):
        """Yields one answer for each line of the plan; boots again after each death, with the module's line before."""
        at = 0
        while at < len(plan):
            setup = [] if plan[at].startswith("module") else self.setup_before(plan, at)
            current, began = at, time.monotonic()
            done = again = False
            for index, verdict, seconds, reason in self.boot(setup + plan[at:]):
                if verdict == "DONE":
                    done = True
                    break
                index += at - len(setup)
                if index < at:
                    continue
                if verdict == "START":
                    current, began = index, time.monotonic()
                elif verdict == "FAIL" and plan[index].startswith("module") and index > at:
                    again = True  # the module before cannot be unloaded: a fresh kernel for this one
                    break
                else:
                    yield index, verdict, seconds, reason
                    current = index + 1
            if done or current >= len(plan):
                return
            if again:
                at = current
                continue
            yield current, "FAIL", time.monotonic() - began, self.last_words()
            at = current + 1
            if plan[current].startswith("run ") and self.caught_here(plan, current):
                at = self.next_section(plan, current)

    @staticmethod
    def setup_before(plan, at):
        for i in range(at - 1, -1, -1):
            if plan[i].startswith("module"):
                return [plan[i]]
        return []

    @staticmethod
    def caught_here(plan, at):
        """Whether the line belongs to a negative control: a dead kernel is a catch, the rest is not needed."""
        for i in range(at - 1, -1, -1):
            if plan[i].startswith("module"):
                return False
            if plan[i].startswith("hook "):
                return True
        return False

    @staticmethod
    def next_section(plan, at):
        for i in range(at + 1, len(plan)):
            if plan[i].startswith("module"):
                return i
        return len(plan)
