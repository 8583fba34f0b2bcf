# SPDX-License-Identifier: GPL-2.0
"""Another release of Debian in a chroot below target/kernel: its kernel, and what modules for it are built with."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from unpacked import ARCHIVE

SUITES = ("trixie",)  # those whose kernel the module is tested with
# openssl: DKMS signs what it builds. The last two are for kernel/selftests/boot.
PACKAGES = "make,linux-image-amd64,linux-headers-amd64,dkms,openssl,systemd-sysv,redis-server"


class Suite:
    """
    The kernel's headers ask for their release's own compiler, which needs its C library. In a chroot none of them
    touches the machine's.
    """

    def __init__(self, directory, name):
        self.directory = directory
        self.name = name
        self.chroot = directory / "chroot"

    def fetch(self):
        """The release of its kernel; the chroot is made if there is none."""
        stamp = self.directory / "release"
        release, _, packages = stamp.read_text().partition(" ") if stamp.exists() else ("", "", "")
        if packages == PACKAGES:
            return release
        if os.geteuid() != 0 or not shutil.which("debootstrap"):
            raise OSError(f"a chroot of {self.name} is made by root with debootstrap (apt-get install debootstrap)")
        print(f"kernel selftests: fetching Debian's {self.name}, its kernel and compiler", flush=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        # In a mount namespace of its own nothing stays mounted there, whatever becomes of it.
        done = subprocess.run(["unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={PACKAGES}",
                               self.name, self.chroot, ARCHIVE],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise OSError(f"debootstrap {self.name}: {done.stdout.strip().splitlines()[-1:]}")
        names = [path.name for path in (self.chroot / "usr" / "src").glob("linux-headers-*")]
        release = next(match.group(1) for name in names if (match := re.fullmatch(r"linux-headers-(.*-amd64)", name)))
        stamp.write_text(f"{release} {PACKAGES}")
        return release

    def run(self, *command):
        """A command inside; what it says is in its stdout."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        return subprocess.run(["chroot", self.chroot, *command], env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)

    def inside(self, path):
        return Path("/") / Path(path).relative_to(self.chroot)

    def headers(self, release):
        return self.chroot / "usr" / "src" / f"linux-headers-{release}"

    def image(self, release):
        return self.chroot / "boot" / f"vmlinuz-{release}"

    def modules(self, release):
        return self.chroot / "usr" / "lib" / "modules" / release / "kernel"
