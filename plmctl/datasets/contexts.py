"""`plmctl data contexts`: words of a text with their contexts."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from plmctl.config.build import plain
from plmctl.config.schema import Contexts
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import tell
from plmctl.knowledge.contexts import ContextSettings, write_contexts
from plmctl.knowledge.words import read_list
from plmctl.storage.resumable import new_folder
from plmctl.text.reader import read_documents


def find_contexts(spec: Contexts) -> int:
    """Write `out` and say what is in it."""
    out, path = new_folder(spec.out), plain(spec.data.path)
    words = None if spec.words is None else read_list(spec.words)
    settings = ContextSettings(spec.least, spec.contexts, spec.window)
    read = partial(read_documents, path, field=spec.data.field, lines=spec.data.lines)

    def sentences() -> Any:
        return (sentence for document in read() for sentence in document.sentences)

    counted = write_contexts(sentences, out, settings, words=words)
    if spec.provenance.json:
        tell(json.dumps({"out": spec.out, **counted}))
        return 0
    without = f"; {counted['without']:,} have none" if counted["without"] else ""
    tell(f"{spec.out}: {counted['words']:,} words, {counted['contexts']:,} contexts{without}")
    if words is None:
        tell(f"next: plmctl pretrain bertram init=<run> {spell_setting('data.path', spec.out)}")
    else:
        line = "plmctl inject checkpoint=<run of bertram> into=<its init>"
        tell(f"next: {line} {spell_setting('words', spec.out)} out=<folder>")
    return 0
