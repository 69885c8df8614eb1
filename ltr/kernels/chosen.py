"""The form and the implementation that the current context chose: see `ltr.kernels.choice`.

`FORM` and `IMPLEMENTATION` are context variables, so a choice holds in its thread or asyncio task
alone. `torch.compile` cannot trace `ContextVar.get`. Therefore code that it traces reads `form`, an
attribute of this module: a compiled graph is guarded by its value, and is traced again for another.
"""

from contextvars import ContextVar
from typing import Literal

from ltr.kernels.interface import Implementation

Form = Literal["dense", "sums"]

FORM: ContextVar[Form | None] = ContextVar("FORM", default=None)
IMPLEMENTATION: ContextVar[Implementation | None] = ContextVar("IMPLEMENTATION", default=None)


def __getattr__(name: str) -> Form | None:
    if name == "form":
        return FORM.get()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
