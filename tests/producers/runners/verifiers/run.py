import os

from bakery import MODEL, OUTPUT, SCRIPT
from verifiers.v1.cli.eval.main import main

limit = ["--env.agent.max-turns", str(SCRIPT["limit"])] if SCRIPT["limit"] else []
main(
    [
        *("scales", "--env.agent.harness.id", "scales", "--model", MODEL, "--output-dir", f"{OUTPUT}/runs"),
        *("--client.base-url", os.environ["OPENAI_BASE_URL"], "--client.api-key-var", "OPENAI_API_KEY"),
        *("--env.agent.runtime.type", "subprocess", "--no-push", "--no-rich", *limit),
    ]
)
