"""Runs a function as soon as a module is imported, now or later: how torch gets the operators without this package
importing torch."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, Callable


# Neither class derives from importlib.abc's, whose import costs as much as this whole package.
class _Loader:
    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        # From here on the module is as if nobody had looked.
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then()


class _Finder:
    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._then)
        return spec


def after_import(name: str, then: Callable[[], None]) -> None:
    """Calls then() after the top-level module `name` has been imported; at once when it is there already."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then))
