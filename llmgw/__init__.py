"""llmgw runs an organisation's own LLM service on its own GPU machines."""

__version__ = "0.1.0"
