"""Object code from LLVM's language. Long modules are cut into parts, which are compiled at the same time."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

# A part has at least so many lines, and a module at most so many parts.
LEAST_LINES, MOST_PARTS = 4000, 16
# In functions that run once a step or less. Optimization would take longer than it saves.
RARELY = "; runs rarely"
_EMIT = "LLVMPY_TargetMachineEmitToMemory"
_SIGNATURE = re.compile(r"define (?:internal )?([^{]*)\{")


def target_machine(level: int = 2) -> Any:
    """A new generator of machine code for this CPU. Only one thread at a time may use it."""
    import llvmlite.binding as llvm

    cpu, features, triple = host()
    target = llvm.Target.from_triple(triple)
    options = {"opt": level, "reloc": "pic", "codemodel": "small"}
    return target.create_target_machine(cpu=cpu, features=features, **options)


@functools.cache
def host() -> tuple[str, str, str]:
    """The name of this CPU for LLVM, its features, and its triple."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    triple = llvm.get_process_triple()
    if triple.startswith("x86_64"):
        # All instructions of this CPU, but not its scheduling model: some models require another pass after
        # register allocation. It takes a third of the compile time and changes nothing here.
        cpu = "x86-64"
    return cpu, features, triple


class CompileJob(NamedTuple):
    """A part of a module, and how far it is to be optimized."""

    text: str
    level: int
    scheduled: bool

    def done(self) -> bytes:
        return compiled(self.text, self.level, self.scheduled)

    @property
    def quick(self) -> CompileJob:
        """The same without optimization."""
        return self._replace(level=0)


def jobs(text: str, level: int, scheduled: bool) -> list[CompileJob]:
    """The parts of a module. Functions that run rarely are not optimized."""
    often, rarely = apart(text)
    found = [CompileJob(part, level, scheduled) for part in split(often, pieces(often))]
    return found + [CompileJob(part, 0, scheduled) for part in split(rarely, pieces(rarely)) if rarely]


def pieces(text: str) -> int:
    """In how many parts a module is compiled."""
    return max(1, min(MOST_PARTS, text.count("\n") // LEAST_LINES))


def apart(text: str) -> tuple[str, str]:
    """A module as two, the second with all functions that run rarely; empty if there are none."""
    if RARELY not in text:
        return text, ""
    head, functions = _functions(text)
    often, rare = (
        [k for k, function in enumerate(functions) if (RARELY in function) is which]
        for which in (False, True)
    )
    return _module(head, functions, often), _module(head, functions, rare)


def split(text: str, count: int) -> list[str]:
    """A module as several modules with about the same number of lines, which call each other's functions."""
    if count < 2:
        return [text]
    head, functions = _functions(text)
    groups: list[list[int]] = [[] for _ in range(count)]
    sizes = [0] * count
    for k in sorted(range(len(functions)), key=lambda k: -len(functions[k])):
        least = sizes.index(min(sizes))
        groups[least].append(k)
        sizes[least] += len(functions[k])
    return [_module(head, functions, sorted(group)) for group in groups if group]


def _module(head: list[str], functions: list[str], chosen: list[int]) -> str:
    """A module with some functions, which may call all others."""
    found = [_SIGNATURE.match(function) for function in functions]
    mine = set(chosen)
    declared = [f"declare {match[1]}" for k, match in enumerate(found) if match and k not in mine]
    bodies = [functions[k].replace("define internal", "define", 1) for k in chosen]
    return "\n".join([*head, *declared, *bodies, ""])


def _functions(text: str) -> tuple[list[str], list[str]]:
    """The lines of a module outside of functions, and the texts of its functions."""
    first, *others = f"\n{text}\n".split("\ndefine ")
    head, functions = first.splitlines(), []
    for other in others:
        body, _, after = f"{other}\n".partition("\n}\n")
        functions.append(f"define {body}\n}}")
        head += after.splitlines()
    return head, functions


def compiled(text: str, level: int, scheduled: bool) -> bytes:
    """The object code of a module. Other threads may do the same."""
    import llvmlite.binding as llvm
    from llvmlite.binding import ffi

    machine = target_machine(level)
    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    emit = _emit_without_lock()
    if emit is None:
        with _scheduling(scheduled):
            return machine.emit_object(module)
    with _scheduling(scheduled), ffi.OutputString() as error:
        buffer = emit(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


@functools.cache
def _emit_without_lock() -> Any:
    """LLVM's function that makes object code; None if this version of `llvmlite` hides it.

    `llvmlite` lets one thread at a time into LLVM. LLVM itself needs no lock if each thread has a context and
    a target machine of its own.
    """
    from llvmlite.binding import ffi

    try:
        locked = getattr(ffi.lib, _EMIT)
        emit = getattr(ctypes.CDLL(ffi.lib._name), _EMIT)
        emit.argtypes, emit.restype = locked.argtypes, locked.restype
    except (AttributeError, OSError):
        return None
    return emit


class _Scheduling:
    """An option of the whole process: whether instructions may change their order."""

    def __init__(self) -> None:
        self.lock, self.refusals = threading.Lock(), 0

    @contextlib.contextmanager
    def __call__(self, wanted: bool) -> Iterator[None]:
        """Leave the option as it is, or switch it off as long as some thread does not want it."""
        if wanted:
            yield
            return
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        import llvmlite.binding as llvm

        with self.lock:
            before, self.refusals = self.refusals, self.refusals + change
            if not before or not self.refusals:
                llvm.set_option("genalpha", f"-enable-misched={'false' if self.refusals else 'true'}")


_scheduling = _Scheduling()
