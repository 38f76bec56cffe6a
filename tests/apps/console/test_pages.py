"""Every page renders: with one of everything, with nothing, with what is missing, and with Redis away."""

from datetime import timedelta

import pytest
from django.urls import reverse

from apps.audit.models import AuditRow
from apps.console import look
from apps.nodes.models import NodeFactsRow, NodeRow
from apps.replicas.models import OrderRow, ReconcileRow, ReplicaRow, ShardRow
from llmgw.core.world import State
from tests.apps.console import fleet

pytestmark = pytest.mark.django_db

LISTS = [
    f"admin:{name}_changelist"
    for name in (
        "nodes_noderow",
        "catalog_modelrow",
        "replicas_replicarow",
        "replicas_passrow",
        "replicas_orderrow",
        "audit_auditrow",
        "accounts_inferencekeyrow",
        "accounts_apitokenrow",
        "auth_user",
        "auth_group",
    )
]


def shown(client, url, status=200):
    response = client.get(url)
    assert response.status_code == status, (url, response.status_code)
    return response.content.decode()


def page_of(name):
    return look.replica_url(ReplicaRow.objects.get(model__name=name.split("/")[0], ordinal=name.split("/")[1]).pk)


@pytest.mark.parametrize("name", LISTS)
def test_lists_render_empty_and_full(console, redis_url, name):
    shown(console, reverse(name))
    fleet.everything()
    shown(console, reverse(name))
    shown(console, reverse(name) + "?q=gpu")


@pytest.mark.parametrize("name", LISTS)
def test_lists_render_without_redis(console, no_redis, name):
    fleet.everything()
    shown(console, reverse(name))


def test_every_row_has_a_page(console, redis_url):
    fleet.everything()
    urls = [look.node_url(name) for name in NodeRow.objects.values_list("name", flat=True)]
    urls += [look.replica_url(pk) for pk in ReplicaRow.objects.values_list("pk", flat=True)]
    urls += [look.model_url(name) for name in ("smollm2", "llama-70b", "phi-mini")]
    urls += [
        reverse("admin:replicas_orderrow_change", args=[pk]) for pk in OrderRow.objects.values_list("pk", flat=True)
    ]
    urls += [reverse("admin:audit_auditrow_change", args=[pk]) for pk in AuditRow.objects.values_list("pk", flat=True)]
    urls += [reverse("admin:replicas_passrow_change", args=[7])]
    for url in urls:
        shown(console, url)


@pytest.mark.parametrize(
    "url",
    [
        "/admin/nodes/noderow/nobody/change/",
        "/admin/nodes/noderow/%00/change/",
        "/admin/replicas/replicarow/999/change/",
        "/admin/replicas/replicarow/99999999999999999999/change/",
        "/admin/replicas/replicarow/%C2%B2/change/",
        "/admin/catalog/modelrow/nothing/change/",
        "/admin/catalog/modelrow/nothing/edit/",
        "/admin/catalog/modelrow/nothing/delete/",
    ],
)
def test_what_is_not_there_leads_back_with_a_message(console, url):
    response = console.get(url, follow=True)
    assert response.redirect_chain
    assert "exist" in response.content.decode()


# --- first page ---------------------------------------------------------------------------------------------------


def test_the_first_page_says_what_needs_somebody(console, ticking):
    fleet.everything()
    page = shown(console, "/admin/")
    for told in ("fell off the bus (Xid 79)", "pidfile.start-time", "unreachable", "lost", "crash-looping", "gpu03"):
        assert told in page
    assert "1 of 3 ready, 1 starting, 1 without a place" in page
    assert "sent 4 times and is not answered" in page


def test_the_first_page_is_all_right_when_it_is(console, ticking):
    fleet.many(2)
    page = shown(console, "/admin/")
    assert "all right" in page
    assert "Needs a look" not in page


def test_the_first_page_is_never_green_while_redis_is_away(console, no_redis):
    fleet.many(1)
    assert "Redis does not answer" in shown(console, "/admin/")
    overview = console.get("/admin/").context["overview"]
    assert (overview.verdict, overview.tone) == ("not known", "bad")


def test_the_first_page_says_that_beat_is_silent(console, redis_url):
    from apps.nodes.heartbeats import SENT_KEY
    from apps.nodes.redis import client

    assert "No tick has been sent" in shown(console, "/admin/")
    client().zadd(SENT_KEY, {"1": fleet.NOON.timestamp() - 10_000_000})
    assert "No tick for" in shown(console, "/admin/")
    assert console.get("/admin/").context["overview"].tone == "bad"


def test_the_first_page_says_that_no_pass_runs(console, ticking):
    long_ago = fleet.NOON - timedelta(days=100)
    ReconcileRow.objects.create(pk=1, requested=3, done=2, token=2, finished_at=long_ago)
    assert "No pass for" in shown(console, "/admin/")
    assert console.get("/admin/").context["overview"].tone == "bad"


def test_the_first_page_of_an_empty_fleet_says_what_to_do(console, ticking):
    page = shown(console, "/admin/")
    assert "llmgw-node run" in page
    assert "Add a model" in page


# --- the parts that keep themselves fresh -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["/admin/", "/admin/nodes/noderow/gpu01/change/", "/admin/catalog/modelrow/phi-mini/change/"]
)
def test_a_part_is_sent_again_only_when_it_differs(console, redis_url, name):
    fleet.everything()
    for _ in range(5):  # the part says how long ago things were: a second may end between two looks
        page = console.get(name)
        seen = page.context["seen"]
        assert f'hx-get="{name}?live={seen}"' in page.content.decode()
        same = console.get(f"{name}?live={seen}", headers={"HX-Request": "true"})
        if same.status_code == 204:
            break
    assert (same.status_code, same.content) == (204, b"")
    NodeRow.objects.filter(name="gpu01").update(cordoned=True)
    ReplicaRow.objects.filter(state=State.FAILED).update(why="something else")
    other = console.get(f"{name}?live=none", headers={"HX-Request": "true"})
    assert other.status_code == 200
    assert other.content.decode().startswith('<div class="c-live"')


# --- nodes --------------------------------------------------------------------------------------------------------


def test_a_node_says_what_it_has_and_what_is_wrong(console, redis_url):
    fleet.everything()
    page = shown(console, look.node_url("gpu02"))
    for told in ("h100-80g", "80.0 GiB", "fell off the bus", "names another process", "Debian 12", "rack=a"):
        assert told in page
    assert "no NVIDIA driver" in shown(console, look.node_url("laptop"))
    assert "llama-70b/1" in shown(console, look.node_url("gpu01"))


def test_a_node_without_an_inventory_invents_nothing(console, redis_url):
    fleet.blank("newcomer")
    page = shown(console, look.node_url("newcomer"))
    assert "No inventory has come" in page
    assert "0.0 GiB" not in page


def test_a_node_shows_its_hardware_and_what_is_wrong_with_it(console, redis_url):
    fleet.wired()
    page = shown(console, look.node_url("gpu06"))
    for part in (
        *("0/mig1", "a100-80g-mig-3g.40gb", "20.0 GiB of others, 4.0 GiB of unknown holders", "61 °C, 342 W"),
        *("device.unhealthy.remap", "GPU 1: row remap pending", "nvidia-smi -r -i 1"),
        *("0x0002c90300abcdef", "no light", "400 Gb/s together", "NCCL_IB_HCA==mlx5_0:1"),
        *("1 fail, 0 warn, 1 unknown, 1 pass", "gpu.row-remap", "safe while engines serve", "580.95.05"),
        *("256.0 GiB", "half of the bandwidth is missing"),
    ):
        assert part in page
    assert page.index("device.unhealthy.remap") < page.index("port.down"), "the most serious first"


def test_the_doctor_is_sent_from_the_node_s_page(console, redis_url):
    fleet.joined("gpu06")
    console.post(reverse("admin:nodes_noderow_examine", args=["gpu06"]), {"reason": "slow"})
    assert OrderRow.objects.get(kind="examine").node.name == "gpu06"
    assert "has not run here yet" in shown(console, look.node_url("gpu06"))


def test_a_node_with_odd_json_still_has_a_page(console, redis_url):
    row = fleet.blank("odd")
    NodeRow.objects.filter(pk=row.pk).update(labels={}, findings=[{}], fabrics=[3])
    NodeFactsRow.objects.create(node=row, inventory=[], examination={"at": "noon"})
    shown(console, look.node_url("odd"))
    shown(console, "/admin/")
    shown(console, reverse("admin:nodes_noderow_changelist"))


# --- replicas and models ------------------------------------------------------------------------------------------


def test_a_replica_shows_each_start_and_pins_the_first_failure(console, redis_url):
    fleet.everything()
    page = shown(console, page_of("llama-70b/1"))
    assert "First failure: attempt 1" in page
    assert "ggml_backend_alloc: failed to allocate" in page
    assert "fetching 3 min 12 s" in page
    assert page.index("Start 2") < page.index("Start 1")


def test_a_replica_without_shards_says_why(console, redis_url):
    fleet.everything()
    page = shown(console, page_of("llama-70b/3"))
    assert "Nowhere: it has not been started yet." in page
    assert "device GPU-0 is taken" in page
    assert "uncordon gpu03" in page


def test_a_shard_that_nothing_is_known_of_still_has_a_line(console, redis_url):
    node = fleet.joined("gpu01")
    row = fleet.replica(fleet.declared(), 1, State.PLACED, profile="cpu", attempt=1)
    ShardRow.objects.create(
        replica=row,
        node=node,
        launch_id="bare",
        attempt=1,
        state=State.PLACED,
        state_since=fleet.NOON,
        created_at=fleet.NOON,
        failure={},
    )
    assert "no step has been reported" in shown(console, look.replica_url(row.pk))


def test_a_model_says_why_it_is_not_running(console, redis_url):
    fleet.everything()
    page = shown(console, look.model_url("llama-70b"))
    assert "Why is it not running?" in page
    assert "class.mismatch" in page
    assert "/v1/chat/completions" in page
    assert "Why is it not running?" not in shown(console, look.model_url("smollm2"))
    assert "out-of-memory" in shown(console, look.model_url("phi-mini"))


# --- how many queries ---------------------------------------------------------------------------------------------

BOUND = 20
"""What the frame, the person and the list itself may cost, however long the list is."""


@pytest.mark.parametrize("count", [3, pytest.param(300, marks=pytest.mark.slow)])
def test_lists_cost_the_same_however_long_they_are(console, redis_url, django_assert_max_num_queries, count):
    fleet.many(count)
    for name in ("nodes_noderow", "catalog_modelrow", "replicas_replicarow"):
        with django_assert_max_num_queries(BOUND):
            shown(console, reverse(f"admin:{name}_changelist"))
    with django_assert_max_num_queries(BOUND):
        shown(console, "/admin/")


# --- safe on any network ------------------------------------------------------------------------------------------


def test_pages_load_nothing_from_elsewhere_and_run_no_script_of_their_own(console, redis_url):
    import re

    fleet.everything()
    for url in ("/admin/", look.node_url("gpu01"), look.model_url("llama-70b"), page_of("phi-mini/1"), "/api/v1/"):
        response = console.get(url)
        page = response.content.decode()
        assert "script-src 'self' 'unsafe-eval'" in response.headers["Content-Security-Policy"]
        assert not re.search(r'(src|href)="(https?:)?//', page), url
        assert not re.search(r"<script(?![^>]*\bsrc=)[^>]*>\s*[^<\s]", page), url


def test_a_database_that_is_away_is_said_in_words(console, redis_url, monkeypatch):
    from django.db import OperationalError

    from apps.console import overview

    def away(*_):
        raise OperationalError("could not connect to server")

    monkeypatch.setattr(overview, "gather", away)
    page = shown(console, "/admin/", status=503)
    assert "The database does not answer." in page
    assert "could not connect" not in page
