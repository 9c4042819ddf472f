"""One driver at a time on a store. The lock of a process that was killed is free again."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_held: set[str] = set()  # paths locked by this process: its own locks do not exclude each other
_guard = threading.Lock()


class StoreInUse(RuntimeError):
    """Another driver works on the store."""


@contextlib.contextmanager
def locked(store: Path) -> Iterator[None]:
    """Hold the lock of a store: a file beside it, which is unlocked when this process ends in any way."""
    path = store.with_name(store.name + ".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    key = str(path.resolve())
    with _guard:
        if key in _held:
            raise StoreInUse(f"this process runs a sweep on {store} already: wait for its end")
        _held.add(key)
    try:
        with _opened(store, path) as file:
            file.seek(0)
            file.truncate()
            json.dump({"host": socket.gethostname(), "pid": os.getpid()}, file)
            file.flush()
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    path.unlink()
    finally:
        with _guard:
            _held.discard(key)


def _opened(store: Path, path: Path) -> IO[str]:
    """The file of a lock that has been taken; a new one if its last owner has just removed it."""
    while True:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - the caller closes it
        if not _taken(file):
            file.seek(0)
            owner = _owner(file.read())
            file.close()
            raise StoreInUse(
                f"another driver works on {store} ({owner}): wait for its end, or stop it. What it has done "
                "stays"
            )
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        file.close()


def _taken(file: IO[str]) -> bool:
    """Whether the lock could be taken."""
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(2**20)  # the text stays readable
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            # Not flock: a process made by fork would hold that lock too, after this one is gone.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _owner(text: str) -> str:
    try:
        found = json.loads(text)
        return f"process {found['pid']} on {found['host']}"
    except (ValueError, LookupError, TypeError):
        return "an unknown process"
