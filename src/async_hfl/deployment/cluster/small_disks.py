"""Disks of a cluster's nodes that can be filled: temporary file systems in a namespace of an ordinary user.

Filling shrinks the file system to what is in use, which takes no memory. Where the kernel allows no namespace, a
cluster has no such disks, and says why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

INSIDE = "ASYNC_HFL_INSIDE_NAMESPACE"
_SIZE = "2G"
_BLOCK = 4096


def unavailable() -> str:
    """Return why this machine allows no such disks; empty if it does."""
    if os.environ.get(INSIDE):
        return ""
    for tool in ("unshare", "mount"):
        if shutil.which(tool) is None:
            return f"there is no {tool} (util-linux)"
    tried = subprocess.run(["unshare", "-rm", "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip() if tried.returncode else ""


def enter_namespace(arguments: Sequence[str]) -> None:
    """Replace this process by one that runs the same program, with these arguments, in a namespace of its own."""
    command = ["unshare", "-rm", sys.executable, "-m", "async_hfl.cli", *arguments]
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        """Mount a disk at a folder, which is created."""
        self.folder = folder
        folder.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "none", str(folder)], check=True)

    def fill(self) -> None:
        """Leave no room for what is not there yet."""
        found = os.statvfs(self.folder)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        self._resize(str(max(used, _BLOCK)))

    def make_room(self) -> None:
        self._resize(_SIZE)

    def keep(self) -> None:
        """Copy the contents to the folder itself, and remove the disk: the namespace ends with this process."""
        copy = self.folder.with_name(f"{self.folder.name}.copy")
        shutil.copytree(self.folder, copy)
        subprocess.run(["umount", str(self.folder)], check=True)
        self.folder.rmdir()
        copy.rename(self.folder)

    def _resize(self, size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.folder)], check=True)
