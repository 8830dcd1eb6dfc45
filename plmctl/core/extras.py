"""Optional libraries: their import, and the command that installs a missing one."""

from __future__ import annotations

import importlib
import platform
import shlex
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from plmctl import __version__
from plmctl.core.errors import UsageError


class Extra(NamedTuple):
    """Libraries that only some commands need."""

    libraries: tuple[str, ...]  # as pyproject.toml names them
    purpose: str


EXTRAS = {
    "chinese": Extra(("jieba",), "Chinese words: data.segment=jieba, tokenizer.segment=jieba"),
    "roformer": Extra(("rjieba",), "words of Chinese text in the tokenizer of RoFormer"),
    "moses": Extra(("sacremoses",), "the tokenizers of XLM and FlauBERT"),
    "zstd": Extra(("zstandard",), "text in .zst files"),
    "retrieval": Extra(("bm25s",), "finding passages by BM25"),
    "faiss": Extra(("faiss-cpu",), "searching vectors: task.index=faiss"),
    "generation": Extra(("sacrebleu",), "BLEU and chrF of tasks that write text"),
    "parquet": Extra(("pyarrow",), "text and tables in .parquet files"),
    "datasets": Extra(("datasets",), "data sets of Hugging Face: data.path=hf:<name>"),
    "remote": Extra(("fsspec", "aiohttp", "s3fs", "gcsfs"), "tokens at a URL: data.path=s3://..."),
    "hub": Extra(("huggingface_hub",), "models pushed to the hub: convert --push"),
    "elmo": Extra(("h5py",), "published weights of ELMo"),
    "wandb": Extra(("wandb",), "numbers of runs at Weights & Biases: run.trackers=[wandb]"),
    "mlflow": Extra(("mlflow",), "numbers of runs in MLflow: run.trackers=[mlflow]"),
    "trackio": Extra(("trackio",), "numbers of runs in Trackio: run.trackers=[trackio]"),
    "onnx": Extra(("onnx", "onnxruntime", "onnxscript"), "answers by ONNX Runtime: runtime=onnx"),
    "openvino": Extra(("openvino", "nncf"), "answers by OpenVINO: runtime=openvino"),
    "ctranslate2": Extra(("ctranslate2",), "texts by CTranslate2: runtime=ctranslate2"),
    "serve": Extra(
        ("fastapi", "uvicorn", "httptools", "prometheus-client"), "answers over HTTP: plmctl serve"
    ),
    "submitit": Extra(("submitit",), "runs and jobs on a cluster of Slurm: launcher=slurm"),
    "figures": Extra(("vl-convert-python",), "pictures as PNG and PDF: report --figures"),
    "optuna": Extra(
        ("optuna", "cmaes"), "searches by models of the space: strategy=tpe, cmaes, gp"
    ),
}


def require_library(module: str, extra: str, what: str, *, otherwise: str = "") -> Any:
    """Import the library for `what`, one of those under `extra` in pyproject.toml; UsageError with
    the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        fix = install_command(extra) + (f", or {otherwise}" if otherwise else "")
        raise UsageError(f"{what} needs {module.partition('.')[0]}\n  fix: {fix}") from error


def describe_versions() -> str:
    """`plmctl 0.2.0, torch 2.13.0, Python 3.11.7`; neither is imported for it."""
    torch = find_version("torch") or "(not installed)"
    return f"plmctl {__version__}, torch {torch}, Python {platform.python_version()}"


def find_version(package: str) -> str:
    """The version of an installed package, which is not imported for it; "" where it is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def install_command(extra: str) -> str:
    """The command that installs the libraries under `extra`, even if plmctl is not on PyPI."""
    try:
        required = metadata.requires("plmctl") or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return shlex.join(
            ["pip", "install", "-e", f"{Path(__file__).resolve().parents[2]}[{extra}]"]
        )
    pairs = [line.partition(";") for line in required]
    names = [
        name.strip()
        for name, _, marker in pairs
        if marker.replace('"', "'").strip() == f"extra == '{extra}'"
    ]
    # metadata of an older installation do not know a new extra
    return shlex.join(["pip", "install", *(names or EXTRAS[extra].libraries)])
