"""Play a history of workers, assemblers or evaluations."""

from __future__ import annotations

import logging

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

    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with simulated_process():
            return run(course)
    except NothingLeftError as error:
        players[0].violated(f"liveness: {error}")
        return players[0].outcome()
    finally:
        logging.disable(disabled)
        players[0].resources.close()
