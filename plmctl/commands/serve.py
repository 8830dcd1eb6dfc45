"""`plmctl serve`."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.extras import require_library
from plmctl.core.terminal import remark, tell
from plmctl.core.values import Batch, Count, Rate

TOKEN = "PLMCTL_TOKEN"


@dataclass(frozen=True)
class Serve(Command):
    """Answer requests over HTTP with trained models.

    The addresses are those of text-embeddings-inference (/predict, /embed, /rerank), OpenAI
    (/v1/embeddings, /v1/completions), vLLM (/classify), and /tag, /fill, /generate, /health,
    /metrics, /docs.
    """

    about = About(
        "serve",
        place=125,
        examples=("plmctl serve runs/sst2", "plmctl serve runs/sst2 runs/first batch_size=64"),
        bare="checkpoint",
        several=True,
        metavar="RUN",
        options="json print_config config_dir plugin",
        slots="runtime",
    )

    # runs, or their simple models: runs/x/baselines/words; requests name several by the last part
    # of the path, and paths of an equal name by more of it; adapters of one base share it
    checkpoint: str | tuple[str, ...] = MISSING
    host: str = "127.0.0.1"  # address to listen at; others than this machine's need a token
    port: int = 8000  # 0: a free one, which is printed
    # file with the word that clients must send as "Authorization: Bearer <word>"; null: the
    # environment variable PLMCTL_TOKEN, else none
    token_file: str | None = None
    runtime: Any = None  # library of the computation: torch, onnx, openvino, auto; null: torch
    # pooling of vectors of texts: mean, first, max, last, first_last, pooler, trained; null: as
    # the model learned to compare texts, else mean
    pooling: str | None = None
    # least probability of an answer, for all models with labels; texts below it are `unsure`; null:
    # the fitted one of eval abstain=, else none
    unsure_below: Rate | None = None
    batch_size: Batch = 32  # rows that are computed side by side
    max_batch_tokens: Count = 16384  # tokens that are answered together, padding included
    max_texts: Count = 2048  # texts of a request
    max_queue: Count = 16384  # texts that wait; more are refused with status 429
    max_body: Count = 8388608  # bytes of a request
    max_new: Count = 512  # tokens of a written text
    timeout: Count = 60  # seconds until an answer; later ones are refused with status 503
    grace: Count = 30  # seconds that running requests have when the server is stopped
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"

    def perform(self) -> Result:
        """Open the models, and answer until the process is stopped."""
        for library in ("fastapi", "httptools", "prometheus_client", "uvicorn"):
            require_library(library, "serve", "plmctl serve")
        from plmctl.serve.app import make_app
        from plmctl.serve.memory import keep_few_kernels
        from plmctl.serve.models import open_models
        from plmctl.serve.running import run
        from plmctl.serve.server import Limits, Server
        from plmctl.use.runtimes import open_runtime

        token = self._find_token()
        listening = self._listen()
        checkpoints = self.checkpoint
        keep_few_kernels()
        models = open_models(
            [checkpoints] if isinstance(checkpoints, str) else checkpoints,
            device=self.device,
            precision=self.precision,
            pooling=self.pooling,
            runtime=partial(open_runtime, self.runtime, plugins=self.plugins),
            rows=self.batch_size,
            unsure_below=self.unsure_below,
            plugins=self.plugins,
        )
        limits = Limits(
            batch_tokens=self.max_batch_tokens,
            texts=self.max_texts,
            queue=self.max_queue,
            body=self.max_body,
            seconds=self.timeout,
            max_new=self.max_new,
        )
        for each in models:
            each.warm_up()
        host, port = listening.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        if self.provenance.json:
            abilities = {each.name: each.list_abilities() for each in models}
            tell(json.dumps({"address": address, "models": abilities}))
        for each in models:
            remark(f"{each.name} ({each.path}): {', '.join(each.list_abilities())}")
        remark(f"{address} answers; {address}/docs explains; Ctrl-C ends it")
        run(make_app(Server(models, limits), token=token), listening, grace=self.grace)
        return 0

    def _find_token(self) -> str | None:
        """The word of clients; ConfigError where an open address has none."""
        token = os.environ.get(TOKEN, "").strip()
        if self.token_file is not None:
            file = os.path.expanduser(self.token_file)
            try:
                with open(file, encoding="utf-8") as stream:
                    token = stream.read().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{file}: no file with a token: {error}") from error
            if not token:
                raise UsageError(f"{file}: empty, where a token must be")
        if not token and not is_local(self.host):
            allowed = "127.0.0.1 without a token: others could use the server"
            fix = f"token_file=token.txt  # or the environment variable {TOKEN}"
            raise ConfigError("host", self.host, allowed, fix=fix)
        return token or None

    def _listen(self) -> socket.socket:
        """A socket at the address; ConfigError where it is in use or none of this machine's."""
        try:
            family = socket.getaddrinfo(self.host, None)[0][0]
            listening = socket.create_server((self.host, self.port), family=family, backlog=2048)
            # asyncio does so for sockets of its own alone; else small answers wait 40 ms
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listening
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", None) or 0
            problem = os.strerror(number) if number > 0 else str(error)
            allowed = f"a free port of this machine ({problem})"
            path = "host" if isinstance(error, socket.gaierror) else "port"
            fix = "host=127.0.0.1" if path == "host" else "port=0  # any free one"
            raise ConfigError(path, self[path], allowed, fix=fix) from error


def is_local(host: str) -> bool:
    """Whether an address is this machine's alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
