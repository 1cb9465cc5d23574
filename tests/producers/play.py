"""Plays a run: starts the model and the receiver, and a runner as a process that knows nothing else."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from aiohttp import web

from producers import receiver
from producers.model import ScriptedModel
from producers.producer import ROOT, SPANS, Producer
from producers.receiver import Receiver
from producers.script import Script, script

LIMIT = 180.0
"""Seconds for a run; an interrupted one has as many to end."""
_NOWHERE = "http://127.0.0.1:9"


def play(producer: Producer, run: str, output: Path) -> None:
    """Play a run, and leave in ``output`` what the producer wrote, its log and its requests to the model."""
    shutil.rmtree(output, ignore_errors=True)
    for folder in ("home", "work"):
        (output / folder).mkdir(parents=True)
    followed = script(run, producer.tools)
    model = ScriptedModel(followed, producer.texts, output / "requests.jsonl")
    asyncio.run(_play(producer, run, followed, model, output))


async def _play(producer: Producer, run: str, followed: Script, model: ScriptedModel, output: Path) -> None:
    server, address = await _serve(model, Receiver(output / SPANS))
    try:
        await _run(producer, _environment(producer, followed, run, output, address), model, output)
    finally:
        await server.cleanup()


async def _serve(model: ScriptedModel, collector: Receiver) -> tuple[web.AppRunner, str]:
    app = web.Application(client_max_size=2**26)
    app.router.add_post(receiver.PATH, collector.receive)
    app.router.add_post("/{path:.*}", model.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def _run(producer: Producer, environment: dict[str, str], model: ScriptedModel, output: Path) -> None:
    command = [part.format(here=producer.place / "runner") for part in producer.command]
    program = shutil.which(command[0], path=environment["PATH"]) or command[0]
    with (output / "program.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program,
            *command[1:],
            env=environment,
            cwd=output / "work",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        held = asyncio.create_task(model.holding.wait())
        ended = asyncio.create_task(process.wait())
        try:
            await asyncio.wait({held, ended}, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
            if held.done():
                os.killpg(process.pid, signal.SIGINT)
            await asyncio.wait_for(ended, LIMIT)
        except TimeoutError:
            print(f"{output}: still running after {LIMIT:.0f} s", file=sys.stderr)
        finally:
            held.cancel()
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


def _environment(
    producer: Producer, followed: Script, run: str, output: Path, address: str
) -> dict[str, str]:
    """Return variables that lead every client here, and everything else nowhere."""
    place = producer.place
    return {
        "PATH": f"{place}/bin:{place}/node_modules/.bin:{os.environ['PATH']}",
        "HOME": str(output / "home"),
        "PYTHONPATH": str(ROOT / "tests" / "producers" / "python"),
        "LANG": "C.UTF-8",
        "PRODUCER_RUN": run,
        "PRODUCER_VARIANT": producer.name.partition("/")[2],
        "PRODUCER_SCRIPT": followed.instructions(run),
        "PRODUCER_OBJECTIVE": followed.objective,
        "PRODUCER_LIMIT": str(followed.limit or ""),
        "PRODUCER_RESUMED": followed.resumed,
        "PRODUCER_OUTPUT": str(output),
        "PRODUCER_MODEL_URL": address,
        "PRODUCER_RECEIVER_URL": address,
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_BASE": f"{address}/v1",
        "OPENAI_API_KEY": "unused",
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "unused",
        "GOOGLE_GEMINI_BASE_URL": address,
        "GEMINI_API_KEY": "unused",
        "OTEL_EXPORTER_OTLP_ENDPOINT": address,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": "bakery",
        "OTEL_METRICS_EXPORTER": "none",
        "DO_NOT_TRACK": "1",
        "HTTP_PROXY": _NOWHERE,
        "HTTPS_PROXY": _NOWHERE,
        "NO_PROXY": "127.0.0.1,localhost",
        **producer.environment,
    }
