"""Prefixes that gateways put before tool names, undone by stated rules."""

import pytest
from hypothesis import given, strategies as st

from assay_stream.errors import ConfigurationError
from assay_stream.observe.observation import OwnName, Prefixes, stated_prefixes

GATEWAY = Prefixes({"github_": "github", "git_": "git"})
OVERLAPPING = Prefixes({"git_": "git", "git_hub_": "hub"})


def test_a_rule_gives_the_server_and_its_own_name() -> None:
    """The gateway's `github_create_issue` is `create_issue` of github."""
    own = GATEWAY.own("github_create_issue")
    assert own == OwnName(tool_name="create_issue", prefix="github_", server_id="github")


def test_a_name_without_a_rule_stays_as_it_was_shown() -> None:
    """Nothing is guessed from a name."""
    assert GATEWAY.own("gitlab_merge") == OwnName(tool_name="gitlab_merge")
    assert GATEWAY.own("github_") == OwnName(tool_name="github_")


def test_a_hostile_server_cannot_pass_its_tool_off_as_anothers() -> None:
    """`hub_push` of git is shown as `git_hub_push`, as `push` of hub would be: it is neither's."""
    assert OVERLAPPING.own("git_hub_push") == OwnName(tool_name="git_hub_push")
    assert OVERLAPPING.split([{"name": "git_hub_push"}]) == {(None, ""): [{"name": "git_hub_push"}]}


def test_the_server_that_the_gateway_names_settles_whose_tool_it_is() -> None:
    """Only the prefixes of that server count, whatever other names its tools imitate."""
    assert OVERLAPPING.own("git_hub_push", server_id="git").tool_name == "hub_push"
    assert OVERLAPPING.own("git_hub_push", server_id="hub").tool_name == "push"
    assert OVERLAPPING.own("git_hub_push", among=["git", "time"]).server_id == "git"
    imitation = GATEWAY.own("github_create_issue", server_id="evil")
    assert imitation == OwnName(tool_name="github_create_issue", server_id="evil")


def test_a_list_is_split_by_server() -> None:
    """Each part has its server's own names; everything else of a definition stays."""
    odd = [{"title": "no name"}, "no tool", {"name": 7}]
    parts = GATEWAY.split([{"name": "git_log", "x": 1}, {"name": "github_log"}, *odd])
    assert parts == {
        ("git", "git_"): [{"name": "log", "x": 1}],
        ("github", "github_"): [{"name": "log"}],
        (None, ""): odd,
    }


@given(st.dictionaries(st.text("ab_", min_size=1, max_size=4), st.sampled_from("xyz"), min_size=1), st.text("ab_c"))
def test_shown_names_are_never_lost(rules: dict[str, str], shown: str) -> None:
    """Law: prefix and own name together are what was shown, and only an unambiguous name is given to a server."""
    own = Prefixes(rules).own(shown)
    fitting = [prefix for prefix in rules if shown.startswith(prefix) and shown != prefix]
    assert own.prefix + own.tool_name == shown
    assert (own.server_id is not None) == (len(fitting) == 1)


@pytest.mark.parametrize(
    "rules", [["github_"], ["=github"], ["a_=x", "a_=y"], ["a" * 257 + "=x"], [f"{n}_=s" for n in range(257)]]
)
def test_bad_rules_are_refused(rules: list[str]) -> None:
    """A rule that cannot mean anything stops the command."""
    with pytest.raises(ConfigurationError, match="bad_prefix"):
        stated_prefixes(rules)
    with pytest.raises(ConfigurationError, match="bad_identifier"):
        stated_prefixes(["a_= "])
