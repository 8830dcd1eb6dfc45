"""CTranslate2, which writes texts."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.extras import require_library
from plmctl.core.machine import cpu_sums_int8
from plmctl.core.parts import part_of
from plmctl.core.spelling import spell
from plmctl.generation.decode import find_writing_head
from plmctl.generation.search import Hypothesis, Search, SearchFacts
from plmctl.generation.writer import Writer
from plmctl.models.base import Model
from plmctl.runtime.base import Answer, Program, Runtime
from plmctl.runtime.ctranslate2_spec import lack, make_spec
from plmctl.runtime.graph import TOLERANCE, quiet, refuse
from plmctl.storage.gate import admit

FILE = "model.bin"  # with config.json and the spellings of tokens
VOCABULARIES = ("vocabulary.json", "shared_vocabulary.json", "target_vocabulary.json")
TOKENS = 6  # tokens of the rows by which a converted model is compared
EARLY = 0.99999  # patience that ends a beam at `width` finished texts, whatever the penalty is


@part_of("runtime")
class CTranslate2Runtime(Runtime):
    """CTranslate2: texts of encoder-decoders and decoders, by searches of its own.

    Args:
        int8: Whether weights and embeddings are 8-bit integers, with a scale for each row. Inputs
            of matrix products are then rounded to 8 bits as they come, by a processor with VNNI;
            on others, whose sums of such products overflow, products are in fp32.
        threads: The number of threads; None: as many as PyTorch has.
    """

    def __init__(self, *, int8: bool = False, threads: int | None = None) -> None:
        super().__init__()
        self.int8, self.threads = int8, threads

    def prepare(self, program: Program, sample: Batch) -> Answer:
        return Program(self.let_write(program.model), program.compute)

    def let_write(self, model: Model) -> Model:
        return equip(model, self.open_writer(model))

    def open_writer(self, model: Model) -> CTranslate2Writer:
        """The model as this library holds it."""
        with tempfile.TemporaryDirectory() as folder:
            self.write(model, Path(folder))
            writer = self.load(Path(folder))  # holds all of it
        if not self.int8:
            check_writer(writer, model)
        return writer

    def write(
        self,
        model: Model,
        folder: Path,
        tokens: Sequence[str] = (),
        roles: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Write a model into a folder.

        Args:
            tokens: The spelling of each token; empty: its number.
            roles: The numbers of `bos`, `eos` and `unk`, for other programs.
        """
        names = [*tokens] or [*map(str, range(count_tokens(model)))]
        spec = make_spec(_require(), model, names, roles)
        with quiet():
            spec.validate()
            spec.optimize(quantization="int8" if self.int8 else None)
            spec.save(admit(folder / FILE).parent)

    def load(self, folder: Path) -> CTranslate2Writer:
        """The model in a folder."""
        library = _require()
        names = (folder / name for name in VOCABULARIES)
        tokens = json.loads(next(file for file in names if file.is_file()).read_text("utf-8"))
        rounded = self.int8 and cpu_sums_int8()
        how = {"compute_type": "int8" if rounded else "float32", "inter_threads": 1}
        how |= {"intra_threads": self.threads or torch.get_num_threads()}
        continues = (folder / VOCABULARIES[0]).is_file()
        kind, opens = KINDS[continues]
        return kind(library, run(getattr(library, opens), str(folder), **how), tokens)

    def describe(self) -> str:
        products = "" if cpu_sums_int8() else " (products in fp32: no VNNI)"
        numbers = f", int8{products}" if self.int8 else ""
        return f"CTranslate2 {_require().__version__}{numbers}"


class CTranslate2Writer:
    """A model of CTranslate2 that writes texts.

    Differs: With `min_length` and `no_repeat_ngram`, excluded tokens give their probability to the
    others, so that a beam may choose another text. Drawn numbers depend on the whole batch and on
    the texts before; `seed` counts for the first one.

    Args:
        library: The module `ctranslate2`.
        model: Its translator or generator.
        tokens: The spelling of each token.
    """

    words: Mapping[str, str]  # the names of the lengths in this library

    def __init__(self, library: Any, model: Any, tokens: Sequence[str]) -> None:
        self.library, self.model, self.tokens = library, model, tokens
        self.ids = {token: number for number, token in enumerate(tokens)}

    def write(
        self,
        prompts: Sequence[Sequence[int]],
        search: Search,
        *,
        limits: Sequence[int],
        end: int | None,
        watch: Callable[[list[int]], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """As `generation.writer.Writer`."""
        facts = self.read_facts(search)
        if end is None:
            raise lack("text without an end: this tokenizer has no end token")
        how = self.spell(facts) | {"end_token": [end]}
        self.library.set_random_seed(facts.seed)
        found: list[list[Hypothesis]] = [[] for _ in prompts]
        for limit, rows in self.group(prompts, limits):
            texts = self.ask([prompts[row] for row in rows], how | {self.words["most"]: limit})
            for row, own in zip(rows, texts, strict=True):
                found[row] = [_make(ids, score, end) for ids, score in own]
        if facts.rules.min_length or facts.rules.no_repeat_ngram:
            found = [
                self.score_again(prompt, texts, facts, end)
                for prompt, texts in zip(prompts, found, strict=True)
            ]
        found = [sorted(texts, key=lambda text: -text.score) for texts in found]
        if watch is not None:
            watch(found[0][0].ids)  # a function for each step would end the process at its end
        return found

    def read_facts(self, search: Search) -> SearchFacts:
        """The settings of a search; ConfigError for one that this library has not."""
        facts: SearchFacts | None = getattr(search, "facts", None)
        if facts is None:
            raise lack(f"search {type(search).__name__}")
        if facts.phrases:
            raise lack("search for texts with given phrases")
        beam = facts.width > 1
        rules = facts.rules
        own: list[tuple[str, Any, Any]] = [
            ("first", rules.first, None),
            ("last", rules.last, None),
            ("excluded", rules.excluded or None, None),
            ("repetition_penalty", rules.repetition_penalty, 1.0),
            ("min_p", facts.min_p, 0.0),
            ("typical_p", facts.typical_p, 1.0),
            ("groups", facts.groups, 1),
            ("alpha", facts.contrast, 0.0),
        ]
        lacks = [(name, value, spell(off), spell(off)) for name, value, off in own if value != off]
        if beam and facts.early is not True:
            lacks.append(("early", facts.early, "true: a beam ends at `width` texts", "true"))
        if beam and facts.penalty != "length":
            lacks.append(("penalty", facts.penalty, "length: scores / length ** alpha", "length"))
        if beam and facts.alpha <= 0:
            lacks.append(("alpha", facts.alpha, "more than 0", "1"))
        for name, value, allowed, fix in lacks:
            path, allowed = f"search.{name}", f"{allowed} (CTranslate2 has no other)"
            raise ConfigError(path, value, allowed, fix=f"{path}={fix}")
        return facts

    def spell(self, facts: SearchFacts) -> dict[str, Any]:
        """The settings of a search as arguments of this library."""
        drawn = {
            "sampling_topk": facts.top_k or 0,
            "sampling_topp": facts.top_p,
            "sampling_temperature": facts.temperature,
        }
        return {
            "beam_size": facts.width,
            "num_hypotheses": facts.count,
            "length_penalty": facts.alpha,
            "patience": EARLY if facts.width > 1 else 1.0,
            "no_repeat_ngram_size": facts.rules.no_repeat_ngram,
            "return_scores": True,
            "return_end_token": True,
            self.words["least"]: facts.rules.min_length,
            **(drawn if facts.draws else {}),
        }

    def group(
        self, prompts: Sequence[Sequence[int]], limits: Sequence[int]
    ) -> Iterator[tuple[int, list[int]]]:
        """(the most tokens of a text, the rows with this limit)."""
        for limit in sorted({*limits}):
            yield limit, [row for row, own in enumerate(limits) if own == limit]

    def ask(
        self, prompts: Sequence[Sequence[int]], how: Mapping[str, Any]
    ) -> list[list[tuple[list[int], float]]]:
        """The ids of the texts of each prompt with their scores."""
        raise NotImplementedError(type(self).__name__)

    def score(
        self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
    ) -> list[float]:
        """As `generation.writer.Writer`."""
        raise NotImplementedError(type(self).__name__)

    def score_again(
        self, prompt: Sequence[int], texts: Sequence[Hypothesis], facts: SearchFacts, end: int
    ) -> list[Hypothesis]:
        """The texts with scores of the model itself, without rules."""
        ended = [[*text.ids, end] if text.finished else text.ids for text in texts]
        scores = self.score([prompt] * len(texts), ended)
        return [
            Hypothesis(text.ids, score / max(1, len(ids)) ** facts.alpha, text.finished)
            for text, ids, score in zip(texts, ended, scores, strict=True)
        ]

    def name(self, rows: Sequence[Sequence[int]]) -> list[list[str]]:
        """The spellings of ids."""
        return [[self.tokens[number] for number in row] for row in rows]

    def number(self, texts: Sequence[Sequence[str]], scores: Sequence[float]) -> Any:
        """The ids of spellings with their scores."""
        ids = [[self.ids[token] for token in text] for text in texts]
        return [*zip(ids, scores, strict=True)]


class TranslatingWriter(CTranslate2Writer):
    """An encoder-decoder of CTranslate2."""

    words: Mapping[str, str] = {"most": "max_decoding_length", "least": "min_decoding_length"}

    def ask(
        self, prompts: Sequence[Sequence[int]], how: Mapping[str, Any]
    ) -> list[list[tuple[list[int], float]]]:
        found = run(self.model.translate_batch, self.name(prompts), max_input_length=0, **how)
        return [self.number(each.hypotheses, each.scores) for each in found]

    def score(
        self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
    ) -> list[float]:
        names = self.name(prompts), self.name(texts)
        found = zip(run(self.model.score_batch, *names, max_input_length=0), texts, strict=True)
        # it adds an end to each text
        return [float(np.sum(each.log_probs[: len(text)])) for each, text in found]


class ContinuingWriter(CTranslate2Writer):
    """A decoder of CTranslate2."""

    words: Mapping[str, str] = {"most": "max_length", "least": "min_length"}

    def read_facts(self, search: Search) -> SearchFacts:
        facts = super().read_facts(search)
        if value := facts.rules.no_repeat_ngram:
            path, allowed = "search.no_repeat_ngram", "0: CTranslate2 does not look at the prompt"
            raise ConfigError(path, value, allowed, fix=f"{path}=0")
        return facts

    def group(
        self, prompts: Sequence[Sequence[int]], limits: Sequence[int]
    ) -> Iterator[tuple[int, list[int]]]:
        """Rows of one length, too: the rest of a longer prompt would be a part of its text."""
        for limit, rows in super().group(prompts, limits):
            for length in sorted({len(prompts[row]) for row in rows}):
                yield limit, [row for row in rows if len(prompts[row]) == length]

    def ask(
        self, prompts: Sequence[Sequence[int]], how: Mapping[str, Any]
    ) -> list[list[tuple[list[int], float]]]:
        bare = {"include_prompt_in_result": False}
        found = run(self.model.generate_batch, self.name(prompts), **bare, **how)
        return [self.number(each.sequences, each.scores) for each in found]

    def score(
        self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
    ) -> list[float]:
        rows = self.name([[*prompt, *text] for prompt, text in zip(prompts, texts, strict=True)])
        found = zip(run(self.model.score_batch, rows, max_input_length=0), texts, strict=True)
        return [
            float(np.sum(each.log_probs[len(each.log_probs) - len(text) :])) for each, text in found
        ]


KINDS = {True: (ContinuingWriter, "Generator"), False: (TranslatingWriter, "Translator")}


def run(function: Callable[..., Any], *rows: Sequence[Any], **how: Any) -> Any:
    """The results for all rows; UsageError where the library refuses them."""
    try:
        return function(*rows, **how)
    except (RuntimeError, ValueError) as error:
        raise refuse(error) from error


def equip(model: Model, writer: Writer) -> Model:
    """The model with a library that writes its texts, and computes nothing else."""
    equipped = copy.copy(model)  # shares all weights
    equipped.writer = writer
    equipped.forward = _refuse_states  # type: ignore[method-assign, assignment]
    return equipped


def _refuse_states(*_: Any, **__: Any) -> Any:
    """UsageError for a task whose answers are not texts."""
    raise refuse("CTranslate2 writes texts, and gives no other answers")


def check_writer(writer: Writer, model: Model) -> None:
    """UsageError for other numbers than those of PyTorch, by two rows of any tokens."""
    size, length = count_tokens(model), torch.full((2,), TOKENS)
    ids = torch.randint(size, (2, 2, TOKENS), generator=torch.Generator().manual_seed(0))
    prompts, texts = ids.unbind(0)
    rows = {"source": prompts, "target": texts}
    if model.backbone.writes == "text":
        rows, length = {"text": torch.cat([prompts, texts], 1)}, 2 * length
    seqs = {name: Seq(own, length, full=True) for name, own in rows.items()}
    with torch.inference_mode():
        states = model(Batch(torch.arange(2), seqs)).last
        # the last token of a prompt predicts the first one of a text
        states = states if len(rows) == 2 else states[:, TOKENS - 1 : -1]
        logp = model.heads[find_writing_head(model)](states).log_softmax(-1)
    own = logp.gather(2, texts[..., None]).sum((1, 2))
    found = torch.tensor(writer.score(prompts.tolist(), texts.tolist()))
    if not torch.allclose(found, own.to(found), rtol=TOLERANCE, atol=TOLERANCE):
        raise refuse("its log-probabilities differ from those of PyTorch")


def count_tokens(model: Model) -> int:
    """The rows of the table of tokens that are tokens."""
    table: Any = model.backbone.token_embedding
    return int(getattr(table, "vocab_size", table.num_embeddings))


def _make(ids: list[int], score: float, end: int) -> Hypothesis:
    """A text without its end."""
    finished = bool(ids) and ids[-1] == end
    return Hypothesis(ids[:-1] if finished else ids, score, finished)


def _require() -> Any:
    """The library of the extra `ctranslate2`."""
    library = "ctranslate2"
    return require_library(library, library, "runtime=ctranslate2", otherwise="runtime=torch")
