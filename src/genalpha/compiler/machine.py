"""Machine code from LLVM's language, by `llvmlite`. Compiled code is kept on disk."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genalpha.compiler import code_cache
from genalpha.numerics.host import HostCall, raise_pending

_names = itertools.count()
# Types of arguments of compiled functions.
POINTER, COUNT = ctypes.c_void_p, ctypes.c_int64


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
        # All instructions of this CPU, but not its scheduling model: some models require another pass after
        # register allocation. It takes a third of the compile time and changes nothing here.
        cpu = "x86-64"
    options = {"opt": level, "reloc": "pic", "codemodel": "small"}
    machine = target.create_target_machine(cpu=cpu, features=features, **options)
    version = ".".join(map(str, llvm.llvm_version_info))
    return machine, "\n".join([triple, cpu, features, version, llvmlite.__version__])


@functools.cache
def _linker() -> Any:
    import llvmlite.binding as llvm

    _target()
    # The other linker allocates memory section by section. In a full address space the sections may be more
    # than 2 GiB apart. The small code model does not allow this, and the process aborts.
    return llvm.create_lljit_compiler(use_jit_link=sys.platform != "win32", suppress_errors=False)


def lanes() -> int:
    """Number of doubles in the widest vector register of this CPU."""
    features = _target()[1]
    if "+avx512f" in features:
        return 8
    return 4 if "+avx2" in features or "+avx," in features else 2


def host_symbol(node: int) -> str:
    """What machine code calls the Python function of a node."""
    return f"host{node}"


class Library:
    """Functions of one module, callable from Python without holding the interpreter's lock.

    ``hosts`` are Python functions that the code calls, by node. Their addresses are not part of the code, so
    code from the cache calls those of this process. A call takes the interpreter's lock. Their exceptions are
    raised after a function, except after the function "steps", whose steps before the exception are kept.

    Code that runs only once or twice is better not optimized, since optimization takes most of the compile
    time. Without it, contraction would depend on the number of lanes, so it is switched off too. In long
    functions, more than half of the time of optimization is for the order of instructions, which makes them
    less than a tenth faster: ``scheduled`` is false for these.
    """

    def __init__(
        self,
        text: str,
        functions: Sequence[str],
        optimized: bool = True,
        scheduled: bool = True,
        hosts: Mapping[int, HostCall] | None = None,
    ) -> None:
        import llvmlite.binding as llvm

        self.cached = True
        if not optimized:
            text = "; not optimized\n" + text.replace(" contract", "")  # another key in the cache
        elif not scheduled:
            text = "; not scheduled\n" + text
        key = _key(text)
        code = code_cache.load(key)
        if code is None:
            self.cached = False
            code = _compile(text, level=2 if optimized else 0, scheduled=scheduled)
            code_cache.store(key, code)
        self.size = len(code)
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        self.hosts = [call.pointer for call in (hosts or {}).values()]  # kept alive with the code
        for node, pointer in zip(hosts or {}, self.hosts, strict=True):
            address = ctypes.cast(pointer, ctypes.c_void_p).value
            builder = builder.import_symbol(host_symbol(node), address)
        for name in functions:
            builder = builder.export_symbol(name)
        self._tracker = builder.link(_linker(), f"kernel{next(_names)}")

    def function(self, name: str, *kinds: Any, result: Any = None) -> Callable[..., Any]:
        found = ctypes.CFUNCTYPE(result, *kinds)(self._tracker[name])
        found.library = self  # type: ignore[attr-defined] # keeps the code alive
        if not self.hosts or name == "steps":
            return found

        def called(*arguments: Any) -> Any:
            result = found(*arguments)
            raise_pending()
            return result

        return called


def _key(text: str) -> bytes:
    """The cache key of the code for this text. It depends on the text and on the machine."""
    return hashlib.sha256(_target()[1].encode() + b"\n" + text.encode()).digest()


def _compile(text: str, level: int, scheduled: bool = True) -> bytes:
    import llvmlite.binding as llvm

    machine = _target(level)[0]
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    if scheduled:
        return machine.emit_object(module)
    # The option belongs to the whole process, so it is set back at once.
    llvm.set_option("genalpha", "-enable-misched=false")
    try:
        return machine.emit_object(module)
    finally:
        llvm.set_option("genalpha", "-enable-misched=true")
