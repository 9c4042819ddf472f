"""Inertias of meshes of MJCF, which are exact, and notes where MuJoCo's default differs."""

import numpy as np
import pytest

from genalpha import multibody as mb
from mujoco_states import mujoco  # skips all where MuJoCo is not installed

ANGLE = [(0, 0), (3, 0), (3, 1), (1, 1), (1, 3), (0, 3)]  # an L; its inner corner hides two sides
DENT = [(0, 0), (3, 0), (2.8, 1.5), (3, 3), (0, 3)]  # seen from its middle as a whole, but not convex
BLOCK = [(0, 0), (3, 0), (3, 3), (0, 3)]
NOTE = (
    "inertias of meshes are exact, and MuJoCo's default ('legacy') is not for these: inertia=\"exact\" makes "
    "both the same: mujoco/asset/mesh (m)"
)


def prism(outline):
    """Points and triangles of a prism with an outline that its first corner sees."""
    n = len(outline)
    points = [(0.1 * x + 0.2, 0.1 * y, 0.1 * z) for z in (0, 1) for x, y in outline]
    faces = [(0, i + 1, i) for i in range(1, n - 1)] + [(n, n + i, n + i + 1) for i in range(1, n - 1)]
    for i in range(n):
        j = (i + 1) % n
        faces += [(i, j, j + n), (i, j + n, i + n)]
    flat = lambda rows: " ".join(f"{x:.9g}" for row in rows for x in row)
    return f'vertex="{flat(points)}" face="{flat(faces)}"'


def written(folder, outline, how="", stated="", more=""):
    path = folder / "mesh.xml"
    geom = '<geom type="mesh" mesh="m" contype="0" conaffinity="0"/>'
    mesh = f'<asset><mesh name="m" {prism(outline)} {how}/></asset>'
    body = f'<body name="b"><joint/>{stated}{geom}</body>'
    path.write_text(f"<mujoco>{more}{mesh}<worldbody>{body}</worldbody></mujoco>")
    return path


def both(path):
    model, peer = mb.load(path), mujoco.MjModel.from_xml_path(str(path))
    moments = np.linalg.eigvalsh(model["b"].inertia.tensor)
    same = model["b"].mass == pytest.approx(peer.body_mass[1], rel=1e-6)
    same = same and moments == pytest.approx(np.sort(peer.body_inertia[1]), rel=1e-5)
    return model.notes, same


@pytest.mark.filterwarnings("ignore:mesh.xml")
@pytest.mark.parametrize("how", ["", 'inertia="legacy"'])
def test_meshes_whose_inertia_is_another_in_mujoco_are_listed(tmp_path, how):
    assert both(written(tmp_path, ANGLE, how)) == ([NOTE], False)
    for outline in (DENT, BLOCK):
        assert both(written(tmp_path, outline, how)) == ([], True)


@pytest.mark.parametrize("outline", [ANGLE, DENT, BLOCK])
def test_exact_inertias_are_those_of_mujoco(tmp_path, outline):
    assert both(written(tmp_path, outline, 'inertia="exact"')) == ([], True)


@pytest.mark.parametrize("how", ["", 'inertia="legacy"', 'inertia="convex"', 'inertia="shell"'])
def test_an_inertia_that_is_stated_counts(tmp_path, how):
    """What the inertia of the mesh would be does not matter then."""
    stated = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
    assert both(written(tmp_path, ANGLE, how, stated)) == ([], True)


def test_a_default_class_says_how_too(tmp_path):
    assert both(written(tmp_path, ANGLE, more='<default><mesh inertia="exact"/></default>')) == ([], True)
