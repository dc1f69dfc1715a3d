"""What every part of a recipe is made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A part of a recipe. Unknown keys are errors, values can't change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)
