import numpy as np
import pytest

from shadow_model.errors import ConfigError, LayoutError
from shadow_model.table.layout import BAND_ROWS, KINDS, REQUIRED_CONTROLS, Layout


@pytest.fixture(scope="module")
def layout() -> Layout:
    return Layout(num_lang=65_536)


def test_rows_lie_in_the_stated_order(layout: Layout) -> None:
    assert layout.offsets == {"image": 65_536, "audio": 81_920, "video": 90_112}
    assert layout.marks == {"image": 94_208, "audio": 94_209, "video": 94_210, "sep": 94_211}
    assert layout.control_offset == 94_212
    assert layout.num_rows == 94_219


def test_kinds_cover_the_bands_and_nothing_else(layout: Layout) -> None:
    kinds = layout.kind_of_rows()
    counts = np.bincount(kinds, minlength=len(KINDS))
    assert counts[1:].tolist() == list(BAND_ROWS.values())
    assert kinds[65_535] == 0
    assert kinds[65_536] == 1
    assert kinds[94_207] == 3
    assert kinds[94_208:].max() == 0


def test_start_and_end_rows(layout: Layout) -> None:
    names = {layout.marks["image"]: "image", layout.control("[gen_video]"): "video"}
    assert names.items() <= layout.start_rows.items()
    assert len(layout.start_rows) == 6
    assert layout.end_rows == tuple(
        layout.control(name) for name in ("[/image]", "[/audio]", "[/video]", "[end_gen]")
    )


@pytest.mark.parametrize(
    "controls", [REQUIRED_CONTROLS[1:], (*REQUIRED_CONTROLS, REQUIRED_CONTROLS[0])]
)
def test_missing_or_repeated_controls_are_refused(controls: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="controls"):
        Layout.parse({"num_lang": 1, "controls": controls}, "test")


def test_unknown_control_is_named(layout: Layout) -> None:
    with pytest.raises(LayoutError, match=r"\[tool\]"):
        layout.control("[tool]")
