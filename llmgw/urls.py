"""Where the web process's pages are put together."""

from django.contrib import admin
from django.urls import include, path

from apps.console import views

urlpatterns = [
    path("", views.home, name="home"),
    path("healthz", views.healthz, name="healthz"),
    path("sign-in/<str:secret>/", views.sign_in, name="sign-in"),
    path("admin/", admin.site.urls),
    path("api/v1/", include("apps.console.api.urls")),
]
