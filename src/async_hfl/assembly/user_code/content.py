"""The content of an object made in Python, as a digest: the same for the same code and data, in whatever process.

Code counts as it is compiled, with the values of the variables that it refers to, so that a comment changes nothing and
a constant does. What an installed library defines counts by its name. Nothing is pickled: `__reduce_ex__` only lists
the parts of an object.
"""

from __future__ import annotations

import dis
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_PROCESS = os.urandom(8).hex()
_SKIPPED = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__static_attributes__", "_abc_impl"}
    | {"__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__dataclass_fields__"}
)
"""Attributes of a class that say nothing about its behaviour, or repeat others."""
_KIND = 0x3FF
"""The flags of code that say what kind of function it is; others say how it was compiled."""
_LIBRARIES = ("site-packages", "dist-packages")


class Content:
    """The digest of an object, and those of its parts that cannot be compared with the same ones of another process."""

    def __init__(self, value: object) -> None:
        self._sha = hashlib.sha256()
        self._seen: dict[int, tuple[int, object]] = {}
        """Order of discovery of an object and the object itself, so that its id is not used again meanwhile."""
        self.opaque: list[str] = []
        """The types of parts that can only be told apart within this process, such as an open file."""
        self._add(value)
        self.digest = self._sha.hexdigest()

    def _write(self, *tokens: object) -> None:
        for token in tokens:
            text = str(token).encode()
            self._sha.update(f"{len(text)}:".encode() + text)

    def _add(self, value: Any) -> None:
        if value is None or isinstance(value, bool | int | float | complex | str | bytes) or value is Ellipsis:
            self._write(type(value).__qualname__, repr(value))
        elif isinstance(value, tuple):
            self._many(type(value).__qualname__, value)
        elif isinstance(value, frozenset):
            self._write("frozenset", *sorted(Content(member).digest for member in value))
        elif isinstance(value, CodeType):
            self._code(value)
        elif isinstance(value, ModuleType):
            self._module(value)
        elif id(value) in self._seen:
            self._write("again", self._seen[id(value)][0])
        else:
            self._seen[id(value)] = (len(self._seen), value)
            self._part(value)

    def _part(self, value: Any) -> None:
        if isinstance(value, MethodType):
            self._many("method", (value.__func__, value.__self__))
        elif isinstance(value, type | FunctionType | BuiltinFunctionType) and is_library(value.__module__):
            self._write("library", value.__module__, value.__qualname__)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, property):
            self._many("property", (value.fget, value.fset, value.fdel))
        elif isinstance(value, staticmethod | classmethod):
            self._many(type(value).__qualname__, (value.__func__,))
        elif isinstance(value, list):
            self._many("list", value)
        elif isinstance(value, set):
            self._write("set", *sorted(Content(member).digest for member in value))
        elif type(value) is dict:
            self._items("dict", value)
        elif (array := _as_array(value)) is not None:
            self._array(array)
        elif isinstance(getattr(value, "__wrapped__", None), FunctionType):  # jax.jit, functools.cache
            self._write("wrapped", type(value).__qualname__)
            self._add(value.__wrapped__)
        else:
            self._reduced(value)

    def _many(self, kind: str, values: Any) -> None:
        self._write(kind, len(values))
        for value in values:
            self._add(value)

    def _items(self, kind: str, values: Mapping[Any, Any]) -> None:
        self._write(kind, len(values))
        for key, value in values.items():
            self._add(key)
            self._add(value)

    def _array(self, array: np.ndarray[Any, Any]) -> None:
        if array.dtype.hasobject:
            self._write("array", array.shape)
            self._add(array.tolist())
            return
        self._write("array", array.dtype.str, array.shape)
        self._sha.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def _code(self, code: CodeType) -> None:
        self._write("code", code.co_name, code.co_flags & _KIND, code.co_names, code.co_varnames, code.co_freevars)
        self._sha.update(code.co_code)
        self._many("constants", code.co_consts)

    def _function(self, function: FunctionType) -> None:
        self._write("function", function.__qualname__)
        self._code(function.__code__)
        self._many("defaults", function.__defaults__ or ())
        self._items("keywords", function.__kwdefaults__ or {})
        self._items("attributes", vars(function))
        self._many("closure", tuple(cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)))
        known = function.__globals__
        self._items("globals", {name: known[name] for name in sorted(_globals(function.__code__)) if name in known})

    def _class(self, value: type) -> None:
        self._write("class", value.__qualname__)
        self._many("bases", value.__bases__)
        plain = {key: part for key, part in vars(value).items() if key not in _SKIPPED and not _is_slot(part)}
        self._items("attributes", plain)

    def _module(self, module: ModuleType) -> None:
        self._write("module", module.__name__)
        if is_library(module.__name__) or id(module) in self._seen:
            return
        self._seen[id(module)] = (len(self._seen), module)
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).is_file():
            self._sha.update(Path(file).read_bytes())
        for value in list(vars(module).values()):  # the user's own modules that it imports, or imports from
            other = (
                value if isinstance(value, ModuleType) else sys.modules.get(getattr(value, "__module__", None) or "")
            )
            if isinstance(other, ModuleType) and other is not module and not is_library(other.__name__):
                self._module(other)

    def _reduced(self, value: Any) -> None:
        """Add the parts from which a copy would be made."""
        kind = type(value)
        self._write("object", kind.__module__, kind.__qualname__)
        try:
            parts = value.__reduce_ex__(4)
        except Exception:  # of the user's class or of a library's: it says that the object cannot be copied
            self.opaque.append(f"{kind.__module__}.{kind.__qualname__}")
            self._write("opaque", _PROCESS, id(value))
            return
        if isinstance(parts, str):
            self._write("global", parts)
            return
        make, arguments, *rest = parts
        for part in (make, arguments, *(list(part) if isinstance(part, Iterator) else part for part in rest)):
            self._add(part)


def is_library(module: str | None) -> bool:
    """True if a module belongs to Python, to this package or to an installed one, so that its name says what it is."""
    if module is None or module == "__main__":
        return False
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "async_hfl":
        return True
    found = sys.modules.get(module)
    if found is None:
        return False
    file = getattr(found, "__file__", None)
    return file is None or any(part in _LIBRARIES for part in Path(file).parts)


def _globals(code: CodeType) -> set[str]:
    """Return the global variables that a function refers to. `co_names` also has the names of attributes."""
    names = {
        str(step.argval) for step in dis.get_instructions(code) if step.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME"))
    }
    return names.union(*(_globals(part) for part in code.co_consts if isinstance(part, CodeType)))


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # a variable that is assigned later
        return False
    return True


def _is_slot(value: object) -> bool:
    return type(value).__name__ in ("member_descriptor", "getset_descriptor")


def _as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return arrays of numpy, JAX and PyTorch as arrays of numpy; None for other objects."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if isinstance(value, type) or not (hasattr(value, "__array__") and hasattr(value, "dtype")):
        return None
    detach: Callable[[], Any] | None = getattr(value, "detach", None)
    try:
        return np.asarray(value if detach is None else detach().cpu())
    except (TypeError, ValueError, RuntimeError):  # a type that numpy does not have
        return None
