from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.messages.wrapped import response_of

MESSAGE = {"content": "812 g", "type": "tool", "name": "weigh", "tool_call_id": "c0", "status": "error"}


def test_what_openllmetry_puts_around_a_tools_message_is_a_loss():
    value = {
        "output": {"lc": 1, "type": "constructor", "id": ["ToolMessage"], "kwargs": MESSAGE},
        "kwargs": {"color": "green"},
    }
    losses = Losses()
    response = response_of(value, "response", losses)
    assert (response.response, response.id, response.failed) == ("812 g", "c0", True)
    assert "response.kwargs" in losses


def test_a_tool_whose_result_is_the_answer_says_so():
    value = {"tool_output": {"blocks": [], "raw_output": "", "is_error": False}, "tool_id": "c0"}
    for returns in (True, False):
        response = response_of(value | {"return_direct": returns}, "response", Losses())
        assert response.is_answer is returns
