"""The worker's image is built from existing files, runs existing commands, and not as root."""

import json
import re
import shlex
import subprocess
import sys
import tomllib

from worker.settings import WebSettings


def arguments_of(instructions, name):
    return [arguments for instruction, arguments in instructions if instruction == name]


def copied_from_the_context(dockerfile):
    copies = [shlex.split(arguments) for arguments in arguments_of(dockerfile, "COPY")]
    return {source for *sources, _ in copies if not sources[0].startswith("--from=") for source in sources}


def test_every_copied_file_exists(dockerfile, root):
    assert {source for source in copied_from_the_context(dockerfile) if not (root / source).exists()} == set()


def test_the_build_context_has_exactly_the_copied_files(dockerfile, root):
    """Otherwise, the copy fails, or the build sends gigabytes of virtual environment."""
    first, *patterns = (root / ".dockerignore").read_text().split()

    assert first == "*"
    assert {pattern[1:] for pattern in patterns if pattern.startswith("!")} == copied_from_the_context(
        dockerfile
    )


def test_stages_copy_from_existing_stages(dockerfile):
    stages = {arguments.split(" AS ")[1] for arguments in arguments_of(dockerfile, "FROM")[:-1]}
    used = set(re.findall(r"--from=(\S+)", " ".join(arguments_of(dockerfile, "COPY"))))

    assert used == stages


def test_the_dependencies_are_those_of_the_worker_extra(dockerfile, root):
    """The Dockerfile reads them from pyproject.toml, so that source changes keep their layer."""
    (step,) = (step for step in arguments_of(dockerfile, "RUN") if "optional-dependencies" in step)
    command = shlex.split(step.split(" > ")[0])

    printed = subprocess.check_output([sys.executable, *command[1:]], cwd=root, text=True)

    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert printed.splitlines() == [*project["dependencies"], *project["optional-dependencies"]["worker"]]


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
    assert (root / sample).is_file()
    assert base.startswith(f"python:{python}-")
    assert "HF_HUB_OFFLINE=1" in " ".join(arguments_of(final_stage, "ENV"))


def test_the_health_check_uses_the_liveness_probe(final_stage):
    port = str(WebSettings().port)
    (check,) = arguments_of(final_stage, "HEALTHCHECK")

    assert f"http://127.0.0.1:{port}/livez" in check
    assert arguments_of(final_stage, "EXPOSE") == [port]
