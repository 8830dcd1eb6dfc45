"""Small real text and small token directories, made once a session."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import typer.testing
from _pytest import logging as logging_plugin
from _pytest.runner import runtestprotocol

SHOWN = 0.1  # seconds of a fixture that are worth a line

# where no bytecode may lie beside the sources, each process that a test starts would compile torch
# anew: two of its four seconds
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    bytecode = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(bytecode))

torch.set_num_threads(1)  # reproducible, and other tests may run beside

# what is imported while tests are collected stays, and looking through it again and again for
# garbage would take a quarter of the time
gc.disable()

# a killed process loses nothing that it wrote, only a machine without power does, which no test is:
# files need not wait for the disk, 5 ms each
os.fsync = lambda handle: None

# a test of a command would spend a tenth of its time with making all commands anew
typer.testing._get_command = functools.cache(typer.testing._get_command)


# each export to ONNX would read the source of all of its 500 operators anew: a third of its time
with contextlib.suppress(ImportError):
    from torch.onnx._internal import _lazy_import

    # no name of its own here: pytest reads all of these, and this one imports a library when read
    read_operators = functools.partial(_lazy_import.onnxscript_apis.__getattr__, "get_torchlib_ops")
    _lazy_import.onnxscript_apis.get_torchlib_ops = functools.cache(lambda: read_operators()())

# it takes hold of pytest's stderr, and closes it when Hydra sets logging up anew
with contextlib.suppress(ImportError):
    import absl.logging

    absl.logging.get_absl_handler().python_handler.stream = sys.__stderr__


class OwnLogs(logging_plugin.catching_logs):
    """The lines of plmctl and of what propagates its own. pytest also listens to the loggers of
    other libraries, forty, six times a test: a third of the time of a small one.
    """

    def __enter__(self) -> logging.Handler:
        if self.level is not None:
            return super().__enter__()
        own = logging.getLogger("plmctl")
        for logger in (logging.getLogger(), *([] if own.propagate else [own])):
            logger.addHandler(self.handler)
            self.attached_loggers.append(logger)
        return self.handler


if hasattr(logging_plugin.catching_logs, "attached_loggers"):  # not in an earlier pytest
    logging_plugin.catching_logs = OwnLogs


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test, and send the main process of several workers only what it shows: the result, and
    what failed, was skipped or took long before and after it.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed or report.duration > SHOWN:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all cases of a `sampled(n)` test but each n-th, from the first one on, to the slow
    tests.
    """
    seen = Counter[str]()
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is None or item.get_closest_marker("slow"):
            continue
        test = item.nodeid.partition("[")[0]
        if seen[test] % mark.args[0]:
            item.add_marker("slow")
        seen[test] += 1


def pytest_collection_finish() -> None:
    """Keep what is imported by now out of every later collection of garbage: it stays. To collect
    what few of it are garbage would take a second.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # a model is small, and its configs are many
    gc.enable()


# one fixture, since each takes a tenth of a millisecond of every test
@pytest.fixture(autouse=True, scope="session")
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Tokens that a test makes stay out of the user's cache; what other programs take of the
    processor is not told; what reads WordNet reads a small one, also where the real one is
    installed.
    """
    from tests.knowledge.tiny_wordnet import write

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLMCTL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("plmctl.training.device.peak.ALONE", 0.0)
        patch.setattr("plmctl.training.device.peak.SPELL", 0.01)
        patch.setenv("WNSEARCHDIR", str(write(tmp_path_factory.mktemp("wordnet"))))
        yield


@pytest.fixture(scope="session")
def small_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 100 kB of the embedded corpus as a text file, a blank line between documents; its
    first pages alone, since reading all of it takes seconds.
    """
    from plmctl.text.corpus import extract_paragraphs, load_topics
    from plmctl.text.document import Document

    file = tmp_path_factory.mktemp("text") / "small.txt"
    pages = (extract_paragraphs(text) for _, text in sorted(load_topics().items()))
    documents = ["\n".join(Document(tuple(page), "").sentences) for page in pages if page]
    file.write_text("\n\n".join(documents)[:100_000], encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def translation(small_text: Path) -> tuple[Path, Path]:
    """Parallel text: the first lines of `small_text`, and as their translation the same lines in
    reverse.
    """
    lines = [line for line in small_text.read_text(encoding="utf-8").splitlines() if line.strip()][
        :400
    ]
    files = small_text.with_name("small.en"), small_text.with_name("small.ne")
    for file, words in zip(files, (lines, [line[::-1] for line in lines]), strict=True):
        file.write_text("\n".join(words), encoding="utf-8")
    return files


@pytest.fixture(scope="session")
def linked_text(small_text: Path) -> Path:
    """The documents of `small_text` in a knowledge directory: every fifth word is a mention of an
    entity, 0 to 29, of one of three types.
    """
    from tests.knowledge.tables import link_words

    text = small_text.read_text(encoding="utf-8")
    return link_words(small_text.with_name("linked"), text) / "text.jsonl"


@pytest.fixture(scope="session")
def tokens_of(
    small_text: Path,
    linked_text: Path,
    translation: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Path]:
    """`tokens_of("wordpiece")`: a token directory of `small_text`, with `pairs` of
    `translation`, with `spans` of `linked_text`; each is made once.
    """
    from plmctl.config.build import build
    from plmctl.config.compose import compose
    from plmctl.data.survey import TextSource
    from plmctl.data.tokenizing import TokenizingJob, tokenize

    made: dict[tuple[str | bool, ...], Path] = {}

    def make(kind: str, *settings: str, pairs: bool = False, spans: tuple[str, ...] = ()) -> Path:
        key = (pairs, kind, *settings, *spans)
        if key not in made:
            folder = tmp_path_factory.mktemp("tokens") / kind
            cfg = compose(
                "tokenize",
                None,
                [f"tokenizer={kind}", "tokenizer.vocab_size=600", f"out={folder}", *settings],
            )
            source = (
                TextSource(str(translation[0]), target=str(translation[1]))
                if pairs
                else TextSource(str(linked_text if spans else small_text), spans=spans)
            )
            tokenize(
                TokenizingJob(
                    source=source,
                    recipe=build(cfg.tokenizer, path="tokenizer"),
                    valid_share=0.1,
                    processes=1,
                ),
                folder,
            )
            made[key] = folder
        return made[key]

    @functools.cache
    def find_words() -> Path:
        """A folder of the frequent words of `small_text` with their contexts."""
        from plmctl.knowledge.contexts import ContextSettings, write_contexts

        folder = tmp_path_factory.mktemp("words") / "words"
        lines = small_text.read_text(encoding="utf-8").splitlines()
        write_contexts(lambda: lines, folder, ContextSettings(least=20, contexts=40))
        return folder

    make.words = find_words  # type: ignore[attr-defined]
    return make
