"""A model as people write it, in YAML or as an API's body, to the value that the core knows, and back."""

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final

from llmgw.core.units import ModelName
from llmgw.core.validation.facts import facts_of, facts_to_document
from llmgw.core.validation.form import AMOUNT, TEXT, WHOLE, Form
from llmgw.core.wanted import Model, Problem, Profile, Source

CPU_PROFILE: Final = Profile(name="cpu", engine="llamacpp")
"""What a model without `profiles` runs by."""

MODEL_KEYS: Final = ("name", "aliases", "source", "replicas", "priority", "labels", "facts", "profiles")
SOURCE_KEYS: Final = tuple(field.name for field in fields(Source))
PROFILE_KEYS: Final = tuple(field.name for field in fields(Profile))


def model_from_document(raw: object, path: str = "") -> Model | tuple[Problem, ...]:
    """Read one model; whatever is wrong comes back as problems, each with its place below `path`."""
    problems: list[Problem] = []
    model = _model(Form(raw, path, MODEL_KEYS, problems))
    return tuple(problems) or model


def catalog_from_document(raw: object) -> tuple[Model, ...] | tuple[Problem, ...]:
    """Read `models: [ … ]`; the problems of all models come together."""
    problems: list[Problem] = []
    document = Form(raw, "", ("models",), problems)
    if not problems and document.values.get("models") is None:
        problems.append(
            Problem("models", "key.missing", "models is missing", "write `models: []` for a catalog of none")
        )
    models = tuple(_model(form) for form in document.forms("models", MODEL_KEYS))
    return tuple(problems) or models


def model_to_document(model: Model) -> dict[str, Any]:
    """Write a model as a document that reads back as the same model; what stands at its default is left out."""
    return {
        "name": model.name,
        **_said(aliases=list(model.aliases)),
        "source": _source_to_document(model.source),
        "replicas": model.replicas,
        **_said(priority=model.priority, labels=dict(model.labels)),
        **_said(facts=facts_to_document(model.facts) if model.facts else None),
        "profiles": [_profile_to_document(profile) for profile in model.profiles],
    }


def _source_to_document(source: Source) -> str | dict[str, Any]:
    known = _said(size=source.size, sha256=source.sha256)
    return {"uri": source.uri, **known} if known else source.uri


def _profile_to_document(profile: Profile) -> dict[str, Any]:
    always = ("name", "engine", "device_classes")
    told = {key: getattr(profile, key) for key in PROFILE_KEYS if key in always or _differs(profile, key)}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in told.items()}


def _differs(profile: Profile, key: str) -> bool:
    return bool(getattr(profile, key) != getattr(CPU_PROFILE, key))


def _said(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def _model(form: Form) -> Model:
    return Model(
        name=ModelName(form.need("name", TEXT, "")),
        source=_source(form),
        profiles=_profiles(form),
        replicas=form.take("replicas", WHOLE, 1),
        aliases=form.texts("aliases"),
        priority=form.take("priority", WHOLE, 0),
        labels=MappingProxyType(dict(form.pairs("labels"))),
        facts=facts_of(form),
    )


def _source(model: Form) -> Source:
    raw = model.values.get("source")
    if raw is None or isinstance(raw, str):
        return Source(model.need("source", TEXT, ""))
    form = Form(raw, model.at("source"), SOURCE_KEYS, model.problems)
    if not isinstance(raw, Mapping):
        return Source("")
    return Source(form.need("uri", TEXT, ""), form.maybe("size", AMOUNT), form.maybe("sha256", TEXT))


def _profiles(model: Form) -> tuple[Profile, ...]:
    if model.values.get("profiles") is None:
        return (CPU_PROFILE,)
    return tuple(_profile(form) for form in model.forms("profiles", PROFILE_KEYS))


def _profile(form: Form) -> Profile:
    return Profile(
        name=form.need("name", TEXT, ""),
        engine=form.need("engine", TEXT, ""),
        device_classes=form.texts("device_classes", CPU_PROFILE.device_classes),
        devices=form.take("devices", WHOLE, 1),
        tensor_parallel=form.take("tensor_parallel", WHOLE, 1),
        pipeline_parallel=form.take("pipeline_parallel", WHOLE, 1),
        nodes=form.take("nodes", WHOLE, 1),
        quantization=form.maybe("quantization", TEXT),
        context_length=form.maybe("context_length", WHOLE),
        memory=form.maybe("memory", AMOUNT),
        arguments=form.texts("arguments"),
        fabric=form.maybe("fabric", TEXT),
    )
