"""Which row means what.

Row order: language rows, picture band, sound band, clip band, four markers (image, audio, video,
sep), controls. A *kind* is what a token is: text, picture, sound or clip; the file format calls the
last three image, audio and video.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from shadow_model.errors import LayoutError
from shadow_model.schema import Schema

Kind = Literal["text", "picture", "sound", "clip"]
KINDS: tuple[Kind, ...] = ("text", "picture", "sound", "clip")
BANDS = ("image", "audio", "video")
"""Names of the bands in files, in row order; band i is of kind KINDS[i + 1]."""
BAND_ROWS: Mapping[str, int] = {"image": 16_384, "audio": 8_192, "video": 4_096}
MARKS = (*BANDS, "sep")
MAX_OLD_IDS = 1 << 24
"""Old ids, and so language rows, there may be: what a file states is reserved in memory."""
END_CONTROLS = ("[/image]", "[/audio]", "[/video]")
GENERATE_CONTROLS = ("[gen_image]", "[gen_audio]", "[gen_video]")
GENERATE_END = "[end_gen]"
REQUIRED_CONTROLS = (*END_CONTROLS, *GENERATE_CONTROLS, GENERATE_END)


class Layout(Schema):
    """The places of all rows.

    Raises:
        ConfigError: From `parse`, where a required control is missing or a name stands twice.
    """

    num_lang: int = Field(ge=1, le=MAX_OLD_IDS, description="language rows, first in the table")
    controls: tuple[str, ...] = Field(REQUIRED_CONTROLS, description="names of the last rows")

    @model_validator(mode="after")
    def _check_controls(self) -> "Layout":
        missing = [name for name in REQUIRED_CONTROLS if name not in self.controls]
        if missing or len(set(self.controls)) != len(self.controls):
            raise ValueError(f"controls must be distinct and include {missing or 'each once'}")
        return self

    @property
    def offsets(self) -> dict[str, int]:
        """First row of each band."""
        image = self.num_lang
        audio = image + BAND_ROWS["image"]
        return {"image": image, "audio": audio, "video": audio + BAND_ROWS["audio"]}

    @property
    def marks(self) -> dict[str, int]:
        """Row of each marker: the start of a picture, sound or clip, and the document's end."""
        first = self.offsets["video"] + BAND_ROWS["video"]
        return {name: first + i for i, name in enumerate(MARKS)}

    @property
    def control_offset(self) -> int:
        """First control row."""
        return self.marks["sep"] + 1

    @property
    def num_rows(self) -> int:
        """Rows in all (R)."""
        return self.control_offset + len(self.controls)

    def control(self, name: str) -> int:
        """Return the row of a control; LayoutError where the table has none of that name."""
        if name not in self.controls:
            raise LayoutError("controls", f"include {name}", list(self.controls), "Rebuild it.")
        return self.control_offset + self.controls.index(name)

    @property
    def start_rows(self) -> dict[int, str]:
        """Row that opens a span -> its band: the marker, or the control that asks for one."""
        marked = {self.marks[band]: band for band in BANDS}
        asked = {self.control(f"[gen_{band}]"): band for band in BANDS}
        return {**marked, **asked}

    @property
    def end_rows(self) -> tuple[int, ...]:
        """Rows that close a span of whatever kind."""
        return tuple(self.control(name) for name in (*END_CONTROLS, GENERATE_END))

    def kind_of_rows(self) -> np.ndarray:
        """Return (R,) int8: index into KINDS; markers and controls count as text."""
        kinds = np.zeros(self.num_rows, np.int8)
        for index, band in enumerate(BANDS, 1):
            first = self.offsets[band]
            kinds[first : first + BAND_ROWS[band]] = index
        return kinds
