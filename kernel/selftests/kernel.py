# SPDX-License-Identifier: GPL-2.0
"""A kernel to boot, its headers, and modules built for it."""

import collections
import os
import re
import shutil
import subprocess
from pathlib import Path

from emulator import EMULATORS, STDIO
from suite import SUITES, Suite
from unpacked import HOST, UnpackedKernel, newest_stock

HERE = Path(__file__).resolve().parent
KERNEL = HERE.parent
OUTPUT = Path(os.environ.get("CARGO_TARGET_DIR", KERNEL.parent / "target")) / "kernel"
DEFAULT_VERSION = "6.1"
MODULES = ("async_fork", "exmap")  # what is built here

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


class Broken(Exception):
    """What was asked for is not there or does not build."""


def output_of(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


class Kernel:
    def __init__(self, arch_name, asked=None, headers=None, directory=None, needs_headers=True):
        """
        asked: an image, a version or a suite; none: the newest stock image. directory: where modules are built, if not
        in one of the release's. needs_headers: not if there is a module already.
        """
        if arch_name not in ARCHITECTURES:
            raise CannotRun(f"no machine for {arch_name} is described in kernel.py")
        self.arch_name = arch_name
        self.arch = ARCHITECTURES[arch_name]
        self.asked = asked
        self.headers = headers
        self.directory = directory
        self.needs_headers = needs_headers
        self.modules = None
        self.busybox = None
        self.suite = None

    # ---------- finding ----------

    def find(self):
        """The newest stock image whose headers are there, or the image, version or suite that was asked for."""
        if self.asked in SUITES:
            self.fetch_suite()
        elif self.asked and not re.fullmatch(r"\d+\.\d+", self.asked):
            self.take_image(Path(self.asked))
        elif self.arch.debian:
            self.unpack(self.arch.debian, self.asked)
        elif not self.find_installed(self.asked or DEFAULT_VERSION):
            if not self.asked:
                raise CannotRun("no stock kernel in /boot has headers in /lib/modules")
            self.unpack(HOST[self.arch_name], self.asked)
        self.directory = self.directory or OUTPUT / self.release

    def take_image(self, image):
        if not image.exists():
            raise Broken(f"no kernel image {image}")
        banner = output_of("file", "-bL", str(image)) if shutil.which("file") else ""
        release = re.search(r"version (\S+)", banner)
        self.image = image
        self.release = release.group(1) if release else image.name.partition("-")[2]
        self.headers = self.headers or Path("/lib/modules") / self.release / "build"
        if self.needs_headers and not self.headers.exists():
            raise Broken(f"no headers for {image} in {self.headers}: say --headers")
        beside = image.absolute().parent.parent / "lib" / "modules" / self.release / "kernel"
        self.modules = beside if beside.exists() else None

    def find_installed(self, version):
        """What is installed of other versions is not asked for: a machine may run one that the module is not made for."""
        modules = Path("/lib/modules")
        there = [image.name.partition("-")[2] for image in Path("/boot").glob("vmlinuz-*")]
        usable = [r for r in there if (modules / r / "build").exists() or not self.needs_headers]
        release = newest_stock(usable, version, HOST.get(self.arch_name, self.arch_name))
        if release:
            self.image, self.headers = Path("/boot") / f"vmlinuz-{release}", modules / release / "build"
            self.release = release
        return release

    def fetch_suite(self):
        if self.arch_name != "x86_64":
            raise CannotRun(f"no kernel of {self.asked} for {self.arch_name}")
        self.suite = Suite(OUTPUT / f"suite-{self.asked}", self.asked)
        try:
            self.release = self.suite.fetch()
        except (OSError, subprocess.CalledProcessError) as why:
            raise CannotRun(f"no kernel of {self.asked}: {why}") from why
        self.take(self.suite)

    def unpack(self, architecture, version=None):
        name = "-".join(filter(None, (self.arch.debian, version)))
        packages = UnpackedKernel(OUTPUT / f"packages-{name}", architecture, version)
        try:
            self.release = packages.fetch()
        except (OSError, subprocess.CalledProcessError) as why:
            raise CannotRun(f"no kernel for {name}: {why}") from why
        self.take(packages)
        self.busybox = packages.busybox

    def take(self, source):
        self.image, self.headers = source.image(self.release), source.headers(self.release)
        self.modules = source.modules(self.release)

    def with_needed(self, names):
        """Files of the kernel's own modules with what they depend on, in the order of loading. What is built in has none."""
        modules = self.modules or Path("/lib/modules") / self.release / "kernel"
        found = {re.sub(r"[.]ko([.].*)?$", "", path.name).replace("-", "_"): path for path in modules.rglob("*.ko*")}
        order = []

        def add(name):
            path = found.get(name.replace("-", "_"))
            if path is None or path in order:
                return
            for needed in output_of("/sbin/modinfo", "-F", "depends", str(path)).strip().split(","):
                add(needed)
            order.append(path)

        for name in names:
            add(name)
        return order

    def version(self):
        return re.match(r"\d+\.\d+", self.release).group(0)

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
            raise Broken(f"{done.stdout}\n{what} does not build")

    def build_modules(self, test):
        """In a copy: the source directory stays clean, and each kernel has its own objects. test: with test aids."""
        build = self.build_directory("module-test" if test else "module")
        for old in build.rglob("*.[chS]"):
            if not (KERNEL / old.relative_to(build)).exists() and not old.name.endswith(".mod.c"):
                old.unlink()
        shutil.copytree(KERNEL, build, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("selftests", "*.ko", "*.o", "*.mod*", ".*.cmd"))
        cross = [f"ARCH={self.arch.debian}", f"CROSS_COMPILE={self.arch.cross}"] if self.arch.cross else []
        options = cross + (["AF_TEST=1"] if test else [])
        self.make("a module", "-C", self.inside(build), f"KDIR={self.inside(self.headers)}", *options)
        return {name: build / name / f"{name}.ko" for name in MODULES}

    def build_livepatch(self):
        """For tool/livepatch; kernels without live patches do not build it."""
        return self.build_test_module("livepatch", "LIVEPATCH")

    def build_notifier(self):
        """For exmap_areas/notified."""
        return self.build_test_module("notifier", "MMU_NOTIFIER")

    def build_test_module(self, name, needed):
        """needed: an option of the kernel, without which there is none."""
        config = self.headers / "include" / "config" / needed
        if not config.exists():
            return None
        build = self.build_directory(name)
        shutil.copytree(HERE / name, build, dirs_exist_ok=True)
        cross = [f"ARCH={self.arch.debian}", f"CROSS_COMPILE={self.arch.cross}"] if self.arch.cross else []
        self.make(f"the module {name}", "-C", self.inside(self.headers), f"M={self.inside(build)}", *cross, "modules")
        return build / f"{name}.ko"
