"""The addresses of the API, below `/api/v1/`."""

from django.contrib.auth.decorators import login_required
from django.urls import path, re_path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from apps.console.api import models, nodes, problems, replicas, work

urlpatterns = [
    path("", login_required(SpectacularSwaggerSplitView.as_view(url_name="api-schema")), name="api-docs"),
    path("openapi.json", SpectacularJSONAPIView.as_view(), name="api-schema"),
    path("models", models.Models.as_view()),
    path("models/<str:name>", models.OneModel.as_view()),
    path("models/<str:name>/explain", models.Explained.as_view()),
    path("catalog", models.Catalog.as_view()),
    path("apply", models.Apply.as_view()),
    path("nodes", nodes.Nodes.as_view()),
    path("nodes/<str:name>", nodes.OneNode.as_view()),
    path("nodes/<str:name>/cordon", nodes.Cordon.as_view()),
    path("nodes/<str:name>/uncordon", nodes.Uncordon.as_view()),
    path("nodes/<str:name>/examine", nodes.Examine.as_view()),
    path("replicas", replicas.Replicas.as_view()),
    path("replicas/<str:model>/<int:ordinal>", replicas.OneReplica.as_view()),
    path("replicas/<str:model>/<int:ordinal>/explain", replicas.Explained.as_view()),
    path("replicas/<str:model>/<int:ordinal>/drain", replicas.Drain.as_view()),
    path("replicas/<str:model>/<int:ordinal>/restart", replicas.Restart.as_view()),
    path("passes", work.Passes.as_view()),
    path("passes/<int:token>", work.OnePass.as_view()),
    path("reconcile", work.Reconcile.as_view()),
    path("audit", work.Audit.as_view()),
    path("whoami", work.WhoAmI.as_view()),
    path("version", work.Version.as_view()),
    re_path(r"^(?P<rest>.*)$", problems.nothing_here),
]
