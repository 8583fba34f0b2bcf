# SPDX-License-Identifier: GPL-2.0
"""Another suite of Debian's below target/kernel: its kernel, and a chroot with what that kernel's modules are built with."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from unpacked import ARCHIVE, Unpacked

SUITES = ("trixie",)  # those whose kernel the module is tested with


class Suite(Unpacked):
    """
    The kernel is unpacked, not installed. Its modules need the suite's own compiler, which needs the suite's C library:
    both are in a chroot, so the machine's stay as they are.
    """

    def __init__(self, directory, name):
        super().__init__(directory, suites=(name,))
        self.name = name
        self.chroot = directory / "chroot"

    def fetch(self):
        """The release of the suite's kernel; what is missing is fetched."""
        stamp = self.directory / "release"
        if stamp.exists():
            return stamp.read_text()
        if os.geteuid() != 0 or not shutil.which("debootstrap"):
            raise OSError(f"a chroot of {self.name} is made by root with debootstrap (apt-get install debootstrap)")
        self.directory.mkdir(parents=True, exist_ok=True)
        print(f"kernel selftests: fetching Debian's {self.name} with its compiler", flush=True)
        shutil.rmtree(self.chroot, ignore_errors=True)
        # In a mount namespace of its own, nothing stays mounted there whatever becomes of it.
        done = subprocess.run(["unshare", "--mount", "debootstrap", "--variant=minbase",
                               "--include=make,linux-headers-amd64,dkms", self.name, self.chroot, ARCHIVE],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise OSError(f"debootstrap {self.name}: {done.stdout.strip().splitlines()[-1:]}")
        release = self.headers_release()
        self.apt("apt-get", "update", "-qq")
        self.unpack(f"linux-image-{release}")
        stamp.write_text(release)
        return release

    def headers_release(self):
        names = (path.name for path in (self.chroot / "usr" / "src").glob("linux-headers-*"))
        return next(match.group(1) for name in names if (match := re.fullmatch(r"linux-headers-(.*-amd64)", name)))

    def run(self, *command):
        """A command inside the chroot; what it says is in its stdout."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        return subprocess.run(["chroot", self.chroot, *command], env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)

    def inside(self, path):
        return Path("/") / Path(path).relative_to(self.chroot)

    def headers(self, release):
        return self.chroot / "usr" / "src" / f"linux-headers-{release}"

    def image(self, release):
        return self.root / "boot" / f"vmlinuz-{release}"

    def modules(self, release):
        # Merged since trixie: /lib is a link that its packages do not have.
        places = [self.root / usr / "lib" / "modules" / release / "kernel" for usr in (".", "usr")]
        return next(place for place in places if place.exists())
