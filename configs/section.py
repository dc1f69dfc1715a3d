"""What every part of a recipe is made of."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from configs.addresses import holds_user

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A part of a recipe. Unknown keys are errors, values can't change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="after")
    def keeps_no_password(self) -> Self:
        """Refuse an address with a password in it: recipes are stored, logged and shown as they are."""
        for name, value in self:
            if _holds_user(value):
                raise ValueError(
                    f"the address in {name} holds a user name or password: give them by the environment, those of "
                    "MLflow by MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
                )
        return self


def _holds_user(value: object) -> bool:
    """Tell it of a setting, and of what is in it; a section in it looks after itself."""
    if isinstance(value, str):
        return holds_user(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_holds_user, inner))
