"""``accuracy`` and ``extrapolate`` of large assemblies: rows move onto the constraints by sparse matrices."""

import numpy as np
import pytest

import assemblies
import genalpha as ga
from genalpha.backends.sparse import front, matrices
from genalpha.engine.setup import Setup
from genalpha.run import arguments


@pytest.mark.parametrize("name", ["spherical", "wires", pytest.param("sledges", marks=pytest.mark.slow)])
def test_sparse_and_dense_matrices_give_the_same_accurate_motion(name):
    """Constraints that are holonomic, both, nonholonomic; rotations in the first."""
    sparse, dense = (assemblies.solve(name, kind, h=0.02, extrapolate=3) for kind in ("sparse", "dense"))
    for field in ("q", "v", "a", "lam", "psi"):
        one, two = getattr(sparse, field), getattr(dense, field)
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-9 * np.abs(two).max(initial=1.0))
    for field in ("position", "velocity", "nonholonomic"):
        assert getattr(sparse.residuals, field).max(initial=0.0) < 1e-13
    for field in ("q", "v", "lam", "psi"):
        one, two = (getattr(sol.error, field) for sol in (sparse, dense))
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-8)


def test_rows_that_are_not_kept_are_not_needed():
    """The kept rows and their errors are those of the same run with all rows."""
    whole, some, last = (
        assemblies.solve("spherical", h=0.02, extrapolate=3, save=save) for save in (1, 3, "final")
    )
    for sol, rows in ((some, [0, 3, 6, 9, 10]), (last, [10])):
        for field in ("t", "q", "v", "a", "lam"):
            np.testing.assert_array_equal(getattr(sol, field), getattr(whole, field)[rows])
        np.testing.assert_array_equal(sol.error.q, whole.error.q[rows])
        np.testing.assert_allclose(sol.state.q, whole.state.q, rtol=0, atol=1e-15)


def test_the_accuracy_of_a_long_chain():
    """Its dense matrices would have 10⁶ entries for each row. Two methods with other errors agree."""
    model = assemblies.revolute(100)
    good = ga.solve(*model[:1], (0.0, 0.2), *model[1:], accuracy=1e-4, method="index3", save="final")
    best = ga.solve(*model[:1], (0.0, 0.2), *model[1:], accuracy=1e-6, method="stabilized", save="final")
    assert good.success
    assert best.success
    assert max(good.residuals.position.max(), good.residuals.velocity.max()) < 1e-11
    move = np.abs(best.q - model.q0).max()
    assert np.abs(good.q - best.q).max() < 1e-4 * move


def no_factors(*_):
    raise RuntimeError("Factor is exactly singular")


def test_a_singular_position_stays_where_it_is():
    """Without factors of the matrix there is no correction, and no exception."""
    model = assemblies.model("spherical", "singular")
    with assemblies.matrices("sparse", begun=False):
        dims, _ = arguments.trace(model.assembly, 0.0, model.q0, model.v0, ())
        projector = front.projector(Setup(model.assembly, ga.methods.SOI2(), ga.Newton(), dims), ())
        near = projector.near(0.0, model.q0, np.zeros(dims.n), model.v0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(matrices.SaddlePattern, "factors", no_factors)
            stays = projector.near(0.0, model.q0, np.zeros(dims.n), model.v0)
    np.testing.assert_allclose(near[0], model.q0, atol=1e-14)
    np.testing.assert_allclose(stays[0], model.q0, atol=1e-14)
