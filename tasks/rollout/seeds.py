"""Sampling seeds: one a sample, derived from the run, so that any sample can be made again."""

from hashlib import blake2b


def sampling_seed(run_seed: int, step: int, group: int, index: int) -> int:
    """Derive a sample's seed from the run's seed, the step, the group and the sample's index.

    Returns:
        An integer in [0, 2**31), the range that SGLang takes. Different samples have different seeds, but for the
        collisions of a 31-bit hash.
    """
    digest = blake2b(f"{run_seed}/{step}/{group}/{index}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1
