"""The entries of the operator database that are not lowered whole, each with its reason. No other may be.

The table is strict: an entry that starts to work without its exception fails the sweep until it is taken out.
"""

from __future__ import annotations

#: entry -> why some of its samples run on the CPU (and are right there)
FALLBACK: dict[str, str] = {
    "linalg.eig": "eigenvalues of a general matrix: XLA has no such computation, jax makes it on the CPU too",
    "linalg.eigvals": "eigenvalues of a general matrix: XLA has no such computation, jax makes it on the CPU too",
    "linalg.ldl_factor": "LDL with Bunch and Kaufman's pivots: XLA has no such computation",
    "linalg.ldl_factor_ex": "LDL with Bunch and Kaufman's pivots: XLA has no such computation",
    "linalg.ldl_solve": "solves with LAPACK's packed LDL factors: XLA has no such computation",
    "torch._scaled_mm": "products of 8-bit floats with scales have no lowering yet",
    "torch._scaled_mm_v2": "products of 8-bit floats with scales have no lowering yet",
}

#: entry -> why it is refused, in one clear error
REFUSED: dict[str, str] = {
    "chalf": "complex32 is no dtype of XLA",
    "sparse.mm.reduce": "its matrix has a sparse layout, which no value of XLA has",
    "sparse.sampled_addmm": "its matrix has a sparse layout, which no value of XLA has",
    "to_sparse": "its result has a sparse layout, which no value of XLA has",
}
