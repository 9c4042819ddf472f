"""The cache of machine code on disk: it saves time and has no other effect."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from genalpha.compiler import code_cache, machine

TEXT = "define double @twice(double %x) {\n  %y = fadd double %x, %x\n  ret double %y\n}\n"
OTHER = TEXT.replace("fadd double %x, %x", "fmul double %x, %x")


def load(text: str = TEXT) -> machine.Library:
    library = machine.Library(text, ["twice"])
    function = library.function("twice", ctypes.c_double, result=ctypes.c_double)
    assert function(3.0) == (6.0 if text == TEXT else 9.0)
    return library


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.kernel"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    chosen = tmp_path / "deep" / "cache"
    monkeypatch.setenv("GENALPHA_CACHE", str(chosen))
    return chosen


def test_second_time_is_a_hit(folder: Path) -> None:
    assert not load().cached
    assert load().cached
    assert not load(OTHER).cached
    assert len(files(folder)) == 2
    assert sorted(folder.iterdir()) == files(folder)


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "longer", "other"])
def test_damaged_file(folder: Path, damage: str) -> None:
    load()
    (path,) = files(folder)
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(
        {
            "flip": data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :],
            "truncate": data[:middle],
            "empty": b"",
            "longer": data + b"\0",
            "other": b"something else entirely",
        }[damage]
    )
    assert not load().cached  # compiled anew, and written again
    assert path.read_bytes() == data
    assert load().cached


def test_folder_in_the_place_of_a_file(folder: Path) -> None:
    load()
    (path,) = files(folder)
    path.unlink()
    path.mkdir()
    assert not load().cached
    assert not list(folder.glob("*.part"))


def test_file_in_the_place_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file")
    for place in ("cache", "cache/below"):
        monkeypatch.setenv("GENALPHA_CACHE", str(tmp_path / place))
        assert not load().cached
        assert not load().cached
    assert (tmp_path / "cache").read_text() == "a file"


def test_nothing_can_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError("read-only")

    with monkeypatch.context() as patch:
        patch.setattr(code_cache.tempfile, "mkstemp", refuse)
        assert not load().cached
    with monkeypatch.context() as patch:
        patch.setattr(code_cache.os, "replace", refuse)
        assert not load().cached
    assert not list(folder.iterdir())


def test_files_whose_times_cannot_be_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they hold is good all the same."""
    load()

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(code_cache.os, "utime", refuse)
    assert load().cached


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anywhere"
)
def test_folder_without_permission(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    try:
        assert not load().cached
        assert not load().cached
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no", ""])
def test_off(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENALPHA_CACHE", word)
    monkeypatch.chdir(tmp_path)
    assert code_cache.folder() is None
    assert not load().cached
    assert not load().cached
    assert not list(tmp_path.iterdir())


def test_folder_among_the_users_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GENALPHA_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    chosen = code_cache.folder()
    assert chosen is not None
    assert chosen.is_relative_to(tmp_path)
    assert chosen.name == "genalpha"
    monkeypatch.setenv("GENALPHA_CACHE", "~/mine")
    assert code_cache.folder() == tmp_path / "mine"


def test_other_processors_have_other_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home on a network is seen from machines with other instructions."""
    load()
    description = machine.description()
    monkeypatch.setattr(machine, "description", lambda: description + "\n+none")
    assert not load().cached
    assert len(files(folder)) == 2


def test_least_recently_used_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_cache, "MOST_KEPT", 3)
    monkeypatch.setattr(code_cache, "TIDIED", 1)
    texts = [f"; number {k}\n{TEXT}" for k in range(4)]
    for age, text in zip((400, 300, 200), texts[:3], strict=True):
        machine.Library(text, ["twice"])
        (newest,) = set(files(folder)) - {p for p in files(folder) if p.stat().st_mtime < time.time() - 100}
        os.utime(newest, (time.time() - age,) * 2)
    assert machine.Library(texts[0], ["twice"]).cached  # used, and so no longer the oldest
    machine.Library(texts[3], ["twice"])
    assert [machine.Library(text, ["twice"]).cached for text in (texts[0], texts[2], texts[3])] == [True] * 3
    assert len(files(folder)) == 3


def test_leftovers_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_cache, "TIDIED", 1)
    folder.mkdir(parents=True, mode=0o700)
    old, new = folder / "old.part", folder / "new.part"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    load()
    assert not old.exists()
    assert new.exists()  # perhaps another process is writing it now


# --- trusted folders and files ----------------------------------------------------------------------------

owners = pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners here")


@pytest.fixture
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is used if none is named."""
    monkeypatch.delenv("GENALPHA_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "genalpha"


def somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    me = os.getuid()
    monkeypatch.setattr(code_cache.os, "getuid", lambda: me + 1)


@owners
def test_a_new_folder_is_the_users_alone(folder: Path) -> None:
    load()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert files(folder)[0].stat().st_mode & 0o777 == 0o600


@owners
@pytest.mark.parametrize("mode", [0o755, 0o775, 0o777])
def test_the_default_folder_is_closed_to_others(default: Path, mode: int) -> None:
    default.mkdir()
    default.chmod(mode)
    load()
    assert default.stat().st_mode & 0o777 == 0o700
    assert load().cached


@owners
def test_a_default_folder_that_stays_open_is_not_used(default: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word: the user has not asked for it."""
    load()
    default.chmod(0o777)
    monkeypatch.setattr(code_cache.os, "chmod", lambda *args: None)
    assert not load().cached
    assert "other users" in code_cache.refused[str(default)]


@owners
def test_the_default_folder_of_somebody_else_is_not_used(
    default: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load()
    somebody_else(monkeypatch)
    assert not load().cached
    assert "belongs to another user" in code_cache.refused[str(default)]


@owners
@pytest.mark.parametrize("by_link", [False, True])
def test_a_named_folder_of_somebody_else_is_refused_once(
    by_link: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load()
    if by_link:
        (folder.parent / "link").symlink_to(folder)
        monkeypatch.setenv("GENALPHA_CACHE", str(folder.parent / "link"))
        assert load().cached  # a link to a folder of one's own
    somebody_else(monkeypatch)
    with pytest.warns(RuntimeWarning, match="belongs to another user .* name a folder of your own"):
        assert not load().cached
    assert not load(OTHER).cached  # warnings are errors here
    assert len(files(folder)) == 1


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only the superuser gives files away")
def test_files_and_folders_that_another_user_really_owns(folder: Path) -> None:
    load()
    os.chown(files(folder)[0], 65534, 65534)
    assert not load().cached
    os.chown(folder, 65534, 65534)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        assert not load().cached


@owners
def test_a_named_folder_that_others_can_write_to_is_refused(folder: Path) -> None:
    """It is not changed: others may be meant to write there."""
    load()
    folder.chmod(0o1777)
    with pytest.warns(RuntimeWarning, match="can be written to by other users.*chmod go-w"):
        assert not load().cached
    assert folder.stat().st_mode & 0o777 == 0o777
    folder.chmod(0o755)
    assert load().cached


@owners
@pytest.mark.parametrize("kind", ["writable", "link", "pipe", "of another", "renamed"])
def test_files_that_are_not_trusted(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load()
    (path,) = files(folder)
    data = path.read_bytes()
    if kind == "writable":
        path.chmod(0o620)
    elif kind == "link":
        path.rename(folder / "elsewhere")
        path.symlink_to(folder / "elsewhere")
    elif kind == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif kind == "of another":
        true, there = os.fstat, path.stat().st_ino
        other = lambda s: os.stat_result([s.st_uid + 1 if i == 4 else x for i, x in enumerate(s)])
        swap = lambda handle: other(true(handle)) if true(handle).st_ino == there else true(handle)
        monkeypatch.setattr(code_cache.os, "fstat", swap)
    else:
        load(OTHER)
        (second,) = set(files(folder)) - {path}
        second.replace(path)
    assert not load().cached  # compiled, and written anew
    assert path.read_bytes() == data
    assert path.is_file()
    assert not path.is_symlink()
    assert load().cached


def test_systems_without_owners(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(code_cache.os, "getuid", raising=False)
    load()
    assert load().cached


@pytest.mark.parametrize("where", ["write", "close", "replace"])
def test_a_full_disk(where: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Full(io.FileIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            if where == "write":
                full()
            return super().write(data)

        def __exit__(self, *args: object) -> None:
            super().__exit__(*args)  # type: ignore[arg-type]
            full()

    if where == "replace":
        monkeypatch.setattr(code_cache.os, "replace", full)
    else:
        monkeypatch.setattr(code_cache.os, "fdopen", Full)
    assert not load().cached
    assert not load().cached
    assert not list(folder.iterdir())


_PROCESS = """
import ctypes, sys
from genalpha.compiler import code_cache, machine
texts = sys.stdin.read().split("---")
code_cache.MOST_KEPT, code_cache.TIDIED = 2, 1
for _ in range(10):
    for text in texts:
        library = machine.Library(text, ["twice"])
        assert library.function("twice", ctypes.c_double, result=ctypes.c_double)(3.0) in (6.0, 9.0)
        for path in code_cache.folder().glob("*.kernel"):
            path.unlink(missing_ok=True)
            break
"""


@pytest.mark.slow
def test_several_processes_at_once(folder: Path) -> None:
    """Four processes write, read, prune and delete the same files."""
    texts = "---".join([TEXT, OTHER, "; another\n" + TEXT])
    options = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": os.environ.copy()}
    processes = [subprocess.Popen([sys.executable, "-c", _PROCESS], **options) for _ in range(4)]  # type: ignore[call-overload]
    for process in processes:
        process.stdin.write(texts)
        process.stdin.close()
    for process in processes:
        errors = process.stderr.read()
        process.stderr.close()
        assert process.wait() == 0, errors
    assert not list(folder.glob("*.part"))
    load()


_CROWDED = """
import ctypes, mmap
from genalpha.compiler import code_cache, machine
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
reserve = lambda size: libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
machine._linker()
small = [reserve(1 << 16) for _ in range(2000)]  # so that what follows lies in one piece
hole = reserve(1 << 15)
reserve(8 << 30)
libc.munmap(hole, 1 << 15)
lines = [f"  %x{k + 1} = fadd double %x{k}, {k % 500}.125" for k in range(8000)]
text = "\\n".join(["define double @sums(double %x0) {", *lines, "  ret double %x8000", "}"])
function = machine.Library(text, ["sums"]).function("sums", ctypes.c_double, result=ctypes.c_double)
assert function(0.0) == sum(k % 500 + 0.125 for k in range(8000))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="arranges memory as Linux does")
def test_crowded_address_space(folder: Path) -> None:
    """Constants fit into a gap, the code does not: they may lie far apart, and still must be found."""
    done = subprocess.run([sys.executable, "-c", _CROWDED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_functions_keep_their_code(folder: Path) -> None:
    function = machine.Library(TEXT, ["twice"]).function("twice", ctypes.c_double, result=ctypes.c_double)
    assert function(2.0) == 4.0
