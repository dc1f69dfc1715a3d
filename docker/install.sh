#!/usr/bin/env bash
# Runs while an image is built: adds what SGLang's image lacks. What SGLang runs on stays as its makers chose it; a
# package that asks for another version fails the build. PyTorch and Triton of the ROCm image are AMD's own builds.
set -euo pipefail
export PIP_NO_CACHE_DIR=1 PIP_BREAK_SYSTEM_PACKAGES=1

kept="$(mktemp)"
trap 'rm -f "$kept"' EXIT
python3 -m pip list --format=freeze \
    | grep -iE '^(torch|torchvision|torchaudio|triton|sglang|sglang-kernel|flashinfer-python|aiter|amd-aiter|transformers|numpy)==' \
    > "$kept"
python3 -m pip install --constraint "$kept" --requirement requirements/image.txt
