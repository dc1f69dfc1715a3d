import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from transformers import AutoModelForCausalLM, AutoTokenizer

from configs.errors import UserError
from configs.schema import Model
from trainer.model import pretrained
from trainer.model.pretrained import ModelNotAvailable, materialise


def test_the_tiny_policy_is_built_once(tmp_path: Path):
    folder = materialise(Model(path="tiny"), tmp_path)
    written = (folder / "model.safetensors").stat().st_mtime_ns

    assert materialise(Model(path="tiny"), tmp_path) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written


def test_a_local_folder_is_used_where_it_is(policy_dir: Path, tmp_path: Path):
    assert materialise(Model(path=str(policy_dir)), tmp_path) == policy_dir


def test_a_local_folder_without_safetensors_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").touch()

    with pytest.raises(ModelNotAvailable, match=r"needs a config\.json and weights in \*\.safetensors"):
        materialise(Model(path=str(tmp_path)), tmp_path)


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, "fp8"),
        ({"compression_config": {"format": "pack-quantized"}}, "an unknown method"),
    ],
)
@pytest.mark.parametrize("local", [True, False])
def test_quantised_weights_are_refused_with_what_to_give_instead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: dict[str, Any], method: str, local: bool
):
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "model.safetensors").touch()
    monkeypatch.setattr(pretrained, "snapshot_download", lambda *_, **__: str(tmp_path))
    path = str(tmp_path) if local else "owner/name"

    with pytest.raises(UserError, match=rf"model\.path {path} are quantised \({method}\) and can't be trained"):
        materialise(Model(path=path), tmp_path)


def test_a_path_that_is_neither_a_folder_nor_a_hub_id_is_named(tmp_path: Path):
    with pytest.raises(ModelNotAvailable, match="'/no/such/folder' is neither a folder here nor a hub id"):
        materialise(Model(path="/no/such/folder"), tmp_path)


@pytest.mark.parametrize("error", [LocalEntryNotFoundError("not cached"), httpx.ConnectError("no route")])
def test_a_hub_that_can_not_be_reached_is_said_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception):
    def unreachable(*args, **kwargs):
        raise error

    monkeypatch.setattr(pretrained, "snapshot_download", unreachable)

    with pytest.raises(ModelNotAvailable, match=r"'owner/name' .* \(revision v1\): .*Check name and network"):
        materialise(Model(path="owner/name", revision="v1"), tmp_path)


def test_only_safetensors_and_text_are_downloaded_at_the_recipe_s_revision(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    asked = {}

    def download(repository: str, **options) -> str:
        asked.update(options, repository=repository)
        (tmp_path / "model.safetensors").touch()
        return str(tmp_path)

    monkeypatch.setattr(pretrained, "snapshot_download", download)

    assert materialise(Model(path="owner/name", revision="v1"), tmp_path) == tmp_path
    assert (asked["repository"], asked["revision"]) == ("owner/name", "v1")
    assert "*.safetensors" in asked["allow_patterns"]
    assert not any(pattern.endswith((".bin", ".py", ".pt", "*")) for pattern in asked["allow_patterns"])


def test_without_weights_only_text_is_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    asked = {}
    monkeypatch.setattr(pretrained, "snapshot_download", lambda _, **options: asked.update(options) or str(tmp_path))

    assert materialise(Model(path="owner/name"), tmp_path, weights=False) == tmp_path
    assert {"*.json", "*.jinja", "*.txt", "*.model"} == set(asked["allow_patterns"])


def test_a_model_of_the_hub_without_safetensors_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "pytorch_model.bin").touch()
    monkeypatch.setattr(pretrained, "snapshot_download", lambda *_, **__: str(tmp_path))

    with pytest.raises(ModelNotAvailable, match=r"'owner/name' \(revision main\) has no weights in \*\.safetensors"):
        materialise(Model(path="owner/name"), tmp_path)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(pretrained, "SMOLLM2_PACKAGE", "no-such-package")

    with pytest.raises(ModelNotAvailable, match=r"needs the package no-such-package; install it"):
        materialise(Model(path="smollm2"), tmp_path)


@pytest.mark.slow
def test_smollm2_comes_out_of_its_package_and_can_add(tmp_path: Path):
    folder = materialise(Model(path="smollm2"), tmp_path)

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 3+4?"}], add_generation_prompt=True, return_tensors="pt"
    )
    with torch.no_grad():
        output = model.generate(**inputs, max_new_tokens=12, do_sample=False)
    assert "7" in tokenizer.decode(output[0, inputs["input_ids"].shape[1] :])
    assert model.config.vocab_size == 49152
