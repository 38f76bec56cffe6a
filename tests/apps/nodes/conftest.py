"""Nodes that have joined, and ears for what the app tells.

A conftest of a folder named on the command line is read before the settings are in place, so the app is imported late.
"""

from collections import defaultdict

import pytest

from tests.apps.nodes.reports import NOON, a_registration


@pytest.fixture
def told():
    """What each signal has told, by its name: the keywords of every time."""
    from apps.nodes import signals

    heard = defaultdict(list)
    listeners = {}
    for name in ("nodes_changed", "node_lost", "node_returned", "ticked"):

        def listen(signal, sender, name=name, **kwargs):
            heard[name].append(kwargs)

        listeners[name] = listen
        getattr(signals, name).connect(listen)
    yield heard
    for name, listener in listeners.items():
        getattr(signals, name).disconnect(listener)


@pytest.fixture
def joined():
    """`joined("gpu07")`: the row of a node that has told hello and is ready, of epoch 1."""

    from apps.nodes import actions
    from apps.nodes.models import NodeRow

    def join(name="gpu07", now=NOON):
        actions.receive(a_registration(name, seq=1), now=now)
        actions.receive(a_registration(name, epoch=1, seq=2), now=now)
        return NodeRow.objects.get(name=name)

    return join
