"""What the GPUs of this machine do, asked of NVIDIA's management library. Silent where there is none.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional, Tuple

LIBRARY = "libnvidia-ml.so.1"
GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU
MILLIWATTS = 1000.0


class Gpus:
    """The devices that a replica may use. `visible` is its CUDA_VISIBLE_DEVICES; None means all.

    A device is called by the number that nvidia-smi shows: NVML counts in the order of the bus, and so does CUDA with
    CUDA_DEVICE_ORDER=PCI_BUS_ID or when all devices are of one kind.
    """

    def __init__(self, visible: Optional[str] = None, library: str = LIBRARY) -> None:
        self.devices: List[Tuple[int, Any]] = []  # (number, handle)
        self._library: Any = None
        if visible is not None and not visible.strip():
            return
        try:
            found = ctypes.CDLL(library)
            if found.nvmlInit_v2() != 0:
                return
        except (OSError, AttributeError):
            return
        self._library = found
        self.devices = _chosen(self._all(), visible)

    def read(self) -> Dict[str, float]:
        """`{"gpu0/utilization": 93.0, "gpu0/memory": 1.2e9, …}`: percent, bytes, watts, degrees. Not what fails."""
        found: Dict[str, float] = {}
        for number, handle in self.devices:
            rates, memory = _Rates(), _Memory()
            watts, degrees = ctypes.c_uint(), ctypes.c_uint()
            if self._ask("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(rates)):
                found[f"gpu{number}/utilization"] = float(rates.gpu)
            if self._ask("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory)):
                found[f"gpu{number}/memory"] = float(memory.used)
            if self._ask("nvmlDeviceGetPowerUsage", handle, ctypes.byref(watts)):
                found[f"gpu{number}/power"] = watts.value / MILLIWATTS
            if self._ask("nvmlDeviceGetTemperature", handle, GPU_SENSOR, ctypes.byref(degrees)):
                found[f"gpu{number}/temperature"] = float(degrees.value)
        return found

    def close(self) -> None:
        if self._library is not None:
            self._ask("nvmlShutdown")
            self._library, self.devices = None, []

    def _all(self) -> List[Tuple[int, str, Any]]:
        """(number, uuid, handle) of every device."""
        count = ctypes.c_uint()
        if not self._ask("nvmlDeviceGetCount_v2", ctypes.byref(count)):
            return []
        found = []
        for number in range(count.value):
            handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            if self._ask("nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(handle)):
                told = self._ask("nvmlDeviceGetUUID", handle, name, len(name))
                found.append((number, name.value.decode("ascii", "replace") if told else "", handle))
        return found

    def _ask(self, name: str, *arguments: Any) -> bool:
        """Whether the library knows the question and has answered it."""
        function = getattr(self._library, name, None)
        return function is not None and function(*arguments) == 0


class _Rates(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def _chosen(devices: List[Tuple[int, str, Any]], visible: Optional[str]) -> List[Tuple[int, Any]]:
    """CUDA reads its list up to the first word that names no device; a uuid may be shortened."""
    if visible is None:
        return [(number, handle) for number, _, handle in devices]
    found: List[Tuple[int, Any]] = []
    for word in (word.strip() for word in visible.split(",")):
        match = [
            (number, handle)
            for number, uuid, handle in devices
            if (word.isdigit() and int(word) == number) or (word.startswith("GPU-") and uuid.startswith(word))
        ]
        if not match:
            break
        found.append(match[0])
    return found
