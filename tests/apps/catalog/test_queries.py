"""Models are read in a fixed number of queries, and described as they were declared."""

from datetime import UTC, datetime

import pytest

from apps.audit.actions import SYSTEM
from apps.catalog import queries
from apps.catalog.actions import Declared, declare, declare_all
from llmgw.core.units import ModelName
from llmgw.core.validation import model_from_document
from llmgw.core.wanted import Model, Profile, Source

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def a_model(name):
    profiles = (Profile("cpu", "llamacpp"), Profile("gpu", "llamacpp", ("l40s-45g",)))
    return Model(ModelName(name), Source("file:///models/a.gguf"), profiles, replicas=2, aliases=(f"{name}-latest",))


@pytest.mark.parametrize("count", [3, 60])
def test_two_queries_for_any_number_of_models(count, django_assert_num_queries):
    wanted = tuple(a_model(f"m{index:02}") for index in range(count))
    declare_all(wanted, by=SYSTEM, now=NOON)
    with django_assert_num_queries(2):
        assert queries.models() == wanted


def test_a_description_is_the_document_that_declares_it_and_what_became_of_that():
    done = declare(a_model("smollm2"), by=SYSTEM, now=NOON)
    assert isinstance(done, Declared)
    told = queries.describe(done.row)
    became = {key: told.pop(key) for key in ("revision", "created_at", "changed_at", "retired_at")}
    assert became == {"revision": 1, "created_at": NOON.isoformat(), "changed_at": NOON.isoformat(), "retired_at": None}
    assert model_from_document(told) == a_model("smollm2")
