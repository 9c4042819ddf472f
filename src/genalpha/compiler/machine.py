"""Machine code from LLVM's language, by `llvmlite`, and a cache of it on disk."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Kernels that the cache holds at most; the least recently used ones go first.
MOST_KEPT = 500
_VERSION = b"genalpha kernel 1\n"
_names = itertools.count()


@functools.cache
def _target(level: int = 2) -> tuple[Any, str]:
    """The machine code generator for this CPU, and a description of all that its output depends on."""
    import llvmlite
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    triple = llvm.get_process_triple()
    target = llvm.Target.from_triple(triple)
    if triple.startswith("x86_64"):
        # All instructions of this CPU, without its model for scheduling: some of these models ask for another
        # pass after register allocation, which takes a third of the compile time and changes nothing here.
        cpu = "x86-64"
    options = {"opt": level, "reloc": "pic", "codemodel": "small"}
    machine = target.create_target_machine(cpu=cpu, features=features, **options)
    version = ".".join(map(str, llvm.llvm_version_info))
    return machine, "\n".join([triple, cpu, features, version, llvmlite.__version__])


@functools.cache
def _linker() -> Any:
    import llvmlite.binding as llvm

    _target()
    # The other linker asks for memory section by section. In a crowded address space these end up more than
    # 2 GiB apart, which a small code model cannot bridge, and the process aborts.
    return llvm.create_lljit_compiler(use_jit_link=sys.platform != "win32", suppress_errors=False)


def lanes() -> int:
    """Doubles in the widest vector register of this CPU."""
    features = _target()[1]
    if "+avx512f" in features:
        return 8
    return 4 if "+avx2" in features or "+avx," in features else 2


class Library:
    """Functions of one module, callable from Python without holding the interpreter's lock.

    What runs once or twice is better not optimized: that takes most of the time of compilation. Contraction
    would then depend on the number of lanes, and goes too.
    """

    def __init__(self, text: str, functions: Sequence[str], optimized: bool = True) -> None:
        import llvmlite.binding as llvm

        self.cached = True
        if not optimized:
            text = "; not optimized\n" + text.replace(" contract", "")  # another key in the cache
        code = _load(text)
        if code is None:
            self.cached = False
            code = _compile(text, level=2 if optimized else 0)
            _store(text, code)
        self.size = len(code)
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in functions:
            builder = builder.export_symbol(name)
        self._tracker = builder.link(_linker(), f"kernel{next(_names)}")

    def function(self, name: str, *kinds: Any, result: Any = None) -> Callable[..., Any]:
        found = ctypes.CFUNCTYPE(result, *kinds)(self._tracker[name])
        found.library = self  # type: ignore[attr-defined] # code lives as long as this does
        return found


def _compile(text: str, level: int) -> bytes:
    import llvmlite.binding as llvm

    machine = _target(level)[0]
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return machine.emit_object(module)


# --- the cache --------------------------------------------------------------------------------------


def cache_folder() -> Path | None:
    """Where kernels are kept: GENALPHA_CACHE, or a folder among the user's caches; None if it is "off"."""
    chosen = os.environ.get("GENALPHA_CACHE")
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


def _file(text: str) -> Path | None:
    folder = cache_folder()
    key = hashlib.sha256(_VERSION + _target()[1].encode() + b"\n" + text.encode()).hexdigest()
    return None if folder is None else folder / f"{key}.kernel"


def _load(text: str) -> bytes | None:
    """The code for this text, if it is kept and undamaged."""
    path = _file(text)
    if path is None:
        return None
    try:
        data = path.read_bytes()
        start = len(_VERSION) + 32
        code = data[start:]
        if data[:start] != _VERSION + hashlib.sha256(code).digest():
            return None
    except OSError:
        return None
    with contextlib.suppress(OSError):  # others' files may be read without being marked as used
        os.utime(path)
    return code


def _store(text: str, code: bytes) -> None:
    """Keep the code: written beside and renamed, so that other processes see all of it or nothing."""
    path = _file(text)
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_VERSION + hashlib.sha256(code).digest() + code)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise
        _tidy(path.parent)
    except OSError:  # a full or read-only disk: go on without
        return


def _tidy(folder: Path) -> None:
    """Remove what is too many, and what processes left behind that ended while they wrote."""
    kept, left = list(folder.glob("*.kernel")), list(folder.glob("*.part"))
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
