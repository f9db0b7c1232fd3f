"""Figures of one shape become a grid, the rest name and value; nothing is lost."""

from shadow_model.report.grids import Grid, arrange, cell


def test_mappings_of_one_shape_become_a_grid() -> None:
    found = arrange({"kinds": {"train": {"text": 1, "clip": 2}, "val": {"text": 3}}, "shards": 9})
    assert found.pairs == (("shards", 9),)
    assert found.grids == (
        Grid("kinds", ("", "text", "clip"), (("train", 1, 2), ("val", 3, None))),
    )


def test_list_of_mappings_becomes_a_grid() -> None:
    found = arrange({"speed": {"shapes": [{"loops": 2, "step_s": 0.1}, {"loops": 4}]}})
    assert found.pairs == ()
    assert found.grids == (Grid("speed.shapes", ("loops", "step_s"), ((2, 0.1), (4, None))),)


def test_other_nested_figures_are_named_by_their_path() -> None:
    figures = {"rows": {"language": 3}, "lanes": ["a"], "none": [], "x": {"y": {"z": {"t": 1}}}}
    found = arrange(figures)
    assert found.pairs == (("rows.language", 3), ("lanes", ["a"]), ("none", []))
    assert found.grids == (Grid("x.y", ("", "t"), (("z", 1),)),)


def test_mappings_without_a_common_name_stay_pairs() -> None:
    found = arrange({"a": {"x": {"p": 1}, "y": {"q": 2}}})
    assert found.pairs == (("a.x.p", 1), ("a.y.q", 2))
    assert found.grids == ()


def test_names_can_be_left_out() -> None:
    assert arrange({"version": 1, "n": 2}, ("version",)).pairs == (("n", 2),)


def test_empty_figures_are_no_table() -> None:
    assert arrange({}) == arrange({"a": {}})


def test_cell_is_written_by_its_column() -> None:
    assert cell("step_s", 0.25) == "250 ms"
