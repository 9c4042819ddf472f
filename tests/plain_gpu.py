"""A stand-in for cupy: the kernels of a GPU compiled as plain C, and run on the CPU."""

import ctypes
import itertools
import subprocess
import types

import numpy as np

from genalpha.backends.batch import cuda as driver
from genalpha.compiler import emit_cuda


class Array(np.ndarray):
    """An array that can be asked for its copy in the memory of the host."""

    def get(self):
        return np.array(self)


def stand_in(folder):
    """A module with the functions of cupy that the driver uses, on the CPU."""
    numbers = itertools.count()

    class Module:
        def __init__(self, code, options):
            source = folder / f"kernels{next(numbers)}.c"
            source.write_text(code)
            library = source.with_suffix(".so")
            command = ["cc", "-O0", "-shared", "-fPIC", "-o", str(library), str(source), "-lm"]
            subprocess.run(command, check=True, capture_output=True)
            self.library = ctypes.CDLL(str(library))

        def get_function(self, name):
            function = getattr(self.library, name)

            def launch(grid, block, arguments):
                assert grid[0] * block[0] >= arguments[-1]
                arrays = [np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in arguments]
                for given, sent in zip(arguments, arrays, strict=True):
                    assert (
                        not isinstance(given, np.ndarray) or np.shares_memory(given, sent) or not given.size
                    )
                function(
                    *(
                        ctypes.c_void_p(x.ctypes.data)
                        if isinstance(x, np.ndarray)
                        else ctypes.c_longlong(int(x))
                        for x in arrays
                    )
                )

            return launch

    module = types.SimpleNamespace(RawModule=Module)
    for name in [
        "asarray",
        "empty",
        "zeros",
        "ones",
        "full",
        "stack",
        "concatenate",
        "tile",
        "repeat",
        "ascontiguousarray",
        "isnan",
        "broadcast_to",
        "where",
    ]:
        function = getattr(np, name)
        setattr(module, name, lambda *a, function=function, **k: np.asarray(function(*a, **k)).view(Array))
    pool = types.SimpleNamespace(free_bytes=lambda: 0)
    module.get_default_memory_pool = lambda: pool
    module.free = 2**30
    runtime = types.SimpleNamespace(memGetInfo=lambda: (module.free, 2**30))
    module.cuda = types.SimpleNamespace(runtime=runtime)
    return module


def installed(folder, monkeypatch):
    """The stand-in, in the place of cupy."""
    module, emit = stand_in(folder), emit_cuda.emit
    monkeypatch.setattr(driver, "library", lambda: module)
    monkeypatch.setattr(emit_cuda, "emit", lambda parts, block: emit(parts, None))
    return module
