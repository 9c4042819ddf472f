"""Pictures of linear equations and modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from genalpha.statics.linear import Linear
    from genalpha.statics.modes import Modes

_MOST_CURVES = 12


def _figure(width: float, columns: int) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a plot needs matplotlib: pip install genalpha[plot]") from error
    figure = Figure(figsize=(width, 3.6), layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def _eigenvalues(ax: Any, values: np.ndarray) -> None:
    growing = values.real > 1e-9 * np.abs(values).max(initial=0.0)
    for some, color, label in ((~growing, "tab:blue", "decays or oscillates"), (growing, "tab:red", "grows")):
        if some.any():
            ax.plot(values[some].real, values[some].imag, "x", color=color, label=label)
    ax.axvline(0.0, color="black", lw=0.6)
    ax.set(xlabel="real part [1/s]", ylabel="imaginary part [rad/s]")
    ax.set_title("eigenvalues", fontsize="medium")
    ax.grid(alpha=0.2)
    ax.legend(fontsize="small")


def of_linear(linear: Linear, omega: Any = None) -> Any:
    """Eigenvalues, and the size and phase of the frequency response if there are inputs."""
    figure, axes = _figure(11.0 if linear.B.shape[1] else 4.5, 3 if linear.B.shape[1] else 1)
    values = linear.eigenvalues
    _eigenvalues(axes[0], values)
    if not linear.B.shape[1]:
        return figure
    if omega is None:
        sizes = np.abs(values)[np.abs(values) > 1e-9 * np.abs(values).max(initial=0.0)]
        low, high = (sizes.min(), sizes.max()) if sizes.size else (1.0, 1.0)
        omega = np.geomspace(low / 10, high * 10, 800)
    response = linear.frequency_response(omega)
    curves = [(i, j) for i in range(response.shape[1]) for j in range(response.shape[2])][:_MOST_CURVES]
    for i, j in curves:
        name = f"{linear.input_names[j]} → {linear.output_names[i]}"
        with np.errstate(invalid="ignore"):
            axes[1].loglog(omega, np.abs(response[:, i, j]), label=name, lw=1.2)
            phase = np.degrees(np.unwrap(np.angle(response[:, i, j])))
        axes[2].semilogx(omega, phase, lw=1.2)
    for ax, title in zip(axes[1:], ("size of the response", "phase [degrees]"), strict=True):
        ax.set_title(title, fontsize="medium")
        ax.set_xlabel("ω [rad/s]")
        ax.grid(alpha=0.2)
    axes[1].legend(fontsize="small")
    return figure


def of_modes(modes: Modes, most: int) -> Any:
    """Eigenvalues, and the shapes of the first modes over the numbers of the velocities."""
    figure, axes = _figure(9.0, 2)
    _eigenvalues(axes[0], np.concatenate([modes.eigenvalues, modes.eigenvalues.conj()]))
    for i in range(min(most, len(modes))):
        shape = modes.shapes[:, i]
        largest = shape[np.abs(shape).argmax()]
        label = f"{modes.frequency[i]:.4g} Hz, ζ = {modes.damping[i]:.3g}"
        axes[1].plot((shape / largest).real, ".-", lw=0.8, ms=3, label=label)
    axes[1].set_title("shapes", fontsize="medium")
    axes[1].set_xlabel("number of the velocity")
    axes[1].grid(alpha=0.2)
    axes[1].legend(fontsize="small")
    return figure
