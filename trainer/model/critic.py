"""The critic of PPO: it estimates, before each response token, the reward still to come."""

from typing import cast

import torch
from torch import Tensor, nn

from trainer.batches.collation import Tokens
from trainer.model.policy import Policy


class Critic(nn.Module):
    """A value head on a backbone of its own, as InstructGPT has it (arXiv 2203.02155, appendix C.4).

    Args:
        backbone: a copy of the policy that nothing else uses. Its output layer is not trained.
    """

    def __init__(self, backbone: Policy) -> None:
        super().__init__()
        self.backbone = backbone
        output, embedding = backbone.model.get_output_embeddings(), backbone.model.get_input_embeddings()
        if cast(nn.Module, output).weight is not cast(nn.Module, embedding).weight:
            cast(nn.Module, output).requires_grad_(False)
        weight = next(backbone.parameters())
        self.head = nn.Linear(backbone.model.config.hidden_size, 1, device=weight.device, dtype=weight.dtype)
        # It starts with the value 0 everywhere: no random bias in the first advantages.
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tokens) -> Tensor:
        """Value of the state before each response token, [B, T] float32 with gradient, 0 on padding."""
        hidden = self.backbone.hidden_states(tokens)
        return tokens.to_rows(self.head(hidden.to(torch.float32)).squeeze(-1))
