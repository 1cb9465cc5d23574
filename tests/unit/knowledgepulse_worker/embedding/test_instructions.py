"""What the processor has, and what oneDNN's variable takes away."""

import pytest

from knowledgepulse_worker.embedding.instructions import allows, has_bfloat16


@pytest.fixture
def limit(monkeypatch):
    """Sets the limit, or removes it."""

    def to(value):
        monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)
        monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
        if value:
            monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", value)

    return to


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        ("", {"avx2", "avx512vnni"}),
        ("AVX512_CORE_VNNI", {"avx2", "avx512vnni"}),
        ("avx2", {"avx2"}),
        ("SSE41", set()),
    ],
)
def test_the_limit_of_onednn_also_holds_for_our_own_products(limit, value, allowed):
    limit(value)

    assert {name for name in ("avx2", "avx512vnni") if allows(name)} == allowed


@pytest.mark.parametrize(
    ("flags", "value", "expected"),
    [
        ("fpu avx2 avx512f avx512_bf16", "", True),
        ("fpu avx2 avx512f amx_bf16", "", True),
        ("fpu avx2 avx512f avx512_vnni", "", False),
        ("fpu avx2 avx512f avx512_bf16", "AVX2", False),
    ],
)
def test_linux_says_whether_there_is_bfloat16(tmp_path, limit, flags, value, expected):
    limit(value)
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nmodel name\t: any\nflags\t\t: {flags}\n\nprocessor\t: 1\n")

    assert has_bfloat16(cpuinfo) is expected
    assert not has_bfloat16(tmp_path / "another system")
