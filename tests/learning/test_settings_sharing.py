"""Who keeps which part, unless a config says otherwise."""

from fedkl.learning.settings import PERSONAL, Sharing


def test_everything_is_the_servers_unless_it_is_said():
    assert Sharing() == ("federated", "federated", "federated", "none")
    assert PERSONAL[0] == Sharing().personal
