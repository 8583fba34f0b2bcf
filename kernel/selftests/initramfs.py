# SPDX-License-Identifier: GPL-2.0
"""The file system of a machine: files that the kernel unpacks into memory."""

import lzma
import re
import shutil
import subprocess
from pathlib import Path


class Initramfs:
    """A tree below a directory of the host, and the archives made of it."""

    def __init__(self, directory, cross=""):
        """cross: prefix of the names of the machine's binutils."""
        self.directory = directory
        self.root = directory / "root"
        self.cross = cross
        shutil.rmtree(self.root, ignore_errors=True)
        for part in ("bin", "lib", "dev", "proc", "sys", "tmp", "etc"):
            (self.root / part).mkdir(parents=True)

    def strip(self, source, target, *options):
        subprocess.run([f"{self.cross}strip", *options, "-o", self.root / target, source], check=True)

    def program(self, source):
        """Into bin, with its shared libraries where its loader looks for them. What it lacks of these, if any."""
        # Of a static program ldd says on standard error that it is none.
        libraries = subprocess.run(["ldd", source], text=True, capture_output=True).stdout
        missing = re.findall(r"(\S+) => not found", libraries)
        if missing:
            return missing
        self.strip(source, Path("bin") / Path(source).name)
        for library in re.findall(r"(/\S+) \(", libraries):
            target = self.root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
        return []

    def add_modules(self, paths):
        """Modules of the kernel's own, and a list of their names in the order of loading."""
        for path in paths:
            packed = path.read_bytes()
            plain = lzma.decompress(packed) if path.suffix == ".xz" else packed
            (self.root / "lib" / path.name.removesuffix(".xz")).write_bytes(plain)
        names = "".join(path.name.removesuffix(".xz") + "\n" for path in paths)
        (self.root / "lib" / "module-list").write_text(names)

    def pack(self):
        """The archive of what every boot has."""
        return archive(self.root, self.directory / "initramfs.cpio")

    def for_plan(self, packed, plan):
        """The archive of one boot: what has been packed, and the text of its plan."""
        overlay = self.directory / "overlay"
        shutil.rmtree(overlay, ignore_errors=True)
        overlay.mkdir()
        (overlay / "plan").write_text(plan)
        addition = archive(overlay, self.directory / "plan.cpio")
        both = self.directory / "boot.cpio"
        both.write_bytes(packed.read_bytes() + addition.read_bytes())
        return both


def archive(root, target):
    names = "\n".join(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
    with target.open("wb") as out:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], input=names.encode(), stdout=out, cwd=root, check=True)
    return target
