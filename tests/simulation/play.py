"""Play a history of workers, assemblers or evaluations."""

from __future__ import annotations

import logging
from contextlib import contextmanager

from knowledgepulse_kafka.testing.virtual_time import NothingLeftError, run
from simulation.assemblers import AssemblerPlayer, assembler_history
from simulation.clock import simulated_process
from simulation.evaluators import EvaluatorPlayer, evaluator_history
from simulation.histories import history
from simulation.worker_player import WorkerPlayer

PLAYERS = {"worker": WorkerPlayer, "assembler": AssemblerPlayer, "evaluator": EvaluatorPlayer}
HISTORIES = {"worker": history, "assembler": assembler_history, "evaluator": evaluator_history}
"""Returns the history of a seed."""


def play(history, *, keep_log=False):
    """Play a history from its beginning to its end."""
    players = []

    async def course():
        players.append(PLAYERS[history.of](history, keep_log))
        return await players[0].run()

    try:
        with _silence(), simulated_process():
            return run(course)
    except NothingLeftError as error:
        players[0].violated(f"liveness: {error}")
        return players[0].outcome()
    finally:
        players[0].resources.close()


@contextmanager
def _silence():
    """Log nothing; loggers forget what they know of their levels at each change, which takes long."""
    disabled = logging.root.manager.disable
    if disabled >= logging.CRITICAL:
        yield
        return
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(disabled)
