"""What every part of a recipe is made of."""

import re
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[int, Field(gt=0)]
_PASSWORD = re.compile(r"\w[\w+.-]*://[^/?#]*@")


class Section(BaseModel):
    """A part of a recipe. Unknown keys are errors, values can't change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="after")
    def keeps_no_password(self) -> Self:
        """Refuse an address with a password in it: recipes are stored, logged and shown as they are."""
        for name, value in self:
            if isinstance(value, str) and _PASSWORD.match(value):
                raise ValueError(f"the address in {name} holds a user name or password: give them by the environment")
        return self
