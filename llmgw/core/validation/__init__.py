"""What may be declared: documents to models and back, and every rule that a model must keep."""

from llmgw.core.validation.document import catalog_from_document, model_from_document, model_to_document
from llmgw.core.validation.facts import facts_from_document, facts_to_document
from llmgw.core.validation.fleet import fleet_from_document
from llmgw.core.validation.rules import validate, validate_catalog

__all__ = [
    "catalog_from_document",
    "facts_from_document",
    "facts_to_document",
    "fleet_from_document",
    "model_from_document",
    "model_to_document",
    "validate",
    "validate_catalog",
]
