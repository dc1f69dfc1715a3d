"""The teacher of on-policy distillation: a frozen policy that scores what the student sampled."""

from pathlib import Path

from configs.errors import UserError
from trainer.model.tokens import read_tokenizer


def check_same_tokenizer(student_dir: Path, teacher_dir: Path) -> None:
    """Refuse a teacher for which the student's token ids mean other tokens.

    The size of the output layer tells nothing: models of one family pad it differently.

    Raises:
        UserError: names a token that the two number differently.
    """
    student, teacher = (read_tokenizer(folder).get_vocab() for folder in (student_dir, teacher_dir))
    for token, number in student.items():
        if teacher.get(token) != number:
            raise UserError(
                f"algorithm.teacher {teacher_dir} has another tokenizer than the policy: token {token!r} is "
                f"{teacher.get(token, 'missing')} there and {number} here; take a teacher of the policy's family"
            )
