"""Have a running server load weights from a folder, and check that its tensors changed if the files did."""

from dataclasses import dataclass
from pathlib import Path

from tasks.run.verify import damaged_weights
from tasks.server.client import EngineClient, WeightsNotUpdated
from tasks.weights.arrival import check_arrival
from trainer.files import sha256


@dataclass(frozen=True)
class Loaded:
    """Weights that a server got from disk.

    Attributes:
        folder: Where they are.
        checksum: The server's checksum of its tensors.
    """

    folder: Path
    checksum: str


def load(client: EngineClient, folder: Path, version: int, before: Loaded | None) -> Loaded:
    """Have a server load weights.

    Args:
        client: The server's client.
        folder: Model folder in Hugging Face format, complete.
        version: The weights version.
        before: What the server loaded last.

    Raises:
        WeightsNotUpdated: the folder is damaged, or the server can't load it; the server keeps what it has.
        WeightsUnchanged: the server said that it loaded the weights, but did not.
        EngineUnavailable: the server can't be reached or fails.
    """
    if problem := damaged_weights(folder):
        raise WeightsNotUpdated(problem)  # a running SGLang server would die on them
    client.update_weights(folder, version)
    checksum = client.weights_checksum()
    check_arrival(
        client.url,
        version,
        before.checksum if before else None,
        checksum,
        lambda: before is not None and _same_weights(before.folder, folder),
    )
    return Loaded(folder, checksum)


def _same_weights(one: Path, other: Path) -> bool:
    """Tell whether two folders hold the same weights, as after a skipped update."""
    hashes = [[(file.name, sha256(file)) for file in sorted(folder.glob("*.safetensors"))] for folder in (one, other)]
    return hashes[0] == hashes[1]
