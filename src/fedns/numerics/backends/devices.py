"""Backends by the device that they run on."""

from __future__ import annotations

from importlib.util import find_spec

from fedns.numerics.backend import Backend
from fedns.numerics.errors import BackendError

DEVICES = ("cpu", "cuda")


def cpu() -> Backend:
    """Return the passes on this machine's processors."""
    _require_numba()
    from fedns.numerics.cpu.backend import CpuBackend

    return CpuBackend()


def gpu() -> Backend:
    """Return the passes on this machine's GPU, which must be one for CUDA."""
    try:
        from fedns.numerics.gpu.backend import GpuBackend, device_name
    except ImportError:
        raise BackendError("device 'cuda' needs CuPy: pip install 'fedns[gpu]', or use device 'cpu'") from None
    device_name()
    return GpuBackend()


def on_device(name: str) -> Backend:
    """Return the passes on a device: cpu or cuda."""
    if name not in DEVICES:
        raise BackendError(f"device must be {' or '.join(DEVICES)}, got {name!r}")
    return gpu() if name == "cuda" else cpu()


def default() -> Backend:
    """Return the processor's passes, or the GPU's on a machine without numba."""
    return cpu() if find_spec("numba") else gpu()


def cpu_softmax(classes: int, reference: bool) -> Backend:
    """Return the passes for the softmax of several margins per row on this machine's processors."""
    _require_numba()
    from fedns.numerics.cpu.softmax.backend import SoftmaxBackend

    return SoftmaxBackend(classes, reference)


def _require_numba() -> None:
    if find_spec("numba") is None:
        raise BackendError("passes over rows on the processor need numba: pip install numba")
