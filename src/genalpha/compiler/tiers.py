"""Code in two tiers: without optimization at once, optimized as soon as a thread in the background is ready.

For a car of 20 bodies the first takes a fifth of the time of the second, and its steps take 0 to 25 % longer.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from genalpha.compiler import code_cache
from genalpha.compiler.objects import CompileJob

# Whether code is optimized in the background at all.
IMPROVES = True
# Set while no code is made that somebody waits for. Only then the background works.
quiet = threading.Event()
quiet.set()
# Held while the background is inside of LLVM. A process that forks waits for it: locks of LLVM that another
# thread holds would be held for ever in the new process.
_inside = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_inside.acquire, after_in_parent=_inside.release, after_in_child=_inside.release
    )

Keep = Callable[[bytes, list[bytes]], None]


@contextlib.contextmanager
def workers(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that compile. At the end, or after an error, they get no more to do."""
    pool = ThreadPoolExecutor(threads, "genalpha compiler")
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown(wait=False)


class ModuleCode(NamedTuple):
    """The object codes of a module, perhaps not made yet, and how to make them.

    The ``key`` is that of optimized code in the cache, or None if it was found there. ``quick`` is the key of
    code that has not been optimized, if this is what there is; ``cached`` says whether it was found there.
    """

    key: bytes | None
    jobs: list[CompileJob]
    parts: list[bytes | Future[bytes]]
    quick: bytes | None = None
    cached: bool = False

    def finished(self, keep: Keep) -> list[bytes]:
        """The object codes. New ones are kept."""
        found = [part if isinstance(part, bytes) else part.result() for part in self.parts]
        key = self.quick or self.key
        if key is not None and not self.cached:
            keep(key, found)
        return found


class Improvement(threading.Thread):
    """Optimizes modules in the background. Then ``parts`` are the object codes of all of them.

    It ends early, after the part at hand, if the main program has ended.
    """

    def __init__(self, modules: list[ModuleCode], keep: Keep) -> None:
        super().__init__(name="genalpha optimizer")
        self.parts: list[bytes] = []
        self._modules, self._keep = modules if IMPROVES else [], keep
        if IMPROVES:
            self.start()

    def run(self) -> None:
        found: list[bytes] = []
        for module in self._modules:
            if not module.quick:
                found += module.finished(lambda *_: None)
                continue
            assert module.key is not None
            better = []
            for job, quick in zip(module.jobs, module.parts, strict=True):
                quiet.wait()
                if not threading.main_thread().is_alive():
                    return
                with _inside:
                    known = quick if isinstance(quick, bytes) else quick.result()
                    done = known if job == job.quick else job.done()
                better.append(done)
            self._keep(module.key, better)
            code_cache.drop(module.quick)
            found += better
        self._modules = []
        self.parts = found


def finish_compiling() -> None:
    """Wait until all code is optimized that is being optimized in the background.

    Runs need not wait: they use the code that there is, and all codes have the same results to the last bit.
    This is for measurements of time.
    """
    for thread in threading.enumerate():
        if isinstance(thread, Improvement):
            thread.join()
