"""A tokenizer whose tokens are bytes, as the smallest pieces of a byte-level BPE."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

EOS = 256


def byte_tokenizer() -> Tokenizer:
    """256 bytes and an EOS."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({byte: index for index, byte in enumerate(alphabet)} | {"<eos>": EOS}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.add_special_tokens(["<eos>"])
    return tokenizer
