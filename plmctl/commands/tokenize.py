"""`plmctl tokenize`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmctl.config.build import MISSING, plain
from plmctl.config.command import About, Command, Result
from plmctl.config.groups import Data
from plmctl.core.errors import ConfigError
from plmctl.core.terminal import WARN, remark
from plmctl.core.values import Count, Processes, Whole
from plmctl.storage.paths import refuse_file_name

if TYPE_CHECKING:
    from plmctl.data.parts import Parts
    from plmctl.data.tokenizing import TokenizingJob


@dataclass(frozen=True)
class Tokenize(Command):
    """Train a tokenizer, or take one, and write text as tokens."""

    about = About(
        "tokenize",
        place=10,
        examples=(
            "plmctl tokenize tokenizer.vocab_size=4096 out=tokens",
            "plmctl tokenize tokenizer=wordpiece tokenizer.vocab_size=4096 out=tokens-wordpiece",
        ),
        bare="data.path",
        metavar="PATH",
        options="json print_config multirun config_dir plugin",
        slots="tokenizer",
    )

    data: Data = Data()
    tokenizer: Any = MISSING
    out: str = MISSING  # folder of the tokens and their tokenizer
    processes: Processes | None = None  # null: one for each core
    # processes or machines that each tokenize a part, with part=; without part=, the parts are
    # joined; null: one process does all
    parts: Count | None = None
    part: Whole | None = None  # the number of the part that this process tokenizes, from 0 on
    # tokens of a file; of many files, plmctl pretrain reads one behind the other, also from a URL;
    # null: one file for all
    shard_tokens: Count | None = None
    seed: Whole = 0  # seed of the documents that the vocabulary is learned from

    def perform(self) -> Result:
        """Write `out` and say what is in it."""
        from plmctl.config.texts import Texts
        from plmctl.data.described import (
            describe_tokens,
            refuse_other_tokens,
            sum_up_tokens,
            warn_of_large_share,
            warn_of_lone_characters,
            warn_of_poor_fit,
            warn_of_text,
        )
        from plmctl.data.shard_files import open_beginning
        from plmctl.data.shards import is_tokens
        from plmctl.data.tokenizing import tokenize
        from plmctl.inputs.tokenize import make_job, show_progress, spell_command
        from plmctl.storage.remote import is_url
        from plmctl.text.tokenizer import Tokenizer

        path, given = plain(self.data.path), self.provenance
        if is_tokens(path) and not is_url(path):  # text at a URL is refused where it is read
            allowed = "holds tokens already; give the text they were made from"
            raise ConfigError("data.path", path, allowed)
        refuse_file_name(self.out)
        self._check_part()
        with show_progress("" if given.within else spell_command(given)) as say:
            work = make_job(Texts.of(self), path, say=say, processes=self.processes)
            work = replace(work, shard_tokens=self.shard_tokens)
            if self.part is not None:
                return self._tokenize_part(work)
            refuse_other_tokens(work, Path(self.out).expanduser())
            manifest = self._list_parts(work).join() if self.parts else tokenize(work, self.out)
        folder = Path(self.out).expanduser()
        shards, vocab = open_beginning(folder), Tokenizer.load(folder).vocab
        warnings = [*warn_of_poor_fit(shards, vocab), *warn_of_lone_characters(shards, vocab)]
        if given.json:
            for line in (*warn_of_large_share(manifest), *warn_of_text(manifest), *warnings):
                remark(line, WARN)
        lines = (*describe_tokens(manifest, self.out), *warnings)
        return self.report(sum_up_tokens(manifest, self.out), lines)

    def _check_part(self) -> None:
        """ConfigError for a part that is none of `parts`."""
        if self.part is None:
            return
        if self.parts is None:
            raise ConfigError(
                "part", self.part, "goes with parts, which is not set", fix="parts=16"
            )
        if self.part >= self.parts:
            allowed = f"a number from 0 to {self.parts - 1}, as parts={self.parts}"
            raise ConfigError("part", self.part, allowed, fix=f"part={self.parts - 1}")

    def _tokenize_part(self, work: TokenizingJob) -> Result:
        from plmctl.data.dividing import list_whole

        assert self.part is not None
        assert self.parts is not None
        whole = list_whole(work.source)
        if whole and len(whole) < self.parts:
            few = f"{whole[0]} cannot be divided: one part reads all of it"
            remark(few if len(whole) == 1 else f"{few}. So it is with {len(whole)} files", WARN)
        self._list_parts(work).write(self.part)
        line = f"part {self.part} of {self.parts} is done; {self._spell()} joins all"
        return self.report({"out": self.out, "part": self.part, "parts": self.parts}, [line])

    def _list_parts(self, work: TokenizingJob) -> Parts:
        from plmctl.data.parts import Parts

        assert self.parts is not None
        return Parts(work, Path(self.out).expanduser().absolute(), self.parts, self._spell)

    def _spell(self, parts: Sequence[int] = ()) -> str:
        """The command that tokenizes some parts; without one, it joins all."""
        from plmctl.inputs.tokenize import spell_command

        given = self.provenance
        words = tuple(word for word in given.overrides if not word.startswith("part="))
        command = spell_command(replace(given, overrides=words), "tokenize")
        if len(parts) == 1:
            return f"{command} part={parts[0]}"
        every = " ".join(map(str, parts))
        return f"for part in {every}; do {command} part=$part; done" if parts else command
