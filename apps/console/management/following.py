"""Tells how a model comes up: each move of its replicas once, with the time since the one before."""

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from apps.replicas.models import ReplicaRow, TransitionRow
from llmgw.core.world import State

LOOK_EVERY_S: Final = 0.25

Say = Callable[..., None]


class Follower:
    """Looks at the rows of one model until one of its replicas serves."""

    def __init__(self, model: str, since: datetime, say: Say, answers: Callable[[], bool]) -> None:
        self._model = model
        self._say = say
        self._answers = answers
        self._since = since
        self._last_move = 0
        self._moved_at: dict[str, datetime] = {}
        self._refusals: dict[str, str] = {}

    def follow(self, stopping: threading.Event) -> bool:
        """Tell moves and refusals as they come; True once the model serves, False if we are to stop first."""
        while True:
            self._tell_moves()
            # A row may tell of before a reboot: that it answers is what counts.
            if self._replicas().filter(state=State.READY).exists() and self._answers():
                self._tell_moves()  # the last came after we looked
                return True
            self._tell_refusals()
            if stopping.wait(LOOK_EVERY_S):
                return False

    def _replicas(self) -> Any:
        found = ReplicaRow.objects.filter(model__name=self._model, gone_at__isnull=True)
        return found.select_related("model").order_by("id")

    def _tell_moves(self) -> None:
        moves = TransitionRow.objects.filter(
            replica__model__name=self._model, shard__isnull=True, id__gt=self._last_move, at__gte=self._since
        )
        for move in moves.select_related("replica__model").order_by("id"):
            name = move.replica.name if move.replica else self._model
            began = self._moved_at.get(name)
            took = {} if began is None else {"seconds": round((move.at - began).total_seconds(), 2)}
            why = {"why": move.why} if move.why else {}
            level = "warning" if move.after == State.FAILED else "info"
            self._say(f"{name} {move.before} → {move.after}", level=level, **took, **why)
            self._moved_at[name] = move.at
            self._last_move = move.pk

    def _tell_refusals(self) -> None:
        for replica in self._replicas().filter(state=State.QUEUED):
            told = "; ".join(f"{no.get('node') or 'fleet'}: {no['text']}" for no in replica.refusals)
            if told and self._refusals.get(replica.name) != told:
                self._say(f"{replica.name} waits for a place: {told}")
                self._refusals[replica.name] = told
