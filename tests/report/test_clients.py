"""The figure of who differs in what."""

import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.report.clients import Clients, Field, _figure, write_figure
from fedkl.report.pictures import check_target, matplotlib_style

RANDOM = np.random.default_rng(0)


def labels(parameters, field=None, nominal=None):
    with matplotlib_style():
        figure = _figure(Clients("a title", parameters, nominal or {}, field))
        return [axes.get_xlabel() for axes in figure.axes], figure


def test_a_panel_for_each_word_that_differs():
    parameters = {
        "gravity": RANDOM.normal(size=10),
        "alike": np.ones(10),
        "offset": RANDOM.normal(size=(10, 2)),
        "means": RANDOM.normal(size=(10, 3)),
    }
    found, figure = labels(
        parameters, nominal={"gravity": 0.0, "offset": (0.0, 0.0), "means": (0, 1, 2)}
    )
    assert found == ["gravity", "offset_0", "entry of means"]
    assert figure.get_suptitle() == "a title"


def test_few_clients_are_dots_with_their_numbers_and_many_are_bars():
    _, few = labels({"gravity": np.arange(5.0)})
    assert [text.get_text() for text in few.axes[0].texts] == list("01234")
    assert len(few.axes[0].collections[0].get_offsets()) == 5
    _, many = labels({"gravity": RANDOM.normal(size=1000)})
    assert sum(bar.get_height() for bar in many.axes[0].patches) == 1000
    _, two_values = labels({"gravity": np.arange(1000) % 2})
    assert [bar.get_height() for bar in two_values.axes[0].patches] == [500, 500]


def test_the_field_has_a_box_for_each_place():
    low = np.repeat([[-0.2, -0.2], [0.0, 0.0]], 3, axis=0)
    _, figure = labels({}, Field("where targets spawn", low, low + 0.2, 0.2))
    (axes,) = figure.axes
    assert len(axes.patches) == 3  # two boxes and the disc
    assert [text.get_text() for text in axes.texts] == ["3 clients", "3 clients"]


def test_clients_that_are_alike_have_no_panel():
    found, figure = labels({"gravity": np.ones(4)})
    assert found == []
    assert "all clients are identical" in [text.get_text() for text in figure.texts]


def test_the_same_clients_give_the_same_file(tmp_path):
    clients = Clients("a title", {"gravity": np.arange(5.0)}, {})
    for name in ("a.png", "b.png"):
        write_figure(tmp_path / name, clients)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "b.png"}


@pytest.mark.parametrize("path", ["x.txt", "gone/x.png"])
def test_what_cannot_be_written_is_refused(tmp_path, path):
    with pytest.raises(UserError):
        check_target(tmp_path / path)
