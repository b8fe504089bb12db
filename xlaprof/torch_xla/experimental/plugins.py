"""``torch_xla.experimental.plugins``: other devices, by libraries of PJRT, which jax loads."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from typing import Any

from jax._src import xla_bridge

from xlaprof.runtime.tape import tapes
from xlaprof.torch_xla import runtime


class DevicePlugin:
    """A kind of device: base class of plugins."""

    def library_path(self) -> str:
        """The library with PJRT's interface."""
        raise NotImplementedError(f"{type(self).__name__} has no library_path")

    def client_create_options(self) -> dict[str, Any]:
        """Options that the library takes."""
        return {}


_plugins: dict[str, DevicePlugin] = {}


def use_dynamic_plugins() -> None:
    """Set PJRT_DYNAMIC_PLUGINS. Raises ``RuntimeError`` where a device is in use already."""
    if tapes.existing() and os.environ.get("PJRT_DYNAMIC_PLUGINS") != "1":
        raise RuntimeError("Can't enable dynamic plugins after XLA runtime is initialized")
    os.environ["PJRT_DYNAMIC_PLUGINS"] = "1"


def using_dynamic_plugins() -> bool:
    """Is PJRT_DYNAMIC_PLUGINS set, and the device none of the CPU's?"""
    return os.environ.get("PJRT_DYNAMIC_PLUGINS") == "1" and runtime.device_type() != "CPU"


def register_plugin(name: str, device_plugin: DevicePlugin) -> None:
    """Have jax load the plugin's library, for ``PJRT_DEVICE=name``. Raises ``RuntimeError`` where that fails."""
    path = device_plugin.library_path()
    try:
        xla_bridge.register_plugin(name.lower(), library_path=path, options=device_plugin.client_create_options())
    except Exception as error:
        raise RuntimeError(f"{path} is no plugin for PJRT_DEVICE={name}: {str(error).splitlines()[0]}") from error
    _plugins[name.upper()] = device_plugin


def default() -> DevicePlugin:
    """The plugin of the chosen device. Raises ``KeyError`` where it has none."""
    return _plugins[str(runtime.device_type())]


def register_installed_plugins() -> None:
    """Register the plugins that installed packages name under the entry point ``torch_xla.plugins``."""
    for entry in entry_points(group="torch_xla.plugins"):
        register_plugin(entry.name, entry.load()())
