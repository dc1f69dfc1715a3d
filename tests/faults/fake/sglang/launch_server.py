"""A server with SGLang's HTTP interface, as far as the project uses it, that starts in a blink and computes nothing.

A response is a pure function of prompt, seed, temperature and the content of the weights: what a real engine promises
in deterministic mode. About half of the answers to additions are right, so that there is something to learn. After any
other prompt it babbles, a token at a time, so that there is something to be cut, aborted and waited for.

What it does as the real one is held by tests/contract.py, which both pass: it refuses an id that it still works on,
ends what is aborted with the tokens so far, keeps tokens of its context for itself, and has no log-probs where weights
are no numbers.

In the folder FAKE_SGLANG it writes what it was asked (`requests.log`). The file `lie` there makes the next update of
weights say success and change nothing, the file `refuse` names a request that it refuses. As the real one, it ends when
it is to give up memory that it has not, or to take what it has.
"""

import hashlib
import json
import os
import random
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from setproctitle import setproctitle

FLAGS = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:] if "=" in argument)
EOS = "<eos>"
MEMORY = {"weights", "kv_cache", "cuda_graph"}
SECONDS = 0.1  # A batch takes this long, so that there is a middle to be killed in.
TOKEN = 0.01  # Seconds that a babbled token takes.


class Model:
    """What the server has loaded."""

    def __init__(self, folder: Path, version: str) -> None:
        self.version, self.digest = version, digest_of(folder)
        described = json.loads((folder / "tokenizer.json").read_text())
        self.ids: dict[str, int] = described["model"]["vocab"]
        self.tokens = {index: token for token, index in self.ids.items()}
        self.sound = all(is_sound(file) for file in folder.glob("*.safetensors"))

    def say(self, prompt: list[int], params: dict[str, Any]) -> Iterator[tuple[float | None, int]]:
        """Say the response to a prompt, token by token, each with its log-prob."""
        known = json.dumps([prompt, params["sampling_seed"], params["temperature"], self.digest])
        rng = random.Random(hashlib.sha256(known.encode()).digest())
        asked = re.search(r"(\d+)\+(\d+)", "".join(self.tokens[index] for index in prompt))
        for token in self._sum(asked, rng) if asked else self._babble(rng):
            logprob = rng.uniform(-3.0, -0.01)
            yield logprob if self.sound else None, self.ids[token]

    def _sum(self, asked: re.Match[str], rng: random.Random) -> list[str]:
        right = int(asked[1]) + int(asked[2])
        said = right if rng.random() < 0.5 else rng.randrange(200)
        return ["<answer>", *str(said), "</answer>", EOS]

    def _babble(self, rng: random.Random) -> Iterator[str]:
        while rng.random() < 0.995:
            time.sleep(TOKEN)
            yield rng.choice("0123456789 abcdefghij")
        yield EOS


class Running:
    """The samples that the server works on, by their ids."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._aborted: dict[str, bool] = {}

    def begin(self, ids: list[str]) -> None:
        """Take samples up. Raises ValueError for an id that it has already."""
        with self._lock:
            if twice := [name for name in dict.fromkeys(ids) if ids.count(name) > 1]:
                raise ValueError(f"Duplicate request IDs detected within the request: {twice}")
            for name in ids:
                if name in self._aborted:
                    raise ValueError(f"Duplicate request ID detected: {name}")
            self._aborted |= dict.fromkeys(ids, False)

    def abort(self, name: str) -> None:
        """Have a sample end, if there is such a one."""
        with self._lock:
            if name in self._aborted:
                self._aborted[name] = True

    def is_aborted(self, name: str) -> bool:
        """Tell whether a sample is to end."""
        return self._aborted[name]

    def end(self, name: str) -> None:
        """Forget a sample."""
        with self._lock:
            self._aborted.pop(name, None)


def digest_of(folder: Path) -> str:
    """Return a hash of a folder's weights."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.safetensors")))).hexdigest()


def is_sound(file: Path) -> bool:
    """Tell whether all weights of a file are numbers."""
    with safe_open(file, framework="numpy") as weights:
        tensors = [weights.get_tensor(name) for name in weights.keys()]  # noqa: SIM118 - no mapping
    return all(bool(np.isfinite(tensor).all()) for tensor in tensors)


def check_length(prompt: int, limit: int) -> None:
    """Refuse what does not fit into the context, with SGLang's words. It gives nobody the last tokens of it."""
    context = int(FLAGS["context-length"])
    if prompt >= context:
        raise ValueError(f"The input ({prompt} tokens) is longer than the model's context length ({context} tokens).")
    if prompt + limit > context:
        raise ValueError(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested a "
            f"total of {prompt + limit} tokens: {prompt} tokens from the input messages and {limit} tokens for the "
            "completion. Please reduce the number of tokens in the input messages or the completion to fit within the "
            "limit."
        )
    if prompt >= context - 6:
        raise ValueError(
            f"Input length ({prompt} tokens) exceeds the maximum allowed length ({context - 6} tokens). Use a shorter "
            "input or enable --allow-auto-truncate."
        )


class Scheduler:
    """The child process that generates. The server goes on without it, and what needs it is never answered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end, other = socket.socketpair()
        if os.fork() == 0:
            self._end.close()
            setproctitle("sglang::scheduler")
            while asked := other.recv(1):
                other.send(asked)
            os._exit(0)
        other.close()

    def take_part(self) -> None:
        """Return when the scheduler did its part."""
        with self._lock:
            self._end.send(b"?")
            if not self._end.recv(1):
                threading.Event().wait()


class Handler(BaseHTTPRequestHandler):
    """SGLang's paths."""

    scheduler: Scheduler
    model: Model
    key: str
    tricks: Path | None
    running = Running()
    memory = MEMORY

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers["Authorization"] != f"Bearer {self.key}":
            return self.send(401, {"error": "no key"})
        asked = json.loads(body) if body else {}
        request = ":".join([self.path, *asked.get("tags", [])])
        self.note(request)
        if self.tricks and (refused := self.tricks / "refuse").exists() and refused.read_text() == request:
            return self.send(400, {"success": False, "message": "refused"})
        try:
            self.send(200, self.reply(asked))
        except ValueError as error:
            self.send(400, {"error": {"message": str(error)}})

    do_GET = do_POST

    def reply(self, asked: dict[str, Any]) -> Any:
        """Return the answer to a request."""
        model = type(self).model
        if self.path == "/model_info":
            return {"weight_version": model.version}
        self.scheduler.take_part()
        if self.path == "/weights_checker":
            return {"success": True, "ranks": [{"per_gpu_checksum": model.digest, "checksums": {"a": model.digest}}]}
        if self.path == "/update_weights_from_disk":
            if self.tricks and (self.tricks / "lie").exists():
                (self.tricks / "lie").unlink()
                model.version = asked["weight_version"]
            else:
                type(self).model = Model(Path(asked["model_path"]), asked["weight_version"])
            return {"success": True}
        if self.path == "/update_weight_version":
            model.version = asked["new_version"]
        if self.path == "/release_memory_occupation":
            self.remember(type(self).memory - set(asked["tags"]), set(asked["tags"]) <= type(self).memory)
        if self.path == "/resume_memory_occupation":
            self.remember(type(self).memory | set(asked["tags"]), not set(asked["tags"]) & type(self).memory)
        if self.path == "/abort_request":
            self.running.abort(asked["rid"])
        if self.path == "/generate":
            return self.generate(model, asked)
        return {}

    def generate(self, model: Model, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the responses to some prompts, in SGLang's form. Raises ValueError for what SGLang refuses."""
        prompts, params, ids = asked["input_ids"], asked["sampling_params"], asked["rid"]
        self.running.begin(ids)
        try:
            for prompt, one in zip(prompts, params, strict=True):
                check_length(len(prompt), one["max_new_tokens"])
            time.sleep(SECONDS)
            with ThreadPoolExecutor(len(prompts)) as threads:
                return list(threads.map(partial(self.one, model), prompts, params, ids))
        finally:
            for name in ids:
                self.running.end(name)

    def one(self, model: Model, prompt: list[int], params: dict[str, Any], name: str) -> dict[str, Any]:
        """Return one response."""
        said: list[tuple[float | None, int]] = []
        reason: dict[str, Any] | None = None
        for token in model.say(prompt, params):
            if self.running.is_aborted(name):
                reason = {"type": "abort", "message": "Abort in running"}
                break
            said.append(token)
            if token[1] == model.ids[EOS]:
                reason = {"type": "stop", "matched": token[1]}
            elif found := self.stop_in(model, said, params):
                reason = {"type": "stop", "matched": found}
            elif len(said) == min(params["max_new_tokens"], int(FLAGS["context-length"]) - 2 - len(prompt)):
                reason = {"type": "length", "length": len(said)}
            if reason:
                break
        self.running.end(name)
        return {
            "output_ids": [index for _, index in said],
            "meta_info": {
                "id": name,
                "finish_reason": reason,
                "weight_version": model.version,
                "completion_tokens": len(said),
                "output_token_logprobs": [[logprob, index, None] for logprob, index in said],
            },
        }

    def stop_in(self, model: Model, said: list[tuple[float | None, int]], params: dict[str, Any]) -> str | None:
        """Return the text among those that end a response that a response ends with."""
        text = "".join(model.tokens[index] for _, index in said)
        return next((stop for stop in params.get("stop", []) if text.endswith(stop)), None)

    def remember(self, memory: set[str], allowed: bool) -> None:
        """Have other memory than before."""
        if not allowed:
            os._exit(1)
        type(self).memory = memory

    def note(self, request: str) -> None:
        """Write down what was asked, of which process, at which version."""
        if self.tricks:
            with (self.tricks / "requests.log").open("a") as log:
                log.write(f"{os.getpid()} {type(self).model.version} {request}\n")

    def send(self, status: int, answer: Any) -> None:
        """Send an answer."""
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until killed."""
    config = Path(sys.argv[sys.argv.index("--config") + 1]).read_text()
    Handler.key = config.split("api-key:")[1].strip().strip("'\"")
    Handler.scheduler = Scheduler()
    Handler.model = Model(Path(FLAGS["model-path"]), FLAGS["weight-version"])
    Handler.tricks = Path(os.environ["FAKE_SGLANG"]) if "FAKE_SGLANG" in os.environ else None
    ThreadingHTTPServer((FLAGS["host"], int(FLAGS["port"])), Handler).serve_forever()


if __name__ == "__main__":
    main()
