"""Machine code from LLVM's language, by `llvmlite`. Compiled code is kept on disk."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from genalpha.compiler import code_cache, objects, tiers
from genalpha.numerics.host import HostCall, raise_pending

_names = itertools.count()
_SIZE = struct.Struct("<q")
# Types of arguments of compiled functions.
POINTER, COUNT = ctypes.c_void_p, ctypes.c_int64
# The most threads that work may use; None for all cores.
THREADS: ContextVar[int | None] = ContextVar("threads", default=None)


@functools.cache
def description() -> str:
    """All that machine code depends on beside its text."""
    import llvmlite
    import llvmlite.binding as llvm

    cpu, features, triple = objects.host()
    version = ".".join(map(str, llvm.llvm_version_info))
    return "\n".join([triple, cpu, features, version, llvmlite.__version__])


@functools.cache
def _linker() -> Any:
    import llvmlite.binding as llvm

    objects.host()
    # The other linker allocates memory section by section. In a full address space the sections may be more
    # than 2 GiB apart. The small code model does not allow this, and the process aborts.
    return llvm.create_lljit_compiler(use_jit_link=sys.platform != "win32", suppress_errors=False)


def lanes() -> int:
    """Number of doubles in the widest vector register of this CPU."""
    features = objects.host()[1]
    if "+avx512f" in features:
        return 8
    return 4 if "+avx2" in features or "+avx," in features else 2


def lanes_for(copies: int) -> int:
    """In how many lanes to compute so many copies of a thing, group by group.

    The time of a group was measured to grow like 3 plus the number of lanes.

    >>> [lanes_for(copies) for copies in (1, 2)]
    [1, 2]
    """
    widths = [lanes() >> k for k in range(lanes().bit_length())]
    return min(widths, key=lambda width: -(-copies // width) * (width + 3))


def host_symbol(node: int) -> str:
    """What machine code calls the Python function of a node."""
    return f"host{node}"


def cores() -> int:
    """Number of cores that this process may use; fewer where ``THREADS`` is set."""
    found = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        found = len(os.sched_getaffinity(0))
    return min(found, THREADS.get() or found)


class Library:
    """Functions of a module, callable from Python without holding the interpreter's lock.

    Several modules may call each other's functions. Each is compiled by another thread as soon as its text is
    there, and kept on disk alone. Those that say themselves which products are fused have the same results
    whether they are optimized or not. They are compiled without optimization first, and are optimized in the
    background (see `tiers`).

    ``hosts`` are Python functions that the code calls, by node. Their addresses are not part of the code, so
    code from the cache calls those of this process. A call takes the interpreter's lock. Their exceptions are
    raised after a function, except after the function "steps", whose steps before the exception are kept.

    Code that runs only once or twice is better not optimized, since optimization takes most of the compile
    time. Without it, contraction would depend on the number of lanes, so it is switched off too. In long
    functions, more than half of the time of optimization is for the order of instructions, which makes them
    less than a tenth faster: ``scheduled`` is false for these.

    A short module is compiled at once if one is to ``wait`` for it, long ones always by other threads.
    """

    def __init__(
        self,
        text: str | Iterable[str],
        functions: Sequence[str],
        optimized: bool = True,
        scheduled: bool = True,
        hosts: Mapping[int, HostCall] | None = None,
        wait: bool = True,
    ) -> None:
        self._names, self._code, self.cached = functions, list[tiers.ModuleCode](), True
        self.hosts = {host_symbol(node): call.pointer for node, call in (hosts or {}).items()}
        self._options = optimized, scheduled
        self._better: tiers.Improvement | None = None
        self._linked, self._linking = list[Any](), threading.Lock()
        if isinstance(text, str) and wait and objects.pieces(text) == 1:
            self._add(text, lambda job: job.done())
            self._link()
            return
        texts = [text] if isinstance(text, str) else text
        several = texts is text  # they are being written by this thread
        with tiers.workers(max(1, cores() - several)) as pool:
            for one in texts:
                self._add(one, lambda job: pool.submit(job.done), quick=several)

    def _add(self, text: str, make: Callable[[objects.CompileJob], Any], quick: bool = False) -> None:
        """Take the code of a module from the cache, or let it be made."""
        optimized, scheduled = self._options
        if not optimized:
            text = "; not optimized\n" + text.replace(" contract", "")  # another key in the cache
        elif not scheduled:
            text = "; not scheduled\n" + text
        key = _key(text)
        kept = code_cache.load(key)
        self.cached &= kept is not None
        if kept is not None:
            self._code.append(tiers.ModuleCode(None, [], list(_parts(kept))))
            return
        jobs = objects.jobs(text, 2 if optimized else 0, scheduled)
        first = [job.quick for job in jobs] if quick and " contract" not in text else jobs
        if first == jobs:
            self._code.append(tiers.ModuleCode(key, jobs, list(map(make, jobs))))
            return
        other = _key("; quick\n" + text)  # from a process that ended before its code was optimized
        kept = code_cache.load(other)
        parts = list(map(make, first)) if kept is None else list(_parts(kept))
        self._code.append(tiers.ModuleCode(key, jobs, parts, other, kept is not None))

    def function(self, name: str, *kinds: Any, result: Any = None) -> Callable[..., Any]:
        """A function of the library. If other threads are still compiling it, this waits for them."""
        prototype = ctypes.CFUNCTYPE(result, *kinds)
        tracker = self._link()
        if self._better is not None:
            return _Renewed(self, name, prototype)
        found = prototype(tracker[name])
        found.library = self  # type: ignore[attr-defined] # keeps the code alive
        if not self.hosts or name == "steps":
            return found

        def called(*arguments: Any) -> Any:
            result = found(*arguments)
            raise_pending()
            return result

        return called

    def _link(self) -> Any:
        """The addresses of the functions. At the first call the code is kept on disk and linked."""
        with self._linking:
            if self._code:
                parts = [part for module in self._code for part in module.finished(_keep)]
                if any(module.quick for module in self._code):
                    self._better = tiers.Improvement(self._code, _keep)
                self._code = []
                self._load(parts)
            elif self._better is not None and self._better.parts:
                self._load(self._better.parts)
                self._better.parts = []
        return self._linked[-1]  # others stay: another thread may be running them

    def _load(self, parts: list[bytes]) -> None:
        import llvmlite.binding as llvm

        builder = llvm.JITLibraryBuilder().add_current_process()
        for part in parts:
            builder = builder.add_object_img(part)
        for name, pointer in self.hosts.items():
            builder = builder.import_symbol(name, ctypes.cast(pointer, ctypes.c_void_p).value)
        for name in self._names:
            builder = builder.export_symbol(name)
        self._linked.append(builder.link(_linker(), f"kernel{next(_names)}"))
        self.size = sum(map(len, parts))


class _Renewed:
    """A function of a library whose code is being optimized. Each call has the best code that there is."""

    def __init__(self, library: Library, name: str, prototype: Any) -> None:
        self._library, self._name, self._prototype = library, name, prototype
        self._tracker: Any = None

    def __call__(self, *arguments: Any) -> Any:
        tracker = self._library._link()
        if tracker is not self._tracker:
            self._found, self._tracker = self._prototype(tracker[self._name]), tracker
        return self._found(*arguments)


def _keep(key: bytes, parts: list[bytes]) -> None:
    """Keep the object codes of a module on disk."""
    code_cache.store(key, b"".join(_SIZE.pack(len(part)) + part for part in parts))


def _parts(code: bytes) -> Iterator[bytes]:
    """The object codes in a file of the cache, each after its size."""
    at = 0
    while at < len(code):
        start = at + _SIZE.size
        at = start + _SIZE.unpack_from(code, at)[0]
        yield code[start:at]


def _key(text: str) -> bytes:
    """The cache key of the code for this text. It depends on the text and on the machine."""
    return hashlib.sha256(description().encode() + b"\n" + text.encode()).digest()
