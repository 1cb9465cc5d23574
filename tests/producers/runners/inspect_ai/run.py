from bakery import MODEL, OBJECTIVE, OUTPUT, SCRIPT, VARIANT, weigh
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, mean, scorer
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import ToolError, tool


@tool(name="weigh")
def weighing():
    async def execute(what: str):
        """Weigh a thing.

        Args:
            what: the thing to weigh.
        """
        try:
            return weigh(what)
        except RuntimeError as error:
            raise ToolError(str(error)) from error

    return execute


def grader(name, reward):
    @scorer(metrics=[mean()], name=name)
    def graded():
        async def score(state, target):
            return Score(value=reward)

        return score

    return graded()


limit = {"message_limit": 1 + 2 * SCRIPT["limit"]} if SCRIPT["limit"] else {}
task = Task(
    dataset=[Sample(input=OBJECTIVE, target="")],
    solver=[use_tools(weighing()), generate()],
    scorer=[grader(name, reward) for name, reward in SCRIPT["rewards"].items()] or None,
    **limit,
)
evaluate(
    task,
    model=f"openai/{MODEL}",
    model_args={"responses_api": False},
    log_dir=f"{OUTPUT}/logs",
    log_format="json" if VARIANT == "json" else "eval",
    display="none",
    fail_on_error=False,
)
