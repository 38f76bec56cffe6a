"""The models that operators declare, with the profiles they may run by."""
