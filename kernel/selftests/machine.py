# SPDX-License-Identifier: GPL-2.0
"""The virtual machine of the kernel selftests: what it needs, its file system, one boot."""

import collections
import lzma
import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

from emulator import EMULATORS, STDIO, command
from suite import SUITES, Suite
from unpacked import HOST, UnpackedKernel, UnpackedValkey, newest_stock

HERE = Path(__file__).resolve().parent
KERNEL = HERE.parent
OUTPUT = Path(os.environ.get("CARGO_TARGET_DIR", KERNEL.parent / "target")) / "kernel"
CFLAGS = "-std=gnu11 -O2 -g -Wall -Wextra -Werror -static -pthread".split()
NOT_FAMILIES = {"selftest.c", "family.c", "runner.c"}
MODULES = ("zram", "brd")  # with what they depend on, in the order of insmod
DEFAULT_VERSION = "6.1"
MEMORY_MB = 1536
BOOT_SECONDS = 120

Run = collections.namedtuple("Run", "family scenario mode")
# cross: prefix of the compiler's name. debian: if set, the architecture whose kernel is unpacked, not installed.
# answers, serial: the second serial line, on which the runner answers, in the machine and as QEMU's options.
Architecture = collections.namedtuple("Architecture", "qemu cross debian packages console answers serial")

ARCHITECTURES = {
    "x86_64": Architecture(
        EMULATORS["x86_64"].qemu, "", None,
        ["qemu-system-x86", "linux-image-amd64", "linux-headers-amd64", "busybox-static", "cpio", "gcc", "make",
         "libc6-dev", "redis-server", "redis-tools"], "ttyS0", "ttyS1", STDIO),
    "arm64": Architecture(
        EMULATORS["arm64"].qemu, "aarch64-linux-gnu-", "arm64",
        ["qemu-system-arm", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "cpio", "gcc", "make", "libc6-dev"],
        "ttyAMA0", "ttyS0", ["-chardev", "stdio,id=answers", "-device", "pci-serial,chardev=answers"]),
}


class CannotRun(Exception):
    """This machine lacks something that is no fault of the module: the suite skips."""


def output_of(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def installed(package):
    status = subprocess.run(["dpkg-query", "-W", "-f", "${Status}", package], text=True, capture_output=True)
    return status.returncode == 0 and status.stdout == "install ok installed"


class Machine:
    def __init__(self, arch, kernel, headers, slowness=1, fetch_valkey=False, tables=None):
        if arch not in ARCHITECTURES:
            raise CannotRun(f"no machine for {arch} is described in machine.py")
        self.arch_name = arch
        self.arch = ARCHITECTURES[arch]
        self.busybox = None
        self.modules = None
        self.suite = None
        self.kernel = kernel
        self.headers = headers
        self.slowness = slowness
        self.fetch_valkey = fetch_valkey
        self.cflags = CFLAGS + ([f"-DDEFAULT_TABLES={tables}"] if tables else [])
        self.boots = 0

    # ---------- what it needs ----------

    def prepare(self):
        self.install()
        self.find_kernel()
        self.directory = OUTPUT / self.release
        self.log_directory = self.directory / "log"
        shutil.rmtree(self.log_directory, ignore_errors=True)
        self.log_directory.mkdir(parents=True)
        self.production = self.build_module(test=False)
        self.module = self.build_module(test=True)
        self.build_programs()
        self.build_initramfs()

    def packages(self):
        # Headers of later kernels come with type information, for which modules are given some, too.
        more = ["pahole"] if self.kernel else []
        return self.arch.packages + more + (["debootstrap"] if self.kernel in SUITES else [])

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

    def find_kernel(self):
        """The newest stock image whose headers are there, or the image, version or suite that was asked for."""
        if self.kernel in SUITES:
            self.fetch_suite()
            return
        if self.kernel and not re.fullmatch(r"\d+\.\d+", self.kernel):
            self.kernel = Path(self.kernel)
            banner = output_of("file", "-bL", str(self.kernel)) if shutil.which("file") else ""
            release = re.search(r"version (\S+)", banner)
            self.release = release.group(1) if release else self.kernel.name.partition("-")[2]
            self.headers = self.headers or Path("/lib/modules") / self.release / "build"
            if not self.headers.exists():
                raise SystemExit(f"no headers for {self.kernel} in {self.headers}: say --headers")
            beside = self.kernel.absolute().parent.parent / "lib" / "modules" / self.release / "kernel"
            self.modules = beside if beside.exists() else None
            return
        version = self.kernel
        if self.arch.debian:
            self.unpack_kernel(self.arch.debian, version)
            return
        # What is installed otherwise is not asked for: a machine may run another version than the module is made for.
        modules = Path("/lib/modules")
        there = [image.name.partition("-")[2] for image in Path("/boot").glob("vmlinuz-*")]
        release = newest_stock([r for r in there if (modules / r / "build").exists()], version or DEFAULT_VERSION,
                               HOST.get(self.arch_name, self.arch_name))
        if release:
            self.kernel, self.headers = Path("/boot") / f"vmlinuz-{release}", modules / release / "build"
            self.release = release
            return
        if not version:
            raise CannotRun("no stock kernel in /boot has headers in /lib/modules")
        self.unpack_kernel(HOST[self.arch_name], version)

    def fetch_suite(self):
        if self.arch_name != "x86_64":
            raise CannotRun(f"no kernel of {self.kernel} for {self.arch_name}")
        self.suite = Suite(OUTPUT / f"suite-{self.kernel}", self.kernel)
        try:
            self.release = self.suite.fetch()
        except (OSError, subprocess.CalledProcessError) as why:
            raise CannotRun(f"no kernel of {self.kernel}: {why}") from why
        self.kernel, self.headers = self.suite.image(self.release), self.suite.headers(self.release)
        self.modules = self.suite.modules(self.release)

    def unpack_kernel(self, architecture, version=None):
        name = "-".join(filter(None, (self.arch.debian, version)))
        packages = UnpackedKernel(OUTPUT / f"packages-{name}", architecture, version)
        try:
            self.release = packages.fetch()
        except (OSError, subprocess.CalledProcessError) as why:
            raise CannotRun(f"no kernel for {name}: {why}") from why
        self.kernel, self.headers = packages.image(self.release), packages.headers(self.release)
        self.modules, self.busybox = packages.modules(self.release), packages.busybox

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

    def build_directory(self, name):
        """Where it can be built with the compiler that the kernel's modules need."""
        return (self.suite.chroot / "build" if self.suite else self.directory) / name

    def inside(self, path):
        """The path as make sees it."""
        return self.suite.inside(path) if self.suite else path

    def make(self, what, *arguments):
        words = ["make", *map(str, arguments)]
        if self.suite:
            done = self.suite.run(*words)
        else:
            done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise SystemExit(f"{done.stdout}\nkernel selftests: {what} does not build")

    def build_module(self, test):
        """In a copy: the source directory stays clean, and each kernel has its own objects. test: with test_aids.c."""
        build = self.build_directory("module-test" if test else "module")
        for old in build.rglob("*.[chS]"):
            if not (KERNEL / old.relative_to(build)).exists() and not old.name.endswith(".mod.c"):
                old.unlink()
        shutil.copytree(KERNEL, build, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("selftests", "*.ko", "*.o", "*.mod*", ".*.cmd"))
        cross = [f"ARCH={self.arch.debian}", f"CROSS_COMPILE={self.arch.cross}"] if self.arch.cross else []
        options = cross + (["AF_TEST=1"] if test else [])
        self.make("the module", "-C", self.inside(build), f"KDIR={self.inside(self.headers)}", *options)
        return build / "async_fork" / "async_fork.ko"

    def build_livepatch(self):
        """For tool/livepatch; kernels without live patches do not build it."""
        config = self.headers / "include" / "config" / "LIVEPATCH"
        if not config.exists():
            return None
        build = self.build_directory("livepatch")
        shutil.copytree(HERE / "livepatch", build, dirs_exist_ok=True)
        self.make("the live patch", "-C", self.inside(self.headers), f"M={self.inside(build)}", "modules")
        return build / "livepatch.ko"

    def hooks(self):
        """Names of the functions that the module hooks, and of its checks: what skip= takes."""
        architecture = "x86" if self.arch_name == "x86_64" else self.arch_name
        version = f"compat/linux_{self.version().replace('.', '_')}"
        lists = (f"async_fork/hook_list_{architecture}.h", f"{version}.h", f"{version}_{architecture}.h",
                 "async_fork/hook_list.h")
        listing = "".join((KERNEL / name).read_text() for name in lists)
        return re.findall(r"^\s*AF_HOOK\(\w+, [^,(]+, (\w+),", listing, re.MULTILINE) + self.checks()

    @staticmethod
    def checks():
        """What else can be left out of the module."""
        return re.findall(r'^\t"(check:\w+)",', (KERNEL / "async_fork" / "test_aids.c").read_text(), re.MULTILINE)

    def version(self):
        return re.match(r"\d+\.\d+", self.release).group(0)

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
        root = self.directory / "root"
        shutil.rmtree(root, ignore_errors=True)
        for part in ("bin", "lib", "dev", "proc", "sys", "tmp", "etc"):
            (root / part).mkdir(parents=True)
        shutil.copy(HERE / "init", root / "init")
        shutil.copy(self.busybox or shutil.which("busybox"), root / "bin" / "busybox")
        for program in self.programs.iterdir():
            subprocess.run([f"{self.arch.cross}strip", "-o", root / "bin" / program.name, program], check=True)
        for module, name in ((self.module, "async_fork.ko"), (self.production, "async_fork-production.ko")):
            subprocess.run([f"{self.arch.cross}strip", "--strip-debug", "-o", root / "lib" / name, module], check=True)
        if not self.arch.cross:
            for program in (shutil.which("redis-server"), self.valkey(), self.tool()):
                self.add_program(root, program)
            self.add_livepatch(root)
        self.add_modules(root)
        self.initramfs = self.directory / "initramfs.cpio"
        self.archive(root, self.initramfs)

    def add_livepatch(self, root):
        livepatch = self.build_livepatch()
        if livepatch:
            shutil.copy(livepatch, root / "lib" / livepatch.name)

    def add_modules(self, root):
        """The kernel's modules that init loads, and their names in the order of loading."""
        found = {re.sub(r"[.]ko([.].*)?$", "", path.name).replace("-", "_"): path
                 for path in (self.modules or Path("/lib/modules") / self.release / "kernel").rglob("*.ko*")}
        order = []

        def add(name):
            path = found.get(name.replace("-", "_"))
            if path is None or path in order:
                return
            for needed in output_of("/sbin/modinfo", "-F", "depends", str(path)).strip().split(","):
                add(needed)
            order.append(path)

        for name in MODULES:
            add(name)
        for path in order:
            packed = path.read_bytes()
            plain = lzma.decompress(packed) if path.suffix == ".xz" else packed
            (root / "lib" / path.name.removesuffix(".xz")).write_bytes(plain)
        (root / "lib" / "module-list").write_text("".join(path.name.removesuffix(".xz") + "\n" for path in order))

    @staticmethod
    def add_program(root, program):
        """A program of the distribution with its shared libraries, where its loader looks for them."""
        if not program:
            return
        libraries = output_of("ldd", program)
        if "not found" in libraries:
            print(f"kernel selftests: {program} lacks libraries on this machine", flush=True)
            return
        subprocess.run(["strip", "-o", root / "bin" / Path(program).name, program], check=True)
        for library in re.findall(r"(/\S+) \(", libraries):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)

    @staticmethod
    def archive(root, target):
        names = "\n".join(sorted(str(p.relative_to(root)) for p in root.rglob("*")))
        with target.open("wb") as out:
            subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], input=names.encode(), stdout=out, cwd=root,
                           check=True)

    # ---------- running ----------

    def command(self, initramfs, console):
        half = f"{MEMORY_MB // 2}M"
        # Two nodes: pages can be moved between them.
        nodes = ["-object", f"memory-backend-ram,id=m0,size={half}", "-object", f"memory-backend-ram,id=m1,size={half}",
                 "-numa", "node,nodeid=0,cpus=0,memdev=m0", "-numa", "node,nodeid=1,cpus=1,memdev=m1"]
        append = (f"console={self.arch.console} answers={self.arch.answers} panic=-1 oops=panic softlockup_panic=1 "
                  "kasan_multi_shot quiet loglevel=5")
        return command(self.arch_name, self.kernel, initramfs, append, MEMORY_MB, console, self.arch.serial,
                       cpus="2,sockets=2", more=nodes)

    def boot(self, plan):
        """Runs the plan in one boot; yields what the runner says: (index, verdict or START, seconds, reason)."""
        self.boots += 1
        overlay = self.directory / "overlay"
        shutil.rmtree(overlay, ignore_errors=True)
        overlay.mkdir()
        (overlay / "plan").write_text("\n".join(plan) + "\n")
        addition = self.directory / "plan.cpio"
        self.archive(overlay, addition)
        initramfs = self.directory / "boot.cpio"
        initramfs.write_bytes(self.initramfs.read_bytes() + addition.read_bytes())
        self.console = self.log_directory / f"console-{self.boots}.log"
        vm = subprocess.Popen(self.command(initramfs, self.console), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        try:
            yield from self.answers(vm, plan)
        finally:
            vm.kill()
            vm.wait()

    def patience(self, text):
        """Seconds after which a silent machine counts as hung; the runner's own time limits come first."""
        return int(text.split()[4]) * 3 + 60 if text.startswith("run ") else 60 * self.slowness

    def answers(self, vm, plan):
        data, limit = b"", BOOT_SECONDS * self.slowness
        while True:
            ready, _, _ = select.select([vm.stdout], [], [], limit)
            part = os.read(vm.stdout.fileno(), 65536) if ready else b""
            if not part:
                return
            *lines, data = (data + part).split(b"\n")
            for raw in lines:
                match = re.match(r"@ (\d+) (\w+) (\d+) ?(.*)", raw.decode(errors="replace").strip())
                if not match:
                    continue
                number, verdict, milliseconds, reason = match.groups()
                if verdict == "DONE":
                    yield len(plan), "DONE", 0, ""
                    return
                limit = self.patience(plan[int(number) - 1])
                yield int(number) - 1, verdict, int(milliseconds) / 1000, reason

    def last_words(self):
        """Why a boot ended before its plan."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        lines = [re.sub(r"^\[ *[\d.]+\] *", "", line) for line in text.splitlines()]
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
