"""A control plane for each test.

A conftest of a folder named on the command line is read before the settings are in place, so the app is imported late.
"""

import pytest


@pytest.fixture
def world(db):
    from tests.apps.replicas.world import World

    return World()


@pytest.fixture
def committed_world(transactional_db, redis_url):
    """The same where transactions are real, and what is sent on commit goes to a real broker."""
    from tests.apps.replicas.world import World

    return World()
