"""Files hold data only: they are read back bit for bit, and nothing in them is executed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import os
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import genalpha as ga
from genalpha.engine import files
from genalpha.engine.run_data import Grid
from genalpha.engine.steps import Given
from genalpha.mechanics.spaces import named
from genalpha.numerics.data import Times

spring = ga.System(mass=np.eye(1), force=lambda t, q, v: -q)
run = functools.partial(ga.solve, spring, (0.0, 1.0), [1.0], [0.0], h=0.1)


class Planted:
    """An object of a malicious pickle: it creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


class Reader(NamedTuple):
    """A function that reads a file, and the contents of a good file."""

    read: Any
    kind: str
    good: bytes


@pytest.fixture(params=["checkpoint", "state", "solution"])
def reader(request, tmp_path) -> Reader:
    path = tmp_path / "good"
    if request.param == "checkpoint":
        run(checkpoint=path)
        read = lambda path: run(checkpoint=path)
    elif request.param == "state":
        run().state.save(path)
        read = ga.load_state
    else:
        run().save(path)
        read = ga.load
    good = path.read_bytes()
    read(path)
    path.unlink()
    return Reader(read, request.param, good)


def unpacked(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data), allow_pickle=False) as opened:
        return {name: opened[name] for name in opened.files}


def packed(arrays: dict[str, Any], sign: bool = True) -> bytes:
    """A file of these arrays, with the checksum that belongs to them."""
    if sign and "checksum" in arrays:
        arrays = {name: array for name, array in arrays.items() if name != "checksum"}
        arrays["checksum"] = files._checksum(arrays)
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def with_header(data: bytes, **changes: Any) -> bytes:
    arrays = unpacked(data)
    own = arrays["header"].dtype == np.uint8
    header = json.loads(arrays["header"].tobytes() if own else str(arrays["header"])) | changes
    text = json.dumps(header)
    arrays["header"] = np.frombuffer(text.encode(), np.uint8) if own else np.array(text)
    return packed(arrays)


# --- nothing is executed --------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["pickle", "older checkpoint", "object array", "object in the file", "npy"])
def test_what_is_planted_is_not_executed(way, reader, tmp_path):
    trace, path = tmp_path / "trace", tmp_path / "planted"
    bomb = np.array([Planted(trace)], dtype=object)
    stream = io.BytesIO()
    if way == "pickle":
        data = pickle.dumps(Planted(trace))
    elif way == "older checkpoint":
        import hashlib

        body = pickle.dumps((b"", Planted(trace)), protocol=4)
        data = b"genalpha checkpoint 1\n" + hashlib.sha256(body).digest() + body
    elif way == "npy":
        np.save(stream, bomb, allow_pickle=True)
        data = stream.getvalue()
    else:
        arrays = {"header": bomb} if way == "object array" else unpacked(reader.good) | {"f8": bomb}
        np.savez(stream, allow_pickle=True, **arrays)
        data = stream.getvalue()
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"planted (is|was)"):
        reader.read(path)
    assert not trace.exists()
    pickle.loads(pickle.dumps(Planted(trace)))  # pickle would have executed it
    assert trace.exists()


def test_pickles_are_not_read():
    source = Path(ga.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in source.rglob("*.py")}
    # What a driver of a sweep sends to its workers is code. It never comes from a file (SECURITY.md).
    texts = {path: text.replace("cloudpickle", "") for path, text in texts.items()}
    # The folder of machine code belongs to the user alone, and is code anyway.
    del texts[source / "compiler" / "kept.py"]
    for word in ("import pickle", "pickle.load", "allow_pickle=True", "np.load(", "eval(compile", "marshal"):
        assert [str(path) for path, text in texts.items() if word in text] == []
    running = [path.name for path, text in texts.items() if "exec(" in text]
    assert running == ["models.py"]  # a model file is code


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').mkdir('trace')",
        "Product(open('trace', 'w'))",
        "Euclidean(n=-1)",
        "Euclidean(n=(lambda: 3)())",
        "Euclidean(m=3)",
        "Product()",
        "SO3(" * 5000,
        "not " * 100_000 + "SO3()",
        "-" * 100_000 + "3",
        "",
        None,
        3,
        ["SO3()"],
    ],
)
def test_a_space_is_read_and_not_evaluated(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert named(text) is None
    assert not list(tmp_path.iterdir())
    assert named("Product(R3xSO3(), Product(SE3(), Euclidean(n=2)), SO3())") == ga.Product(
        ga.R3xSO3(), ga.Product(ga.SE3(), ga.Euclidean(2)), ga.SO3()
    )
    assert named("Euclidean(n=None)") == ga.Euclidean()


# --- bad files ------------------------------------------------------------------------------------------


def bad(reader: Reader, tmp_path: Path, data: bytes, match: str) -> None:
    path = tmp_path / "bad"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=match):
        reader.read(path)
    assert path.read_bytes() == data  # the file is not changed


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_off(part, reader, tmp_path):
    bad(reader, tmp_path, reader.good[: int(part * len(reader.good))], "bad is damaged")


def test_bits_that_were_flipped(reader, tmp_path):
    rng, expected = np.random.default_rng(0), run().state.q if reader.kind == "state" else run().q
    for at in rng.integers(0, len(reader.good), 60):
        data = bytearray(reader.good)
        data[at] ^= 1 << rng.integers(8)
        (tmp_path / "bad").write_bytes(data)
        with contextlib.suppress(ValueError):  # unless the bit is in an unused field, such as the date
            np.testing.assert_array_equal(reader.read(tmp_path / "bad").q, expected)


def test_a_wrong_checksum(reader, tmp_path):
    if reader.kind == "solution":
        pytest.skip("zip's own checksums serve there")
    arrays = unpacked(reader.good)
    arrays["f8"] = arrays["f8"] + 1e-16
    bad(reader, tmp_path, packed(arrays, sign=False), "bad is damaged: its checksum is wrong")
    del arrays["checksum"]
    bad(reader, tmp_path, packed(arrays), "bad is damaged: its checksum is wrong")


@pytest.mark.parametrize("what", ["text", "empty", "npz", "another header", "picture"])
def test_foreign_files(what, reader, tmp_path):
    data = {
        "text": b"t = 0.0\n",
        "empty": b"",
        "npz": packed({"x": np.zeros(3)}),
        "another header": packed(
            {"header": np.frombuffer(b'{"format": "x", "version": 1, "kind": 2}', "u1")}
        ),
        "picture": b"\x89PNG\r\n",
    }[what]
    bad(reader, tmp_path, data, "bad (is not a|was not written by genalpha)")


def test_newer_files(reader, tmp_path):
    changes = {"genalpha": 99} if reader.kind == "solution" else {"version": 99, "genalpha": "99.0"}
    bad(
        reader,
        tmp_path,
        with_header(reader.good, **changes),
        "format 99[,;] this version .*[Uu]pdate genalpha",
    )


def test_a_checkpoint_of_another_version_of_the_package(tmp_path):
    run(checkpoint=tmp_path / "run")
    data = with_header((tmp_path / "run").read_bytes(), genalpha="0.0.1")
    (tmp_path / "run").write_bytes(data)
    with pytest.raises(ValueError, match=r"written by genalpha 0.0.1, this is .* delete it to start anew"):
        run(checkpoint=tmp_path / "run")


def test_a_state_of_another_version_of_the_package(tmp_path):
    sol = run()
    sol.state.save(tmp_path / "state")
    good = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(with_header(good, genalpha="0.0.1"))
    assert ga.load_state(tmp_path / "state").t == 1.0
    classes = json.loads(unpacked(good)["header"].tobytes())["classes"]
    classes["Grid"] = [*classes["Grid"], "more"]
    (tmp_path / "state").write_bytes(with_header(good, genalpha="0.0.1", classes=classes))
    with pytest.raises(ValueError, match=r"written by genalpha 0.0.1, whose files hold other data"):
        ga.load_state(tmp_path / "state")


def test_files_of_another_kind(tmp_path):
    sol = run(checkpoint=tmp_path / "run")
    sol.state.save(tmp_path / "state")
    sol.save(tmp_path / "sol")
    with pytest.raises(ValueError, match="run is a checkpoint of genalpha, not a state"):
        ga.load_state(tmp_path / "run")
    with pytest.raises(ValueError, match=r"state is a state of genalpha, not a checkpoint. Delete it"):
        run(checkpoint=tmp_path / "state")
    for name in ("run", "state"):
        with pytest.raises(ValueError, match=r"not written by .*Solution.save: .*ga.load_state"):
            ga.load(tmp_path / name)
    with pytest.raises(ValueError, match="sol is not a state of genalpha"):
        ga.load_state(tmp_path / "sol")
    with pytest.raises(ValueError, match="is not a file"):
        run(checkpoint=tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        ga.load_state(tmp_path / "none")


# --- manipulated files ----------------------------------------------------------------------------------


def member(name: str, data: bytes, compressed: bool = False) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{name}.npy", data)
    return stream.getvalue()


def npy(descr: str, shape: str, data: bytes = b"") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (member("header", b"\0" * 10**8, compressed=True), "it is compressed"),
        (member("header", npy("'<f8'", "(1000000000000,)")), "does not match its shape"),
        (member("header", npy("'<f8'", "(-1, -8)", b"\0" * 64)), "does not match its shape"),
        (member("header", npy("'<U0'", "(1000000000000,)")), "neither numbers nor text"),
        (member("header", npy("'|O'", "(1,)", pickle.dumps([3]))), "neither numbers nor text"),
        (member("header", npy("[('a', '<f8')]", "(1,)", b"\0" * 8)), "neither numbers nor text"),
        (member("header", npy("__import__('os').getcwd()", "(1,)")), "is damaged"),
        (member("header", npy("'<f8'", f"({'(' * 3000}")), "is damaged"),
        (member("header", b"\x93NUMPY\x03\x00" + b"\0" * 100), "format 1.0"),
        (member("header", b""), "is damaged"),
    ],
)
def test_arrays_that_claim_too_much(data, match, reader, tmp_path):
    bad(reader, tmp_path, data, match)


def test_headers_that_make_no_sense(reader, tmp_path):
    if reader.kind == "solution":
        bad(reader, tmp_path, packed({"header": np.array("{" * 10)}), "not written by")
        bad(reader, tmp_path, packed({"header": np.array('{"genalpha": 5}')}), "is damaged")
        bad(reader, tmp_path, with_header(reader.good, rotations=3), "is damaged")
        return
    for text in (b"", b"[" * 100_000, b"3", b"[1]", b"\xff\xfe", b'{"format": "genalpha"}'):
        bad(reader, tmp_path, packed({"header": np.frombuffer(text, "u1")}), "is damaged: its header")
    array = ["array", "f8", [10**12]]
    trees = [
        3,
        None,
        "text",
        {},
        [],
        [[]],
        ["os.mkdir", "trace"],
        ["RunState"],
        ["Popen", ["list", "true"]],
        array,
        ["array", "f8", [-1]],
        ["array", "f8", ["3"]],
        ["array", "f8", [True]],
        ["array", "header", [3]],
        ["array", "O", [3]],
        ["scalar", "i99"],
        ["float", "0x1p99999"],
        ["bytes", "xyz"],
        ["dict", [3, 4]],
        ["tuple", ["tuple"], ["list"]],
        functools.reduce(lambda tree, _: ["list", tree], range(5000), 0),
    ]
    limit = sys.getrecursionlimit()
    for tree in trees:
        sys.setrecursionlimit(20_000)  # to write the last one
        try:
            data = with_header(reader.good, tree=tree)
        finally:
            sys.setrecursionlimit(limit)
        bad(reader, tmp_path, data, "is damaged")
    for classes in ([], {"RunState": []}, {"Popen": ["args"]}, 3):
        bad(reader, tmp_path, with_header(reader.good, classes=classes), "is damaged")


@pytest.mark.parametrize(
    "change",
    [
        {"row": np.zeros(2)},
        {"row": np.zeros((2, 2))},
        {"q": np.zeros(2)},
        {"q": np.zeros(1, int)},
        {"q": None},
        {"t": "now"},
        {"dims": None},
        {"grid": Grid(0.0, 0.1, -3)},
        {"grid": Grid(0.0, 0.1, 0, (np.zeros(3), np.zeros(9)))},
        {"grid": 3},
    ],
)
def test_states_whose_parts_do_not_fit(change, tmp_path):
    """With wrong shapes, compiled loops would write outside of their arrays."""
    state = dataclasses.replace(run().state, **change)
    files.write(str(tmp_path / "state"), "state", state)
    if "row" in change and change["row"].ndim == 1:
        with pytest.raises(ValueError, match="another kind of run"):
            ga.solve(spring, (1.0, 2.0), state=ga.load_state(tmp_path / "state"), h=0.1)
        return
    with pytest.raises(ValueError, match="holds no state"):
        ga.load_state(tmp_path / "state")


@pytest.mark.parametrize("change", ["done", "table", "state", "kept", "steps"])
def test_checkpoints_whose_parts_do_not_fit(change, tmp_path):
    run(checkpoint=tmp_path / "run")
    whose, saved = files.read(str(tmp_path / "run"), "checkpoint", "")
    short = Given(np.zeros(2), Times(np.zeros(1), np.full(9, 0.1)))
    wrong = {
        "done": -3,
        "table": {"table": saved.kept["table"][:3]},
        "state": None,
        "kept": {},
        "steps": short,
    }
    name = "kept" if change == "table" else change
    files.write(str(tmp_path / "run"), "checkpoint", (whose, saved._replace(**{name: wrong[change]})))
    with pytest.raises(ValueError, match="holds no run"):
        run(checkpoint=tmp_path / "run")
