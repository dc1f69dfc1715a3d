import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from configs.errors import UserError
from configs.schema import Recipe
from tests.families import build
from trainer.batches.collation import collate
from trainer.batches.samples import Sample
from trainer.learner.learner import Learner
from trainer.model import policy
from trainer.model.policy import Policy
from trainer.model.tiny_policy import build_tokenizer
from trainer.model.tokens import tokens_of

DISTILLATION = {"advantage": "distillation", "loss": "policy_gradient", "teacher": "a folder"}


@pytest.fixture(scope="module")
def teacher_dir(policy_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The student with other weights."""
    teacher = policy.load(policy_dir, temperature=1.0, dtype="float32")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in teacher.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=generator)
    folder = tmp_path_factory.mktemp("teacher") / "teacher"
    policy.save(teacher, policy_dir, folder)
    return folder


def next_token_logprobs(of: Policy, prompt: list[int]) -> torch.Tensor:
    return of(collate([(prompt, [token]) for token in range(60)]))[0][:, 0].detach()


def test_the_student_gets_closer_to_the_teacher(make_learner: Callable[..., Learner], teacher_dir: Path):
    learner = make_learner(algorithm=DISTILLATION, teacher=teacher_dir, optimizer={"learning_rate": 3e-3})
    teacher = next_token_logprobs(policy.load(teacher_dir, temperature=1.0, dtype="float32"), [1, 2])
    generator = torch.Generator().manual_seed(0)

    def divergence(student: torch.Tensor) -> float:
        return (student.exp() * (student - teacher)).sum().item()

    student = next_token_logprobs(learner._policy, [1, 2])
    before = divergence(student)
    for _ in range(30):
        tokens = torch.multinomial(student.exp(), 32, replacement=True, generator=generator).tolist()
        learner.update(
            [Sample("q", [1, 2], [token], [student[token].item()], learner.version, 0.0) for token in tokens]
        )
        student = next_token_logprobs(learner._policy, [1, 2])

    assert divergence(student) < 0.5 * before


def test_the_teacher_stays_as_it_is(make_learner: Callable[..., Learner], teacher_dir: Path):
    learner = make_learner(algorithm=DISTILLATION, teacher=teacher_dir)

    learner.update([Sample("q", [1, 2], [3, 4], [-4.0, -4.0], 0, 0.0)])

    expected = policy.load(teacher_dir, temperature=1.0, dtype="float32").state_dict()
    assert learner._teacher is not None
    assert all(torch.equal(value, expected[name]) for name, value in learner._teacher.state_dict().items())


def test_a_teacher_with_another_tokenizer_is_refused(
    make_learner: Callable[..., Learner], teacher_dir: Path, tmp_path: Path
):
    shutil.copytree(teacher_dir, tmp_path / "other")
    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.model = type(tokenizer.backend_tokenizer.model)(
        {**tokenizer.get_vocab(), "a": tokenizer.get_vocab()["b"], "b": tokenizer.get_vocab()["a"]}, unk_token="<unk>"
    )
    tokenizer.save_pretrained(tmp_path / "other")

    with pytest.raises(UserError, match=r"other has another tokenizer than the policy: token '[ab]'"):
        make_learner(algorithm=DISTILLATION, teacher=tmp_path / "other")


def test_distillation_without_a_teacher_is_refused(make_learner: Callable[..., Learner]):
    with pytest.raises(ValueError, match="needs a teacher_dir"):
        make_learner(algorithm=DISTILLATION)


def test_u12_policy_reference_and_teacher_are_distributions_over_the_same_tokens(tmp_path: Path):
    student, teacher = build("qwen3", tmp_path / "student"), build("qwen3", tmp_path / "teacher", vocab_size=384)
    real = tokens_of(student).ids[-1][1]
    recipe = Recipe.model_validate(
        {"name": "padded", "algorithm": {**DISTILLATION, "kl": {"coefficient": 0.1}, "old_policy": "learner"}}
    )
    learner = Learner(recipe, student, teacher)

    for model in (learner._policy, learner._reference, learner._teacher):
        assert model is not None
        probabilities = model(collate([([1, 2], [token]) for token in range(real)]))[0].exp()
        assert probabilities.sum().item() == pytest.approx(1.0, abs=1e-5)
