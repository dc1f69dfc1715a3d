"""A resumed run finds its model and prompts without the packages that made them, whose import takes seconds."""

import subprocess
import sys
from pathlib import Path

from configs.loader import load_recipe
from tasks.dataset.prepare import prepare_in

SETTINGS = ["data.train_size=64", "data.eval_size=8", "cold_start.steps=1"]
FIND = f"""
import sys
from pathlib import Path
from configs.loader import load_recipe
from tasks.dataset.prepare import prepare_in

model, receipt = prepare_in(Path(sys.argv[1]), load_recipe("r1", {SETTINGS}))
print(model, receipt.path, *sorted({{"torch", "transformers"}} & sys.modules.keys()))
"""
ROOT = Path(__file__).parents[3]


def test_what_was_prepared_is_found_without_pytorch_and_transformers(tmp_path: Path):
    model, receipt = prepare_in(tmp_path, load_recipe("r1", SETTINGS))

    found = subprocess.run([sys.executable, "-c", FIND, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)

    assert found.stdout.split() == [str(model), receipt.path], found.stderr
