"""The README's test of its example, which runs on brokers in memory."""

from support.documents import blocks


def test_the_test_of_the_readme_passes():
    names = {"__name__": "example"}
    for block in blocks("worker/knowledgepulse_kafka/README.md"):
        exec(compile(block.text, f"README.md:{block.line}", "exec"), names)
    names["test_another_member_bills_the_order_of_one_that_the_brokers_cannot_reach"]()
