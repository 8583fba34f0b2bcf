# SPDX-License-Identifier: GPL-2.0
"""Debian packages that are unpacked, not installed: a kernel of another architecture or version, and Valkey."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

HOST = {"x86_64": "amd64", "aarch64": "arm64"}
ARCHIVE = "http://deb.debian.org/debian"
SECURITY = "http://deb.debian.org/debian-security"


def newest_stock(releases, version, architecture):
    """Debian's stock kernel of that version: no real-time or cloud flavour. None: it is not among them."""
    stock = re.compile(rf"{re.escape(version)}[.][^-]*(-\d+)?-{architecture}")
    return max(filter(stock.fullmatch, releases), default=None,
               key=lambda release: [int(number) for number in re.findall(r"\d+", release)])


class Unpacked:
    """
    Packages in a directory. apt keeps its lists there as well, so the machine's own configuration stays as it is, and
    nobody needs to be root.
    """

    def __init__(self, directory, architecture=None, suites=()):
        """suites: where packages are looked for, instead of the machine's own sources."""
        self.directory = directory
        self.host = HOST.get(platform.machine(), platform.machine())
        self.architecture = architecture or self.host
        self.suites = suites
        self.root = directory / "root"

    def apt(self, *command):
        state, cache = self.directory / "state", self.directory / "cache"
        for part in (state / "lists" / "partial", cache / "archives" / "partial"):
            part.mkdir(parents=True, exist_ok=True)
        options = [f"Dir::State={state}", f"Dir::Cache={cache}", "Dir::State::status=/dev/null",
                   f"APT::Architecture={self.host}", f"APT::Architectures={self.host},{self.architecture}",
                   f"APT::Sandbox::User={os.environ.get('USER', 'root')}"]
        if self.suites:
            sources = self.directory / "sources.list"
            archives = ((SECURITY if suite.endswith("-security") else ARCHIVE, suite) for suite in self.suites)
            sources.write_text("".join(f"deb {archive} {suite} main\n" for archive, suite in archives))
            options += [f"Dir::Etc::SourceList={sources}", "Dir::Etc::SourceParts=/dev/null"]
        arguments = [part for option in options for part in ("-o", option)]
        done = subprocess.run([command[0], *arguments, *command[1:]], cwd=self.directory, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout

    def unpack(self, *packages):
        self.apt("apt-get", "download", "-qq", *packages)
        shutil.rmtree(self.root, ignore_errors=True)
        for package in self.directory.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, self.root], check=True)
            package.unlink()


class UnpackedValkey(Unpacked):
    """valkey-server; its libraries are those of redis-server, which is installed. Debian 12 has it in backports."""

    def __init__(self, directory):
        release = Path("/etc/os-release")
        codename = re.search(r"^VERSION_CODENAME=(\w+)", release.read_text() if release.exists() else "", re.MULTILINE)
        suites = [codename.group(1), f"{codename.group(1)}-backports"] if codename else []
        super().__init__(directory, suites=suites)

    @property
    def server(self):
        return self.root / "usr" / "bin" / "valkey-server"

    def fetch(self):
        if self.server.exists() or not self.suites:
            return
        print("kernel selftests: fetching Valkey", flush=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.apt("apt-get", "update", "-qq")
        self.unpack("valkey-server", "valkey-tools")


class UnpackedKernel(Unpacked):
    """
    With a version ("6.12") the kernel is the newest of it in Debian 12 with security and backports, otherwise the one that
    linux-headers-ARCHITECTURE means. Busybox comes with the kernel of another architecture.
    """

    def __init__(self, directory, architecture, version=None):
        super().__init__(directory, architecture, ("bookworm", "bookworm-security", "bookworm-backports") if version else ())
        self.version = version
        self.foreign = self.architecture != self.host

    def fetch(self):
        """The release of the unpacked kernel, which is fetched if there is none."""
        stamp = self.directory / "release"
        if stamp.exists():
            return stamp.read_text()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.apt("apt-get", "update", "-qq")
        release = self.newest()
        depends = self.apt("apt-cache", "depends", f"linux-headers-{release}:{self.architecture}")
        # A package for all architectures may be shown in brackets, as one of this architecture that there is not.
        common = re.search(r"Depends: <?(linux-headers-[^:\s]+-common)", depends).group(1)
        kbuild = re.search(r"Depends: <?(linux-kbuild-[^:\s]+)", depends).group(1)
        print(f"kernel selftests: fetching Linux {release}", flush=True)
        self.unpack(*(f"{package}:{self.architecture}" for package in (
            f"linux-image-{release}", f"linux-headers-{release}", *(["busybox-static"] if self.foreign else []))),
            common, f"{kbuild}:{self.host}")
        makefile = self.headers(release) / "Makefile"
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{self.root}/usr/src/"))
        stamp.write_text(release)
        return release

    def newest(self):
        """The release to fetch."""
        if not self.version:
            depends = self.apt("apt-cache", "depends", f"linux-headers-{self.architecture}:{self.architecture}")
            return re.search(r"Depends: linux-headers-([^:\s]+)", depends).group(1)
        names = self.apt("apt-cache", "pkgnames", f"linux-image-{self.version}.").split()
        release = newest_stock([name.removeprefix("linux-image-") for name in names], self.version, self.architecture)
        if not release:
            raise OSError(f"no Linux {self.version} in {self.suites[0]}")
        return release

    def headers(self, release):
        return self.root / "usr" / "src" / f"linux-headers-{release}"

    def image(self, release):
        return self.root / "boot" / f"vmlinuz-{release}"

    def modules(self, release):
        return self.root / "lib" / "modules" / release / "kernel"

    @property
    def busybox(self):
        return Path(self.root) / "bin" / "busybox" if self.foreign else None
