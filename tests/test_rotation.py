"""Rotations against SciPy's, in every form."""

import functools
import itertools
import warnings

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from genalpha import rotation
from genalpha.numerics.stumpff import stumpff

SEQUENCES = [
    "".join(letters)
    for letters in itertools.product("xyz", repeat=3)
    if letters[0] != letters[1] and letters[1] != letters[2]
]


def randoms(count, seed=0):
    return Rotation.random(count, random_state=seed)


def same(p, r):
    """Whether two quaternions are the same rotation."""
    return min(np.abs(np.asarray(p) - r).max(), np.abs(np.asarray(p) + r).max())


def test_matrices_vectors_and_products():
    first, second = randoms(20), randoms(20, seed=1)
    x = np.array([0.3, -2.0, 1.1])
    for a, b in zip(first, second, strict=True):
        p, r = rotation.from_scipy(a), rotation.from_scipy(b)
        np.testing.assert_allclose(rotation.matrix(p), a.as_matrix(), atol=1e-15)
        np.testing.assert_allclose(rotation.rotate(p, x), a.apply(x), atol=1e-15)
        np.testing.assert_allclose(rotation.matrix(rotation.multiply(p, r)), (a * b).as_matrix(), atol=1e-15)
        np.testing.assert_allclose(rotation.rotation_vector(p), a.as_rotvec(), atol=1e-14)
        assert same(rotation.from_rotation_vector(a.as_rotvec()), p) < 1e-15
        assert same(rotation.from_matrix(a.as_matrix()), p) < 1e-15
        assert rotation.from_matrix(a.as_matrix())[0] >= 0
        assert same(rotation.multiply(rotation.inverse(p), p), rotation.identity()) < 1e-15


@pytest.mark.parametrize("half_turn", np.vstack([np.eye(3), np.ones((1, 3)) / np.sqrt(3)]))
def test_half_turns(half_turn):
    """At w = 0, with trace −1, the matrix and the vector are recovered."""
    R = Rotation.from_rotvec(np.pi * half_turn).as_matrix()
    p = rotation.from_matrix(R)
    np.testing.assert_allclose(rotation.matrix(p), R, atol=1e-15)
    np.testing.assert_allclose(np.abs(rotation.rotation_vector(p)), np.pi * np.abs(half_turn), atol=1e-14)


@pytest.mark.parametrize("seq", SEQUENCES + [seq.upper() for seq in SEQUENCES])
def test_euler_angles(seq):
    for r in randoms(5, seed=2):
        angles = r.as_euler(seq)
        np.testing.assert_allclose(rotation.euler(seq, rotation.from_scipy(r)), angles, atol=1e-13)
        assert same(rotation.from_euler(seq, angles), rotation.from_scipy(r)) < 1e-15


@pytest.mark.parametrize("seq", ["zyx", "ZYX", "zxz", "ZXZ"])
def test_euler_angles_when_two_axes_coincide(seq):
    middle = np.pi / 2 if len(set(seq)) == 3 else 0.0
    p = rotation.from_euler(seq, [0.4, middle, 0.3])
    angles = rotation.euler(seq, p)
    assert same(rotation.from_euler(seq, angles), p) < 1e-7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns of gimbal lock
        np.testing.assert_allclose(angles, rotation.to_scipy(p).as_euler(seq), atol=1e-7)


@pytest.mark.parametrize("seq", ["xy", "xxy", "xYz", "abc", ""])
def test_bad_sequences(seq):
    with pytest.raises(ValueError, match="seq = "):
        rotation.from_euler(seq, [0.1, 0.2, 0.3])


def test_both_orders_and_scipy():
    p = rotation.from_rotation_vector([0.3, 0.2, -0.5])
    np.testing.assert_array_equal(rotation.from_xyzw(rotation.to_xyzw(p)), p)
    np.testing.assert_allclose(rotation.to_xyzw(p), rotation.to_scipy(p).as_quat(), atol=1e-16)
    many = rotation.from_scipy(randoms(4))
    assert many.shape == (4, 4)
    np.testing.assert_allclose(rotation.to_scipy(many).as_matrix(), randoms(4).as_matrix(), atol=1e-15)


def test_skew_and_cross(rng):
    a, b = rng.normal(size=3), rng.normal(size=3)
    np.testing.assert_allclose(rotation.skew(a) @ b, np.cross(a, b), atol=1e-15)
    np.testing.assert_allclose(rotation.cross(a, b), np.cross(a, b), atol=1e-15)


@functools.cache
def slope_of_stumpff(k):
    return jax.jit(jax.grad(lambda x: stumpff(k, x)))


@pytest.mark.slow
@given(st.integers(0, 5), st.floats(0, 40))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_stumpff_functions_against_their_series(k, x):
    """Against the series in exact rational arithmetic."""
    from fractions import Fraction
    from math import factorial

    exact = float(sum((-Fraction(x)) ** i / factorial(2 * i + k) for i in range(40)))
    assert float(stumpff(k, x)) == pytest.approx(exact, abs=3e-15, rel=3e-14)
    # c_k' = (k c_{k+2} − c_{k+1})/2, from the series
    slope = float(sum(-i * (-Fraction(x)) ** (i - 1) / factorial(2 * i + k) for i in range(1, 40)))
    assert float(slope_of_stumpff(k)(x)) == pytest.approx(slope, abs=3e-14, rel=1e-12)


def test_the_rotation_vector_near_the_identity_and_near_pi():
    jacobian = jax.jit(jax.jacfwd(lambda w: rotation.rotation_vector(rotation.from_rotation_vector(w))))
    for size in (0.0, 1e-200, 1e-9, 0.28, 0.29, 3.0, np.pi - 1e-6):
        w = size * np.array([1.0, 2.0, -2.0]) / 3
        np.testing.assert_allclose(jacobian(w), np.eye(3), atol=1e-11)
