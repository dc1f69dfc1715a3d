"""A sequence's numbers are the same bits whatever is computed beside it.

MKL reads its setting when it is loaded, so this runs in a process of its own.
"""

import os
import subprocess
import sys

import pytest
import torch

CHECK = """
import torch
from tasks.sglang_cpu.attention import attend, group_sequences
from tasks.sglang_cpu.batch_invariant import enable

torch.manual_seed(0)
plain = torch.nn.functional.linear(torch.ones(2, 3), torch.ones(5, 3), torch.arange(5.0))
enable()
enable()
assert torch.equal(torch.nn.functional.linear(torch.ones(2, 3), torch.ones(5, 3), torch.arange(5.0)), plain)

for inputs, outputs in ((192, 320), (512, 192), (192, 56), (576, 1536), (1536, 576)):
    x, weight, bias = torch.randn(70, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    for b in (None, bias):
        whole = torch.nn.functional.linear(x, weight, b)
        for rows in (*range(1, 41), 69):
            assert torch.equal(torch.nn.functional.linear(x[:rows], weight, b), whole[:rows]), (inputs, outputs, rows)
            assert torch.equal(torch.nn.functional.linear(x[-rows:], weight, b), whole[-rows:]), (inputs, outputs, rows)

lengths = torch.tensor([1, 3, 17, 63, 64, 65, 100, 128, 150, 192, 193, 250, 256, 300, 383, 400, 512, 513, 640, 700])
slots = torch.randperm(len(lengths) * 704).view(len(lengths), 704)
requests = torch.arange(len(lengths))
for key_heads, shared, size in ((2, 3, 32), (3, 3, 64), (1, 8, 64), (4, 1, 32)):
    keys, values = torch.randn(2, slots.numel(), key_heads, size)
    queries = torch.randn(int(lengths.sum()), key_heads * shared, size)  # of every token
    ends = lengths.cumsum(0)

    def run(members, new):
        starts = [int(ends[m] - n) for m, n in zip(members, new)]
        query = torch.cat([queries[s:s + n] for s, n in zip(starts, new)])
        out = torch.empty_like(query)
        index = torch.tensor(members)
        for group in group_sequences(slots, requests[index], lengths[index], torch.tensor(new)):
            out[group.rows_n] = attend(query[group.rows_n], keys, values, group, size**-0.5)
        return out.split(new)

    together = run(list(range(len(lengths))), [1] * len(lengths))
    for m in range(len(lengths)):
        (alone,) = run([m], [1])
        assert torch.equal(alone, together[m]), ("decode alone", lengths[m])
        (prefill,) = run([m], [int(lengths[m])])
        assert torch.equal(prefill[-1], together[m][0]), ("prefill", lengths[m])
        tail = min(5, int(lengths[m]))
        (extend,) = run([m], [tail])
        assert torch.equal(extend, prefill[-tail:]), ("cached prefix", lengths[m])
"""


@pytest.mark.skipif(
    not torch.backends.mkl.is_available() or torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="needs MKL and AVX2",
)
@pytest.mark.parametrize("threads", [1, 2])
def test_products_and_attention_are_the_same_bits_alone_together_and_from_a_cached_prefix(threads: int):
    env = os.environ | {"MKL_CBWR": "AVX2", "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", CHECK], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
