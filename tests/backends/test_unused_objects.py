"""Python looks for unused objects now and then, although this is put off while code is made."""

import gc
import weakref

from genalpha.backends.native import code


class Node:
    """An object that refers to itself, so that only a search finds that it is unused."""

    def __init__(self) -> None:
        self.me = self


def test_unused_objects_are_looked_for_after_many_new_ones(monkeypatch) -> None:
    """Each time code is made all objects count as old, and Python alone would not look among these."""
    making = code._MakingCode()
    monkeypatch.setattr(code, "MANY_BLOCKS", 50_000)
    kept, unused = [], list[weakref.ref[Node]]()
    for i in range(20):
        with making:
            assert not gc.isenabled()
            unused.append(weakref.ref(Node()))
            kept += [[k] for k in range(i * 10_000, (i + 1) * 10_000)]
    assert gc.isenabled()
    assert all(node() is None for node in unused[:10])
