"""Messages of a session that are kept as bytes."""

from datetime import UTC, datetime

import pytest

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.packed import PackedMessages

AT = datetime(2026, 1, 5, 10, 0, 0, 123456, UTC)
MESSAGES = [
    ir.Message("user", (ir.Text("Fix it — ✅ \ud800"),), AT),
    ir.Message("assistant", (ir.Reasoning("how?"), ir.Text("")), datetime.max.replace(tzinfo=UTC)),
    ir.message("assistant", ir.ToolCall("mcp__files__read", {"a": [1, 2.0, None, 2**70]}, "1", None, 3.5)),
    ir.message("assistant", ir.ToolCall("mcp__a__b", '{"a": 1}', "", "named")),
    ir.message("tool", ir.ToolCallResponse("é", "1", "read", failed=True, mcp_server="files")),
    ir.message("assistant", ir.Error("stopped", interruption=True)),
    ir.message("system", ir.ToolDefinition("read", "reads", {"type": "object"})),
]


@pytest.fixture
def packed():
    packed = PackedMessages()
    packed.extend(MESSAGES)
    return packed


def test_messages_come_out_as_they_went_in(packed):
    assert list(packed) == MESSAGES
    assert packed[2:4] == MESSAGES[2:4]
    assert [*reversed(packed)] == MESSAGES[::-1]


def test_it_is_a_list(packed):
    packed[0] = MESSAGES[1]
    del packed[1]
    packed.insert(0, MESSAGES[-1])
    packed.reverse()
    assert list(packed) == [*MESSAGES[:1:-1], MESSAGES[1], MESSAGES[-1]]
    assert packed.pop() == MESSAGES[-1]
    assert len(packed) == len(MESSAGES) - 1
