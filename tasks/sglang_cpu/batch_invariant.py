"""Batch-invariant matrix products on a CPU: a row of the result does not depend on the rows beside it.

Intel MKL, under one fixed code path (`MKL_CBWR=AVX2`), sums the K products of every element in the same order for
any number of rows from 4 up; for 1 to 3 rows it takes other kernels. So fewer rows are padded to 4. Found by
measurement, and held by tests: MKL does not document it.
"""

import torch
from torch.nn.functional import pad

MIN_ROWS = 4
_overrides: list[torch.library.Library] = []  # PyTorch drops an override when its library is collected.


def mm(a_mk: torch.Tensor, b_kn: torch.Tensor) -> torch.Tensor:
    """Matrix product [m, k] x [k, n] -> [m, n] whose rows are the same bits for any m."""
    rows = a_mk.shape[0]
    a_mk = _padded(a_mk)
    out_mn = a_mk.new_empty(a_mk.shape[0], b_kn.shape[1])
    return torch.mm(a_mk, b_kn, out=out_mn)[:rows]  # the out= form keeps PyTorch's kernel


def addmm(
    bias: torch.Tensor, a_mk: torch.Tensor, b_kn: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """Return beta * bias + alpha * a_mk x b_kn, as `torch.addmm`, with rows that are the same bits for any m."""
    return mm(a_mk, b_kn).mul_(alpha).add_(bias, alpha=beta)


def enable() -> None:
    """Replace PyTorch's matrix products in this process, once and for good."""
    if _overrides:
        return
    library = torch.library.Library("aten", "IMPL")
    library.impl("mm", mm, "CPU")
    library.impl("addmm", addmm, "CPU")
    _overrides.append(library)


def _padded(a_mk: torch.Tensor) -> torch.Tensor:
    return a_mk if a_mk.shape[0] >= MIN_ROWS else pad(a_mk, (0, 0, 0, MIN_ROWS - a_mk.shape[0]))
