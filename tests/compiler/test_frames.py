"""Which slots are kept for every group, and where slots are."""

import numpy as np
import pytest

from genalpha.compiler import frames
from genalpha.compiler.frames import Run
from genalpha.compiler.program import Call, If, Kernel, Program, Table, While
from genalpha.compiler.repeated import Add, Each, Gather, Keep, Largest, Spread


def program(*kernels, slots=10, tables=None, pieces=None):
    """Kernels (name, slots that are read, slots that are written)."""
    made = {
        name: Kernel(name, tuple(enumerate(reads)), (), tuple((slot, 0) for slot in writes))
        for name, reads, writes in kernels
    }
    return Program((), {}, made, slots, tables or {}, pieces or {})


def kept(of, *loops, held=()):
    """The slots that are kept for every group."""
    found = frames.lay_out({"p": of}, [[Each("p", 10, body) for body in loops]], {"p": held})["p"]
    return np.flatnonzero(found.places < found.kept).tolist()


def test_what_is_written_first_is_not_kept():
    of = program(("f", [0, 1], [2]), slots=3)
    assert kept(of, [Gather(0, 2, "x"), Call("f"), Add(2, 1, "r")]) == []
    assert kept(of, [Gather(0, 1, "x"), Call("f"), Add(2, 1, "r")]) == [1]
    assert kept(of, [Call("f"), Gather(0, 2, "x"), Add(2, 1, "r")]) == [0, 1]
    assert kept(of, [Spread(0, 7), Spread(1, 8), Call("f"), Largest(2, 1, 5)]) == []


def test_what_another_loop_reads_is_kept():
    of = program(("f", [0], [1, 2]), ("g", [1], [3]), slots=4)
    first, second = [Gather(0, 1, "x"), Call("f"), Add(2, 1, "r")], [Call("g"), Keep(3, 1, "e")]
    assert kept(of, [*first, *second]) == []
    assert kept(of, first, second) == [1]
    nested = [If(0, [Each("p", 4, first)]), While(0, [If(0, [Each("p", 4, second)])])]
    found = frames.lay_out({"p": of}, [nested], {})["p"]
    assert (found.kept, found.scratch, found.places.tolist()) == (1, 3, [1, 0, 2, 3])


def test_a_kernel_reads_before_it_writes_and_its_pieces_follow_each_other():
    assert kept(program(("f", [0], [0]), slots=1), [Call("f")]) == [0]
    of = program(("f_0", [0], [1]), ("f_1", [1], [2]), slots=3, pieces={"f": ["f_0", "f_1"]})
    assert kept(of, [Gather(0, 1, "x"), Call("f"), Add(2, 1, "r")]) == []


def test_slots_for_others_and_tables_are_kept():
    of = program(("f", [0], [1, 2]), slots=3)
    assert kept(of, [Gather(0, 1, "x"), Call("f")]) == []
    assert kept(of, [Gather(0, 1, "x"), Call("f")], held=np.array([2])) == [2]
    assert kept(program(("f", [], [0, 1, 2]), slots=4), [Call("f")]) == [3]  # nobody writes it here
    of = program(("f", [0], [1, 2, 3, 4]), slots=5, tables={7: Table(2, 1, 2)})
    assert kept(of, [Gather(0, 1, "x"), Call("f")]) == [1, 2, 3]  # distances stay


def test_one_frame_for_all_groups_is_left_alone():
    assert frames.lay_out({}, [[Each("stream", 0, [Call("f")])]], {}) == {}


def test_ranges_are_split_where_places_do_not_follow_and_unread_slots_are_left_out():
    read = np.array([1, 1, 0, 1, 1, 1], bool)
    laid = frames.Frames(3, np.array([0, 1, 2, 3, 5, 4]), read)
    assert laid.runs(0, 6) == [Run(0, 0, 2), Run(3, 3, 1), Run(4, 5, 1), Run(5, 4, 1)]
    everything = frames.Frames(2, np.arange(4), np.ones(4, bool))
    assert everything.runs(0, 4) == [Run(0, 0, 2), Run(2, 2, 2)]  # a frame ends after its last slot
    assert everything.runs(1, 1) == [Run(0, 1, 1)]


def test_programs_are_moved_to_their_places():
    of = program(("f", [0, 2], [1]), slots=3, tables={5: Table(1, 2)})
    laid = frames.Frames(1, np.array([1, 2, 0]), np.ones(3, bool))
    found = frames.placed(of, laid)
    assert found.kernels["f"].loads == ((0, 1), (1, 0))
    assert found.kernels["f"].stores == ((2, 0),)
    assert (found.tables[5].first, found.kept) == (0, 1)
    with pytest.raises(KeyError):
        frames.lay_out({}, [[Each("p", 1, [Call("f")])]], {})
