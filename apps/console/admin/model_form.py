"""The form that declares a model: what is typed becomes the document that a catalog file would hold.

So there is one reader and one set of rules for all doors, and each problem is shown at the field that it is about.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from django import forms
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from apps.console.templatetags.console import prose
from llmgw.core import validation
from llmgw.core.engines import ENGINES
from llmgw.core.units import GIB, MIB
from llmgw.core.validation.rules import MOST_PROFILES
from llmgw.core.wanted import Model, Problem

_WHOLE: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_PROFILE: Final = re.compile(r"profiles\[(\d+)\]\.?(.*)")


class Text(forms.CharField):
    """One line of text, left as it was typed."""

    widget = UnfoldAdminTextInputWidget

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, **options})

    def clean(self, value: Any) -> Any:
        """Take anything: the catalog's own rules judge it."""
        return str(value or "").strip()

    def written(self, value: Any) -> str:
        """Return a document's value as it is typed."""
        return "" if value is None else str(value)


class Whole(Text):
    """A whole number, or whatever else was typed, which the rules will turn down with a cure."""

    widget = UnfoldAdminIntegerFieldWidget

    def clean(self, value: Any) -> Any:
        """Read a number."""
        text = super().clean(value)
        return int(text) if _WHOLE.fullmatch(text) else text


class Amount(Whole):
    """Bytes: a number, or a text such as `1.5GiB`."""

    widget = UnfoldAdminTextInputWidget

    def written(self, value: Any) -> str:
        """Write it in the largest unit that says it exactly."""
        units = (("GiB", GIB), ("MiB", MIB))
        exact = (f"{value // size}{unit}" for unit, size in units if isinstance(value, int) and not value % size)
        return next(exact, super().written(value))


class Commas(Text):
    """Several words with commas between them."""

    def clean(self, value: Any) -> Any:
        """Read the words."""
        return [word.strip() for word in super().clean(value).split(",") if word.strip()]

    def written(self, value: Any) -> str:
        """Write them in a line."""
        return ", ".join(value or ())


class Lines(Text):
    """Several texts, each on a line of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"widget": UnfoldAdminTextareaWidget(attrs={"rows": 2}), **options})

    def clean(self, value: Any) -> Any:
        """Read the lines."""
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]

    def written(self, value: Any) -> str:
        """Write one a line."""
        return "\n".join(value or ())


class Mapped(Lines):
    """A mapping, as YAML; what is none is left as it was typed, for the rules to turn down."""

    def clean(self, value: Any) -> Any:
        """Read the mapping."""
        text = Text.clean(self, value)
        try:
            told = yaml.safe_load(text) if text else None
        except (yaml.YAMLError, RecursionError):
            return text
        return told if told is None or isinstance(told, dict) else text

    def written(self, value: Any) -> str:
        """Write it as it stands in a catalog file."""
        return yaml.safe_dump(value, sort_keys=False, default_flow_style=None).strip() if value else ""


class Pairs(Lines):
    """Labels, `key=value` each."""

    def clean(self, value: Any) -> Any:
        """Read the pairs; what has no `=` is a key without a value."""
        pairs = (line.partition("=") for line in super().clean(value))
        return {key.strip(): value.strip() for key, _, value in pairs}

    def written(self, value: Any) -> str:
        """Write one a line."""
        return "\n".join(f"{key}={told}" for key, told in dict(value or {}).items())


class ProfileForm(forms.Form):
    """One way to run the model."""

    name = Text(label="name", initial="cpu", help_text="Yours, to tell profiles apart.")
    engine = Text(
        label="engine",
        initial="llamacpp",
        widget=UnfoldAdminSelectWidget(choices=[(name, name) for name in sorted(ENGINES)]),
    )
    device_classes = Commas(label="device classes", initial="cpu", help_text="What may run it, with commas.")
    devices = Whole(label="devices", initial="1", help_text="Over all nodes together.")
    tensor_parallel = Whole(label="tensor parallel", initial="1")
    pipeline_parallel = Whole(label="pipeline parallel", initial="1")
    nodes = Whole(label="nodes", initial="1")
    fabric = Text(label="fabric", help_text="For several nodes. Empty: any, and an NVLink domain first.")
    quantization = Text(
        label="quantisation", help_text="As the engine writes it: fp8. Empty: as the weights are; llama.cpp: always."
    )
    context_length = Whole(label="context length", help_text="Tokens. Empty: the model's own.")
    memory = Amount(label="memory per device", help_text="16GiB, or bytes. Empty: estimated.")
    arguments = Lines(label="engine arguments", help_text="One a line. Those that llmgw sets itself are refused.")


class ModelForm(forms.Form):
    """What the model is, and how much of it is wanted."""

    name = Text(label="name", help_text="What clients write into <code>model</code>.")
    source = Text(
        label="source of the weights",
        help_text="<code>hf://owner/repo[@revision]/file.gguf</code>, <code>file:///path/on/every/node</code> or "
        "<code>package://module/file</code>.",
    )
    size = Amount(label="size", help_text="Of the file, for placement: 1.5GiB, or bytes. Empty: not known.")
    sha256 = Text(label="SHA-256", help_text="Checked after the fetch. Empty: not checked.")
    replicas = Whole(label="replicas wanted", initial="1", help_text="0 keeps the entry and runs none.")
    priority = Whole(
        label="priority", initial="0", help_text="The higher is placed first, and takes places from lower ones."
    )
    aliases = Commas(label="aliases", help_text="Other names that it is served under, with commas.")
    labels = Pairs(label="labels that a node must carry", help_text="key=value, one a line.")
    facts = Mapped(
        label="what is known of it",
        help_text="Shape and weights, as <code>manage.py inspect</code> prints them. Empty: memory is guessed by size.",
    )
    reason = Text(label="why", help_text="For the audit.")
    revision = forms.CharField(required=False, widget=forms.HiddenInput)


class BaseProfileForms(forms.BaseFormSet):  # type: ignore[type-arg]
    """The profiles of one model."""

    def initial_form_count(self) -> int:
        """Treat every profile alike: one that stands as it was offered is meant as well."""
        return self.total_form_count() if self.is_bound else super().initial_form_count()


ProfileForms: Final = forms.formset_factory(
    ProfileForm,
    formset=BaseProfileForms,
    extra=0,
    can_order=True,
    can_delete=True,
    max_num=MOST_PROFILES,
    absolute_max=MOST_PROFILES + 5,
)
_OF_SOURCE: Final = {"source.uri": "source", "source.size": "size", "source.sha256": "sha256"}


@dataclass(slots=True)
class Sheet:
    """Both forms together, and the document they make."""

    model: ModelForm
    profiles: Any
    named: str | None = None
    """The name of the entry that is edited, which stays; None for one that is to be new."""
    kept: list[forms.Form] = field(default_factory=list)
    """The profiles that are not taken away, in their order."""
    loose: list[str] = field(default_factory=list)
    """Problems that belong to no field."""

    @classmethod
    def of(cls, document: Mapping[str, Any] | None, revision: int | None) -> "Sheet":
        """Begin with a document, or with a blank form."""
        if document is None:
            return cls(ModelForm(), ProfileForms(initial=[{}], prefix="profiles"))
        profiles = [_typed(ProfileForm, profile) for profile in document["profiles"]]
        model = {**_typed(ModelForm, {**document, **_of_source(document["source"])}), "revision": revision}
        return cls(ModelForm(initial=model), ProfileForms(initial=profiles, prefix="profiles"), document["name"])

    @classmethod
    def typed(cls, data: Any, named: str | None) -> "Sheet":
        """Take what was sent."""
        sheet = cls(ModelForm(data), ProfileForms(data, prefix="profiles"), named)
        sheet.model.is_valid()
        if sheet.profiles.is_valid():
            sheet.kept = list(sheet.profiles.ordered_forms)
        else:
            sheet.loose += [str(error) for error in sheet.profiles.non_form_errors()]
        return sheet

    @property
    def seen(self) -> int | None:
        """Return the revision that the edit began from; None for a new entry."""
        told = self.model.cleaned_data.get("revision", "")
        return int(told) if _WHOLE.fullmatch(told) else None

    def read(self) -> Model | tuple[Problem, ...]:
        """Read the document."""
        return validation.model_from_document(self.document())

    def document(self) -> dict[str, Any]:
        """Return what a catalog file would hold; what was left empty is left out."""
        told = {key: value for key, value in self.model.cleaned_data.items() if value not in ("", [], {}, None)}
        for key in ("reason", "revision"):
            told.pop(key, None)
        source = {"uri": told.pop("source", None), "size": told.pop("size", None), "sha256": told.pop("sha256", None)}
        if self.named is not None:
            told["name"] = self.named
        return {**told, "source": source, "profiles": [_profile(form.cleaned_data) for form in self.kept]}

    def place(self, problems: Iterable[Problem]) -> None:
        """Show each problem at the field that it is about."""
        for problem in problems:
            told = f"{problem.message} – {problem.cure}"
            form, name = self._find(problem.field)
            if form is None:
                self.loose.append(prose(told if problem.field in ("", "profiles") else problem.text()))
            else:
                form.add_error(name, prose(told))

    def _find(self, place: str) -> tuple[forms.Form | None, str]:
        inner = _PROFILE.fullmatch(place)
        if inner and int(inner[1]) < len(self.kept):
            return _own(self.kept[int(inner[1])], inner[2])
        return _own(self.model, _OF_SOURCE.get(place, place))

    @property
    def has_problems(self) -> bool:
        """Tell whether anything is to be corrected."""
        return bool(self.loose or self.model.errors or any(self.profiles.errors))


def _own(form: forms.Form, place: str) -> tuple[forms.Form | None, str]:
    """Return the form with the field's name if it has that field: `aliases[0]` and `labels.rack` are in one field."""
    name = re.split(r"[.\[]", place, maxsplit=1)[0]
    return (form, name) if name in form.fields else (None, name)


def _typed(kind: type[forms.Form], document: Mapping[str, Any]) -> dict[str, str]:
    """Return a document's values as they are typed into a form."""
    told: Iterator[tuple[str, Any]] = ((name, each) for name, each in kind.base_fields.items())
    defaults = {name: each.initial or "" for name, each in kind.base_fields.items()}
    return {
        name: each.written(document[name]) if name in document else defaults[name]
        for name, each in told
        if isinstance(each, Text)
    }


def _of_source(source: Any) -> dict[str, Any]:
    if isinstance(source, Mapping):
        return {"source": source["uri"], "size": source.get("size"), "sha256": source.get("sha256")}
    return {"source": source, "size": None, "sha256": None}


def _profile(told: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in told.items() if key not in ("ORDER", "DELETE") and value != ""}
    return {key: value for key, value in given.items() if value != [] or key == "device_classes"}
