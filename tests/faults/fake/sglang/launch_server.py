"""A server with SGLang's HTTP interface, as far as the project uses it, that starts in a blink and computes nothing.

A response is a pure function of prompt, seed, temperature and the content of the weights: what a real engine promises
in deterministic mode. About half of the answers to additions are right, so that there is something to learn.

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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from setproctitle import setproctitle

FLAGS = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:] if "=" in argument)
EOS = "<eos>"
MEMORY = {"weights", "kv_cache", "cuda_graph"}
SECONDS = 0.1  # A batch takes this long, so that there is a middle to be killed in.


class Model:
    """What the server has loaded."""

    def __init__(self, folder: Path, version: str) -> None:
        self.version, self.digest = version, digest_of(folder)
        described = json.loads((folder / "tokenizer.json").read_text())
        self.ids: dict[str, int] = described["model"]["vocab"]
        self.tokens = {index: token for token, index in self.ids.items()}

    def answer(self, prompt: list[int], params: dict[str, Any]) -> dict[str, Any]:
        """Return the response to a prompt in SGLang's form."""
        known = json.dumps([prompt, params["sampling_seed"], params["temperature"], self.digest])
        rng = random.Random(hashlib.sha256(known.encode()).digest())
        asked = re.search(r"(\d+)\+(\d+)", "".join(self.tokens[index] for index in prompt))
        right = int(asked[1]) + int(asked[2]) if asked else 0
        said = right if rng.random() < 0.5 else rng.randrange(200)
        text = ["<answer>", *str(said), "</answer>", EOS][: params["max_new_tokens"]]
        logprobs = [[rng.uniform(-3.0, -0.01), self.ids[token], None] for token in text]
        return {
            "output_ids": [index for _, index, _ in logprobs],
            "meta_info": {
                "finish_reason": {"type": "stop" if text[-1] == EOS else "length"},
                "weight_version": self.version,
                "completion_tokens": len(text),
                "output_token_logprobs": logprobs,
            },
        }


def digest_of(folder: Path) -> str:
    """Return a hash of a folder's weights."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.safetensors")))).hexdigest()


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
        self.send(200, self.reply(asked))

    do_GET = do_POST

    def reply(self, asked: dict[str, Any]) -> Any:
        """Return the answer to a request."""
        model = type(self).model
        if self.path == "/model_info":
            return {"weight_version": model.version}
        self.scheduler.take_part()
        if self.path == "/weights_checker":
            return {"success": True, "ranks": [{"per_gpu_checksum": model.digest}]}
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
        if self.path == "/generate":
            time.sleep(SECONDS)
            pairs = zip(asked["input_ids"], asked["sampling_params"], strict=True)
            return [model.answer(prompt, params) for prompt, params in pairs]
        return {}

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
