"""A cache of machine code on disk, in a folder that only the user can write to.

Code that is loaded from here is executed. Ownership and permissions protect it: the folder and each of its
files must belong to the user, and nobody else may write to them. The checksum in a file detects damage only:
whoever can write a file can write a checksum too. Windows has other permissions; there the folder among the
user's own data is trusted as it is.

The cache saves time and never stops a run. Code that cannot be read is compiled; code that cannot be written
is not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import stat
import sys
import tempfile
import time
from pathlib import Path

from genalpha.errors import warn

# Largest number of files in the cache, of 20 kB in the mean. The least recently used are deleted first, each
# time that so many more have been stored.
MOST_KEPT, TIDIED = 5000, 64
_stored = itertools.count()
# Folders that are not used, and the reasons.
refused: dict[str, str] = {}
_MAGIC = b"genalpha kernel 3\n"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ASKED = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # those that this operating system has
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in _ASKED)


def _chosen() -> str | None:
    """The folder in GENALPHA_CACHE, if it is set."""
    return os.environ.get("GENALPHA_CACHE")


def folder() -> Path | None:
    """The folder of the cache: GENALPHA_CACHE, or a folder among the user's caches; None if it is "off"."""
    chosen = _chosen()
    if chosen is not None:
        return None if chosen.lower() in ("", "0", "off", "no") else Path(os.path.expanduser(chosen))
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "genalpha"


def load(key: bytes) -> bytes | None:
    """The code that is stored under this key; None if there is none, or if it is damaged or not trusted."""
    place = folder()
    if place is None:
        return None
    try:
        if not _trusted(place):
            return None
        data = _read(_file(place, key))
    except OSError:
        return None
    start = len(_MAGIC) + len(key) + 32
    code = data[start:]
    # The file contains its key, so that a renamed file is not used under a wrong key.
    return code if data[:start] == _MAGIC + key + hashlib.sha256(code).digest() else None


def store(key: bytes, code: bytes) -> None:
    """Store the code. A new file is written, then renamed, so that other processes never see half of it."""
    place = folder()
    if place is None:
        return
    with contextlib.suppress(OSError):  # a full or read-only disk: nothing is stored
        if not place.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.mkdir(mode=0o700, exist_ok=True)
        if not _trusted(place):
            return
        handle, name = tempfile.mkstemp(dir=place, suffix=".part")  # readable by the user only
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + key + hashlib.sha256(code).digest() + code)
            os.replace(name, _file(place, key))
        except OSError:
            os.unlink(name)
            raise
        if next(_stored) % TIDIED == 0:
            _tidy(place)


def drop(key: bytes) -> None:
    """Delete code that nobody needs any more."""
    place = folder()
    if place is not None:
        with contextlib.suppress(OSError):
            _file(place, key).unlink(missing_ok=True)


def _file(place: Path, key: bytes) -> Path:
    return place / f"{key.hex()}.kernel"


def _read(path: Path) -> bytes:
    """The content of a regular file; empty if it is not the user's own, or if others can write to it."""
    handle = os.open(path, _FLAGS)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or (_has_owners() and not _own(about)):
            return b""
        with open(handle, "rb", closefd=False) as file:
            data = file.read()
        with contextlib.suppress(OSError):  # on a read-only disk the time of use is not updated
            os.utime(handle if os.utime in os.supports_fd else path)
    finally:
        os.close(handle)
    return data


# --- permissions ---------------------------------------------------------------------------------------


def _has_owners() -> bool:
    return hasattr(os, "getuid")


def _own(about: os.stat_result) -> bool:
    return about.st_uid == os.getuid() and not about.st_mode & _OTHERS


def _trusted(place: Path) -> bool:
    """Whether code may be loaded from this folder and stored there. The default folder is made private."""
    if not _has_owners():
        return True
    about = os.stat(place)  # follows a link to the folder
    if not stat.S_ISDIR(about.st_mode):
        return False
    if about.st_uid == os.getuid() and _chosen() is None and about.st_mode & 0o077:
        with contextlib.suppress(OSError):
            os.chmod(place, 0o700)
            about = os.stat(place)
    if _own(about):
        return True
    _refuse(place, about)
    return False


def _refuse(place: Path, about: os.stat_result) -> None:
    """Note why a folder is not used. If it is from GENALPHA_CACHE, warn once."""
    if str(place) in refused:
        return
    if about.st_uid != os.getuid():
        reason, way = f"belongs to another user (number {about.st_uid})", "name a folder of your own"
    else:
        reason, way = "can be written to by other users", f"run `chmod go-w {place}`"
    refused[str(place)] = reason
    if _chosen() is not None:
        warn(
            f"GENALPHA_CACHE names {place}, which {reason}. So no machine code is loaded from there, and "
            f"every process compiles its own. To change this, {way}, or set GENALPHA_CACHE=off",
            RuntimeWarning,
        )


# --- housekeeping ---------------------------------------------------------------------------------------


def _tidy(place: Path) -> None:
    """Delete the oldest kernels if there are too many, and unfinished files of processes that ended."""
    kept, left = list(place.glob("*.kernel")), list(place.glob("*.part"))
    if len(kept) <= MOST_KEPT and not left:
        return
    old = [path for age, path in _ages(left) if age < time.time() - 3600]
    surplus = [path for _, path in _ages(kept)[: max(0, len(kept) - MOST_KEPT)]]
    for path in old + surplus:
        path.unlink(missing_ok=True)


def _ages(paths: list[Path]) -> list[tuple[float, Path]]:
    """Files with the times of their last use, the oldest first."""
    ages = []
    for path in paths:
        with contextlib.suppress(OSError):  # another process has deleted it
            ages.append((path.stat().st_mtime, path))
    return sorted(ages)
