"""Runs with sparse matrices compared with dense runs of the same assemblies, and everything they offer."""

import dataclasses
import functools
import gc
import weakref

import numpy as np
import pytest

import assemblies
import genalpha as ga
from assemblies import G, matrices, model
from conftest import problem
from genalpha.backends.sparse import front
from genalpha.backends.sparse.memory import SparseMemory
from genalpha.convergence import study

EPS = np.finfo(float).eps
FIELDS = ("q", "v", "a", "a_alpha", "lam", "psi", "lam_method", "psi_method")
METHODS = ("soi2", "hht-soi2", "index3", "stabilized", "dae-alpha", "projected")
FAST = {("sledges", "index3")}
FAST |= {("free beads", "generalized-alpha")}
FAST |= {("sledges", "projected"), ("wires", "soi2")}


def cases():
    for name in assemblies.MODELS:
        methods = {"free beads": ("generalized-alpha", "soi2"), "wires": METHODS[:4]}.get(name, METHODS)
        for method in methods:
            yield pytest.param(name, method, marks=() if (name, method) in FAST else pytest.mark.slow)


def assert_close(one, two, tolerance, rounding=None, fields=FIELDS):
    """Rows agree to a tolerance relative to the largest entry of two, plus the rounding of a field."""
    for field in fields:
        a, b = getattr(one, field), getattr(two, field)
        assert a.shape == b.shape
        if a.size:
            bound = tolerance * np.abs(b).max() + (rounding or {}).get(field, 0.0)
            np.testing.assert_allclose(a, b, rtol=0, atol=bound, err_msg=field)


# --- sparse and dense ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "method"), cases())
def test_sparse_and_dense_matrices_give_the_same_motion(name, method):
    """Steps of three sizes.

    Newton's method stops below 1e-10 of the unknowns. Rows g/(βh²) of index3 carry rounding of q,
    ε|q|/(βh²), into a_α and the method's multipliers, and h times that into v. a and λ follow from q and v.
    """
    h = np.concatenate([np.full(12, 0.01), [0.004, 0.006], np.full(5, 0.012)])
    h, end = tuple(h.tolist()), float(h.sum())
    sparse, dense = (
        assemblies.solve(name, k, end, h=np.array(h), method=method) for k in ("sparse", "dense")
    )
    assert sparse.success
    assert sparse.backend == dense.backend == "native"
    assert sparse.stats.fallback is None
    rounding = {}
    if method == "index3":
        large = 64 * EPS * (1 + np.abs(dense.q).max()) / (0.25 * min(h) ** 2)
        rounding = dict.fromkeys(("a_alpha", "lam_method"), large)
        rounding |= dict.fromkeys(("v", "a", "lam"), max(h) * large)
    assert_close(sparse, dense, 1e-10, rounding)
    for field, b in dense.extra.items() if method in ("dae-alpha", "projected") else ():
        bound = 1e-7 * np.abs(b).max(initial=0.0)  # ν and μ are small multiples of what Newton's method finds
        np.testing.assert_allclose(sparse.extra[field], b, rtol=0, atol=bound, err_msg=field)
    np.testing.assert_array_equal(sparse.t_alpha, dense.t_alpha)
    size = np.abs(dense.reactions.total).max()
    for field in ("holonomic", "nonholonomic", "total"):
        a, b = (getattr(sol.reactions, field) for sol in (sparse, dense))
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * size + rounding.get("lam", 0.0), err_msg=field)
    for field in ("position", "velocity", "nonholonomic"):
        a, b = (getattr(sol.residuals, field) for sol in (sparse, dense))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11, err_msg=field)
    iterations = [sol.stats.newton_iterations for sol in (sparse, dense)]
    assert iterations[0] == pytest.approx(iterations[1], rel=0.15)  # stages may need a few more


@pytest.mark.parametrize(
    ("name", "method"),
    [("rods", "soi2")]
    + [pytest.param("rods", method, marks=pytest.mark.slow) for method in ("dae-alpha", "projected")]
    + [pytest.param(name, "soi2", marks=pytest.mark.slow) for name in ("spherical", "revolute", "flails")]
    + [pytest.param(name, "hht-soi2", marks=pytest.mark.slow) for name in ("sledges", "beads", "wires")]
    + [pytest.param("free beads", "generalized-alpha", marks=pytest.mark.slow)],
)
def test_error_control_chooses_the_same_steps(name, method):
    sparse, dense = (assemblies.solve(name, k, 0.3, rtol=1e-4, method=method) for k in ("sparse", "dense"))
    assert sparse.success
    assert sparse.stats.steps == pytest.approx(dense.stats.steps, rel=0.1)
    assert abs(sparse.stats.rejected - dense.stats.rejected) <= 2
    for field in ("q", "v"):
        a, b = getattr(sparse, field)[-1], getattr(dense, field)[-1]
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.abs(b).max(), err_msg=field)
    assert sparse.errors.q.shape == sparse.v.shape
    assert sparse.residuals.position.max() < 1e-12


def test_atol_for_every_velocity_and_limits_of_the_step():
    """Each tolerance and limit must reach its node: other numbers change the steps."""
    n = model("rods", "sparse").v0.size
    atol = np.full(n, 1e-2)
    atol[-1] = 1e-7
    options = {"rtol": 0.0, "atol": atol, "max_step": 0.02, "method": "soi2"}
    sparse, dense = (assemblies.solve("rods", k, 0.2, **options) for k in ("sparse", "dense"))
    assert sparse.stats.steps == pytest.approx(dense.stats.steps, rel=0.1)
    assert (
        sparse.stats.steps
        > 3 * assemblies.solve("rods", "sparse", 0.2, **options | {"atol": 1e-2}).stats.steps
    )
    assert np.diff(sparse.t).max() <= 0.02 * (1 + 1e-12)


def test_args_of_a_run_replace_those_of_the_parts():
    """The equations of motion hold with these args, and the velocities follow the accelerations."""
    net = model("rods", "sparse").assembly
    (masses, _), *rest = net.args
    heavy = ((2 * masses[::-1], 1.0), *rest)
    run = functools.partial(assemblies.solve, "rods", "sparse", 0.1, h=0.01, method="hht-soi2")
    sol, own, same = run(args=heavy), run(), run(args=net.args)
    np.testing.assert_array_equal(own.q, same.q)
    assert np.abs(own.q - sol.q).max() > 1e-3
    t, q, v, a, lam, psi = (getattr(sol, name)[5] for name in ("t", "q", "v", "a", "lam", "psi"))
    np.testing.assert_allclose(net.M(t, q, heavy) @ a, net.f(t, q, v, lam, psi, heavy), atol=1e-11)
    np.testing.assert_allclose((sol.v[6] - sol.v[4]) / 0.02, a, atol=0.01 * np.abs(a).max())


def test_small_assemblies_use_dense_matrices(monkeypatch):
    begun, begin = [], front.begin
    monkeypatch.setattr(front, "begin", lambda *args: (begun.append(1), begin(*args))[1])
    assembly, q0, v0 = model("sledges", "dense")
    assert len(v0) < front.DENSE
    ga.solve(assembly, (0.0, 0.1), q0, v0, h=0.01, method="index3")
    assert not begun


# --- accuracy -----------------------------------------------------------------------------------------


@functools.cache
def chain():
    """The named problem as an assembly."""
    return dataclasses.replace(problem("body-chain"), system=model("spherical", "sparse").assembly, args=())


@pytest.mark.parametrize("method", ["soi2", pytest.param("hht-soi2", marks=pytest.mark.slow)])
def test_the_order_is_two_for_every_component(method):
    with matrices("sparse"):
        result = study(chain(), method, h=[8e-3, 4e-3, 2e-3, 1e-3], t_end=0.2)
    assert {"q", "v", "a", "lam"} <= set(result.slopes)
    for component, slope in result.slopes.items():
        assert slope == pytest.approx(2.0, abs=0.1), f"{component}\n{result.table()}"


def test_constraints_hold_to_rounding_and_energy_is_bounded():
    p = chain()
    sol = assemblies.solve("spherical", "sparse", 2.0, h=4e-3, method="soi2", save=10)
    assert sol.residuals.position.max() < 1e-13
    assert sol.residuals.velocity.max() < 1e-11
    energy = np.array([p.energy(t, q, v, G) for t, q, v in zip(sol.t, sol.q, sol.v, strict=True)])
    scale = 0.5 * np.sum(sol.v[0] ** 2)
    assert np.abs(energy - energy[0]).max() < 0.01 * scale


@pytest.mark.slow
def test_a_chain_at_rounding_keeps_its_matrix():
    """The matrix amplifies rounding, so that corrections stop shrinking above the tolerance."""
    assembly, q0, v0 = assemblies.revolute(40)
    with matrices("sparse"):
        sol, full = (
            ga.solve(assembly, (0.0, 0.3), q0, v0, h=1e-3, method="index3", newton=ga.Newton(policy))
            for policy in ("modified", "full")
        )
    assert sol.stats.rounding_limited > 250
    assert sol.stats.factorizations < 130  # it was 218
    assert sol.stats.newton_iterations < 1200  # it was 1613
    assert sol.residuals.position.max() < 4 * max(full.residuals.position.max(), EPS * np.abs(q0).max())
    np.testing.assert_allclose(sol.q, full.q, rtol=0, atol=1e-10 * np.abs(q0).max())


@pytest.mark.slow
def test_accuracy_is_reached_and_known():
    exact = problem("body-chain").reference
    sol = assemblies.solve("spherical", "sparse", 0.5, accuracy=1e-6)
    assert sol.success
    size = np.abs(sol.v).max(axis=0)
    size = np.maximum(size, 0.01 * np.sqrt(np.mean(size**2)))
    true = np.sqrt(np.mean(((sol.v - np.asarray(exact(sol.t).v)) / size) ** 2, axis=1)).max()
    assert true < 1.5e-6
    assert 0.2 * true < sol.error.norm.max() * 1e-6 <= 1e-6


# --- states and output --------------------------------------------------------------------------------

GIVEN = {"h": 0.01, "method": "hht-soi2"}
CONTROLLED = {"rtol": 1e-3, "method": "soi2"}
TIMES = np.linspace(0.013, 0.17, 9)
OUTPUTS = [GIVEN, CONTROLLED, {**GIVEN, "t_eval": TIMES}, {**CONTROLLED, "save": 4}]
rods = functools.partial(assemblies.solve, "rods", "sparse")


@pytest.mark.parametrize("options", [GIVEN, CONTROLLED])
def test_a_run_goes_on_from_its_state_with_the_same_bits(options, tmp_path):
    whole = rods(**options)
    for stop in (1, 9):
        first = rods(**options, callback=lambda s: True, callback_every=stop)
        assert first.stats.steps == stop
        first.state.save(tmp_path / "state")
        for state in (first.state, ga.load_state(tmp_path / "state")):
            second = rods(**options, state=state)
            for name in ("t", "t_alpha", *FIELDS):
                parts = np.concatenate([getattr(first, name), getattr(second, name)[1:]])
                np.testing.assert_array_equal(parts, getattr(whole, name), name)
            total = first.stats.newton_iterations + second.stats.newton_iterations
            assert total == whole.stats.newton_iterations


@pytest.mark.parametrize("change", [{"h": 0.005, "method": "hht-soi2"}, {"rtol": 1e-5, "method": "soi2"}])
def test_a_run_goes_on_with_other_steps(change):
    """The second half needs a start of its own, and differs by the error of the method."""
    whole = rods(**CONTROLLED | {"rtol": 1e-6}, save="final")
    for options in (GIVEN, CONTROLLED):
        half = rods(t_end=0.1, **options)
        second = rods(t_span=(0.1, 0.2), state=half.state, save="final", **change)
        assert second.success
        np.testing.assert_allclose(second.q[-1], whole.q[-1], atol=1e-3)
        np.testing.assert_allclose(second.lam[-1], whole.lam[-1], atol=0.02 * np.abs(whole.lam).max())


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_from_a_state_of_the_other_kind_of_matrices_a_run_starts_anew(kind):
    """They keep different variables. So the run starts from q and v, and differs by the method's error."""
    other = {"sparse": "dense", "dense": "sparse"}[kind]
    state = assemblies.solve("rods", other, 0.1, **GIVEN).state
    rest = assemblies.solve("rods", kind, t_span=(0.1, 0.2), state=state, **GIVEN)
    whole = assemblies.solve("rods", kind, 0.2, **GIVEN)
    np.testing.assert_array_equal(rest.q[0], state.q)
    np.testing.assert_allclose(rest.q[-1], whole.q[-1], atol=1e-4)


@pytest.mark.parametrize("options", OUTPUTS)
def test_an_interrupted_run_goes_on_from_its_file(options, tmp_path):
    class Interrupted(Exception):
        pass

    def break_off(state):
        raise Interrupted

    whole, path = rods(**options), tmp_path / "run"
    for every in (5, 6):
        with pytest.raises(Interrupted):
            rods(**options, checkpoint=path, checkpoint_every=0.0, callback=break_off, callback_every=every)
    sol = rods(**options, checkpoint=path)
    for name in ("t", *FIELDS):
        np.testing.assert_array_equal(getattr(sol, name), getattr(whole, name), name)
    assert sol.stats == whole.stats


@pytest.mark.parametrize("options", [GIVEN, CONTROLLED])
def test_output_at_chosen_times_and_of_chosen_steps(options):
    whole = rods(**options)
    at = rods(**options, t_eval=TIMES, dense_output=True)
    assert (at.t == TIMES).all()
    expected = whole(TIMES)
    for name in ("q", "v", "lam"):
        np.testing.assert_allclose(getattr(at, name), getattr(expected, name), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(at(0.05).q, whole(0.05).q)
    assert at.residuals.position.max() < 1e-6
    steps = whole.stats.steps
    for save, index in (("final", [steps]), (7, [*range(0, steps, 7), steps])):
        sol = rods(**options, save=save)
        for name in ("t", *FIELDS):
            np.testing.assert_array_equal(getattr(sol, name), getattr(whole, name)[index], name)
        assert sol.stats == whole.stats
    ends = rods(**options, save=(7, {"q": [0, 5], "a": [5], "lam": [2]}))  # of nodes, and of multipliers
    by_node = lambda x: model("rods", "sparse").assembly.by_node(x)[index]
    np.testing.assert_array_equal(ends.q, by_node(whole.q)[:, [0, 5]].reshape(len(index), -1))
    np.testing.assert_array_equal(ends.a, by_node(whole.a)[:, 5])
    np.testing.assert_array_equal(ends.lam, whole.lam[index][:, [2]])
    with pytest.raises(ValueError, match="q in save asks for node 6, but there are 6"):
        rods(**options, save={"q": [6]})


def test_dense_output_is_that_of_the_dense_run():
    sparse, dense = (assemblies.solve("rods", kind, **GIVEN)(TIMES) for kind in ("sparse", "dense"))
    for name in ("q", "v", "a", "lam"):
        one, two = getattr(sparse, name), getattr(dense, name)
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-9 * np.abs(two).max(), err_msg=name)


def test_a_run_leaves_no_memory_behind(new_garbage):
    """The memory of a large run is freed with its solution, without waiting for the garbage collector."""
    rods(**GIVEN, save="final")
    gc.collect()
    with pytest.MonkeyPatch.context() as patch:
        made = []
        kept = lambda self, *args: (made.append(weakref.ref(self)), begin(self, *args))[1]
        begin = SparseMemory.__init__
        patch.setattr(SparseMemory, "__init__", kept)
        rods(**GIVEN, save="final")
    assert [one() for one in made] == [None]


def test_a_callback_sees_the_steps():
    seen = []
    whole = rods(**GIVEN, callback=lambda s: seen.append((s.t, s.q)), callback_every=4)
    assert [t for t, _ in seen] == pytest.approx(whole.t[4::4])
    np.testing.assert_array_equal([q for _, q in seen], whole.q[4::4])


def test_parts_read_the_end_of_a_step_from_nodes():
    """Exponential maps are computed by nodes alone, tangent maps only for matrices."""
    assembly, q0, v0 = assemblies.revolute()
    with matrices("sparse"):
        ga.solve(assembly, (0.0, 0.01), q0, v0, h=1e-3)
    (made,) = (x for x in assembly._programs.values() if isinstance(x, front.Made))
    nodes, parts = ([kind for kind in made.code.kinds if kind.is_node is which] for which in (True, False))
    (joints,) = (kind for kind in parts if kind.model.dims.m and kind.model.dims.n == 12)
    assert joints.needs("residual0") == ["states"]
    assert joints.needs("matrix") == ["states", "tangents"]
    computed = lambda of: {of.nodes[i].op for kernel in of.kernels.values() for i in kernel.body}
    assert "sqrt" not in computed(joints.program)  # of the angle of an increment
    assert "sqrt" in computed(nodes[0].program)
