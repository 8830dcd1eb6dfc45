"""The processor and the graphics cards of this machine, without importing torch."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import re
import resource
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

BF16_ON_CPU = ("avx512_bf16", "amx_bf16", "amx_tile")  # flags of /proc/cpuinfo
INT8_ON_CPU = ("avx512_vnni", "avx_vnni", "asimddp")
WIDE_ON_CPU = ("avx2", "avx512f", "amx_int8", "sve")  # other flags that decide how fast it is
BF16_ON_CARD = 8  # the first major compute capability that multiplies it
_MAJOR, _MINOR = 75, 76  # numbers of attributes, <cuda.h>


@dataclass(frozen=True)
class Card:
    """A graphics card as CUDA's driver describes it."""

    name: str
    capability: tuple[int, int]
    bytes: int


def count_processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def name_machine() -> str:
    """A short name of this machine, which no other machine on the same file system has."""
    known = f"{platform.node()}/{uuid.getnode()}"
    return hashlib.blake2b(known.encode(), digest_size=4).hexdigest()


def describe_cpu() -> str:
    """The name of the processor, if the system states it."""
    return _read_cpu_line("model name") or platform.processor() or platform.machine()


def cpu_multiplies_bf16() -> bool:
    """AVX512-BF16 or AMX: elsewhere bf16 is emulated and slower than fp32."""
    return bool({*BF16_ON_CPU} & {*list_cpu_flags()})


def cpu_sums_int8() -> bool:
    """VNNI or its counterpart on ARM: elsewhere two products of 8 bits overflow a sum of 16."""
    return bool({*INT8_ON_CPU} & {*list_cpu_flags()})


def list_cpu_flags() -> list[str]:
    """The flags of this processor that decide how fast it multiplies matrices."""
    found = {*f"{_read_cpu_line('flags')} {_read_cpu_line('Features')}".split()}
    return [flag for flag in (*WIDE_ON_CPU, *INT8_ON_CPU, *BF16_ON_CPU) if flag in found]


def measure_memory() -> int:
    """Bytes that this process holds now, its libraries included; on systems that do not say it,
    the peak so far.
    """
    return _read_status("VmRSS") or measure_peak_memory()


def measure_peak_memory() -> int:
    """Bytes that this process has held at most since it began, its libraries included."""
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2) of either system
    # getrusage(2) of Linux counts what the process before exec(2) has held, too
    return _read_status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def find_memory() -> int:
    """Bytes of memory that this machine, or the group of processes that this one is in, may use."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = pages if allowed == resource.RLIM_INFINITY else min(pages, allowed)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return pages
    return min(pages, int(limit)) if limit.isdigit() else pages


def _read_status(name: str) -> int:
    """The bytes under a name in /proc/self/status; 0 if it is missing."""
    try:
        with open("/proc/self/status", encoding="utf-8") as file:
            lines = (line.split() for line in file if line.startswith(f"{name}:"))
            return next((1024 * int(words[1]) for words in lines), 0)
    except OSError:
        return 0


def find_cuda_of_torch() -> str:
    """The version of CUDA that torch was built for, read from its files; "" of a build without."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    file = Path(spec.origin).with_name("version.py")
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    found = re.search(r"^cuda\b.*?=\s*['\"]([\d.]+)", text, re.MULTILINE)
    return found[1] if found else ""


def find_cards() -> list[Card]:
    """The graphics cards that CUDA's driver shows to this process; none without a driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    return [_describe_card(cuda, number) for number in range(count.value)]


def _describe_card(cuda: ctypes.CDLL, number: int) -> Card:
    name, size = ctypes.create_string_buffer(256), ctypes.c_size_t()
    version = (ctypes.c_int(), ctypes.c_int())
    cuda.cuDeviceGetName(name, 256, number)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(size), number)
    for place, attribute in zip(version, (_MAJOR, _MINOR), strict=True):
        cuda.cuDeviceGetAttribute(ctypes.byref(place), attribute, number)
    return Card(name.value.decode(), (version[0].value, version[1].value), size.value)


def _read_cpu_line(name: str) -> str:
    """The value of a name for the first core in /proc/cpuinfo; "" if it is missing."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = (line.partition(":") for line in file if line.startswith(name))
            return next((value.strip() for _, _, value in lines), "")
    except OSError:
        return ""
