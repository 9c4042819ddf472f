"""Machine code that is kept on disk, in a folder that nobody but the user can write to.

What is loaded from here is executed. Ownership and permissions protect it: the folder and each of its files
must belong to the user, and nobody else may write to them. The checksum in a file is for damage only, since
whoever can write a file can write a checksum too. On Windows, which keeps permissions in another way, the
folder among the user's own data is trusted as it is.

The cache saves time and never ends a run: what cannot be read is compiled, what cannot be written is not
kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
import time
import warnings
from pathlib import Path

# Kernels that the cache holds at most; the least recently used ones go first.
MOST_KEPT = 500
# Folders that are not used, and why not.
refused: dict[str, str] = {}
_MAGIC = b"genalpha kernel 2\n"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ASKED = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # as far as this system has them
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in _ASKED)


def _chosen() -> str | None:
    """The folder that the user names, if any."""
    return os.environ.get("GENALPHA_CACHE")


def folder() -> Path | None:
    """Where kernels are kept: GENALPHA_CACHE, or a folder among the user's caches; None if it is "off"."""
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
    """The code that is kept under this key, if there is any, undamaged, and from the user alone."""
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
    # The key is part of the file: one that was renamed is not taken for another.
    return code if data[:start] == _MAGIC + key + hashlib.sha256(code).digest() else None


def store(key: bytes, code: bytes) -> None:
    """Keep the code: written beside and renamed, so that other processes see all of it or nothing."""
    place = folder()
    if place is None:
        return
    with contextlib.suppress(OSError):  # a full or read-only disk: go on without
        if not place.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.mkdir(mode=0o700, exist_ok=True)
        if not _trusted(place):
            return
        handle, name = tempfile.mkstemp(dir=place, suffix=".part")  # for the user alone
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + key + hashlib.sha256(code).digest() + code)
            os.replace(name, _file(place, key))
        except OSError:
            os.unlink(name)
            raise
        _tidy(place)


def _file(place: Path, key: bytes) -> Path:
    return place / f"{key.hex()}.kernel"


def _read(path: Path) -> bytes:
    """The content of a plain file of the user's own that nobody else can write to; empty if it is another."""
    handle = os.open(path, _FLAGS)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or (_has_owners() and not _own(about)):
            return b""
        with open(handle, "rb", closefd=False) as file:
            data = file.read()
        with contextlib.suppress(OSError):  # on a read-only disk it is not marked as used
            os.utime(handle if os.utime in os.supports_fd else path)
    finally:
        os.close(handle)
    return data


# --- whom to trust --------------------------------------------------------------------------------------


def _has_owners() -> bool:
    return hasattr(os, "getuid")


def _own(about: os.stat_result) -> bool:
    return about.st_uid == os.getuid() and not about.st_mode & _OTHERS


def _trusted(place: Path) -> bool:
    """Whether code may be loaded from this folder, and kept there. The default folder is closed to others."""
    if not _has_owners():
        return True
    about = os.stat(place)  # of the folder itself, if this is a link to one
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
    """Note why a folder is not used. The user who named it is told once."""
    if str(place) in refused:
        return
    if about.st_uid != os.getuid():
        reason, way = f"belongs to another user (number {about.st_uid})", "name a folder of your own"
    else:
        reason, way = "can be written to by other users", f"run `chmod go-w {place}`"
    refused[str(place)] = reason
    if _chosen() is not None:
        warnings.warn(
            f"GENALPHA_CACHE names {place}, which {reason}. Machine code is not loaded from there, and every "
            f"process compiles its own: {way}, or set GENALPHA_CACHE=off",
            RuntimeWarning,
            stacklevel=2,
        )


# --- housekeeping ---------------------------------------------------------------------------------------


def _tidy(place: Path) -> None:
    """Remove what is too many, and what processes left behind that ended while they wrote."""
    kept, left = list(place.glob("*.kernel")), list(place.glob("*.part"))
    if len(kept) <= MOST_KEPT and not left:
        return
    old = [path for age, path in _ages(left) if age < time.time() - 3600]
    surplus = [path for _, path in _ages(kept)[: max(0, len(kept) - MOST_KEPT)]]
    for path in old + surplus:
        path.unlink(missing_ok=True)


def _ages(paths: list[Path]) -> list[tuple[float, Path]]:
    """When files were last used, the oldest first."""
    ages = []
    for path in paths:
        with contextlib.suppress(OSError):  # another process was faster
            ages.append((path.stat().st_mtime, path))
    return sorted(ages)
