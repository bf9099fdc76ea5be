"""Pictures and histograms, without a library: PNG from arrays, sizes from files, counts from numbers."""

from __future__ import annotations

import importlib
import io
import math
import os
import struct
import sys
import zlib
from typing import Any, Iterable, List, NamedTuple, Optional, Tuple


class Picture(NamedTuple):
    """An encoded image."""

    content: bytes
    format: str  # png, jpeg, gif, webp, bmp
    width: Optional[int]
    height: Optional[int]


def picture(value: Any) -> Picture:
    """An image of a path, encoded bytes, an array or tensor (H×W, H×W×1|3|4, 1|3|4×H×W), a PIL image or a figure.

    Raises TypeError or ValueError when it is none, OSError when its file cannot be read.
    """
    if isinstance(value, (str, os.PathLike)):
        with open(value, "rb") as file:
            return _encoded(file.read())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _encoded(bytes(value))
    if hasattr(value, "savefig"):  # matplotlib
        target = io.BytesIO()
        value.savefig(target, format="png")
        return _encoded(target.getvalue())
    if hasattr(value, "save") and hasattr(value, "convert") and hasattr(value, "mode"):  # PIL
        target = io.BytesIO()
        (value if value.mode in ("1", "L", "LA", "P", "RGB", "RGBA") else value.convert("RGB")).save(target, "PNG")
        return _encoded(target.getvalue())
    return _of_array(array_of(value))


def png(width: int, height: int, channels: int, pixels: bytes) -> bytes:
    """A PNG of 8-bit pixels, row by row; 1, 2, 3 or 4 channels: grey, grey and alpha, RGB, RGBA."""
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    stride = width * channels
    rows = b"".join(b"\0" + pixels[start : start + stride] for start in range(0, height * stride, stride))
    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + body


def histogram(values: Any, bins: int) -> Tuple[List[float], List[int]]:
    """(edges, counts) of the finite values; `bins` intervals of equal width between the smallest and the largest."""
    bins = max(1, min(int(bins), 4096))
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None or hasattr(values, "detach") or hasattr(values, "dtype"):
        flat = array_of(values if hasattr(values, "__len__") else list(values)).astype("float64").ravel()
        numpy = importlib.import_module("numpy")
        counts, edges = numpy.histogram(flat[numpy.isfinite(flat)], bins=bins)
        return [float(edge) for edge in edges], [int(count) for count in counts]
    return _count([number for number in _flattened(values) if math.isfinite(number)], bins)


def array_of(value: Any) -> Any:
    """A numpy array of an array or tensor of any library, wherever it lies."""
    for way in ("detach", "cpu", "numpy"):
        convert = getattr(value, way, None)
        if convert is not None:
            value = convert()
    if isinstance(value, (str, bytes)) or value is None:
        raise TypeError(f"{type(value).__name__} is no array")
    try:
        numpy: Any = importlib.import_module("numpy")
    except ImportError:
        raise TypeError(f"{type(value).__name__} needs numpy, which is not installed here") from None
    return numpy.asarray(value)


def _of_array(array: Any) -> Picture:
    if array.dtype.kind not in "buif":
        raise TypeError(f"an array of {array.dtype} is no image")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim == 3 and array.shape[2] not in (1, 2, 3, 4) and array.shape[0] in (1, 3, 4):
        array = array.transpose(1, 2, 0)  # channels first, as PyTorch has them
    if array.ndim != 3 or array.shape[2] not in (1, 2, 3, 4) or 0 in array.shape:
        raise ValueError(f"an array of shape {tuple(array.shape)} is no image; H×W, H×W×3 and H×W×4 are")
    height, width, channels = array.shape
    if array.dtype.kind == "b":
        array = array.astype("uint8") * 255
    elif array.dtype.kind == "f":
        numpy: Any = importlib.import_module("numpy")
        array = numpy.nan_to_num(array.astype("float64"))
        array = array * 255 if float(array.max()) <= 1.0 else array
        array = array.clip(0, 255).round().astype("uint8")
    elif array.dtype != "uint8":
        array = array.clip(0, 255).astype("uint8")
    return Picture(png(width, height, channels, array.tobytes()), "png", width, height)


def _encoded(content: bytes) -> Picture:
    """Format and size of an image file, from its first bytes."""
    if content.startswith(b"\x89PNG\r\n\x1a\n") and len(content) >= 24:
        width, height = struct.unpack(">II", content[16:24])
        return Picture(content, "png", width, height)
    if content.startswith(b"\xff\xd8"):
        return Picture(content, "jpeg", *_jpeg_size(content))
    if content[:6] in (b"GIF87a", b"GIF89a"):
        width, height = struct.unpack("<HH", content[6:10])
        return Picture(content, "gif", width, height)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return Picture(content, "webp", None, None)
    if content.startswith(b"BM") and len(content) >= 26:
        width, height = struct.unpack("<ii", content[18:26])
        return Picture(content, "bmp", width, abs(height))
    raise ValueError("not an image; PNG, JPEG, GIF, WebP and BMP are known")


def _jpeg_size(content: bytes) -> Tuple[Optional[int], Optional[int]]:
    place = 2
    while place + 9 < len(content) and content[place] == 0xFF:
        marker = content[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", content[place + 5 : place + 9])
            return width, height
        place += 2 + int(struct.unpack(">H", content[place + 2 : place + 4])[0])
    return None, None


def _count(numbers: List[float], bins: int) -> Tuple[List[float], List[int]]:
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    width = (high - low) / bins
    counts = [0] * bins
    for number in numbers:
        counts[min(int((number - low) / width), bins - 1)] += 1
    return [*(low + width * place for place in range(bins)), high], counts


def _flattened(values: Iterable[Any]) -> Iterable[float]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flattened(value)
        else:
            yield float(value)
