"""Prove that an attention computes what torch.nn.MultiheadAttention computes.

In a test::

    from mha_parity import assert_parity


    def test_attention():
        assert_parity(attention)  # 500 cases, all features it offers
        assert_parity(Layer, features="attn=causal", dtypes="float32", cases=200)

In a notebook or a console::

    verdict = mha_parity.judge(attention)  # a notebook shows it as a page
    verdict.holds  # also bool(verdict)
    verdict.failures, verdict.diagnosis  # what fails, and which bug it is
    verdict.save_html("verdict.html")
    mha_parity.replay(verdict.failures[0].case.id, attention)

A target is a function, a class, or text: ``"package.module:name"``, ``"path/to/file.py:name"``,
``"path/to/notebook.ipynb:name"``. A target that is given as text runs in a process of its own.

``assert_parity``
    Raise AssertionError unless parity holds; return the verdict.
``judge``
    Return the verdict, whatever it is.
``replay``
    Print one case: inputs, the target's output, torch's output, and their difference.
``Verdict``
    Cases, features, failures, diagnosis and accuracy of one run.
``ParityError``
    What ``assert_parity`` raises; its attribute ``verdict`` is the verdict.
``TargetError``
    What all of these raise where a target cannot be had or recognised: one sentence. A ValueError.
``adapter``
    Mark a function of one ``AttentionCall`` as a target that calls another one.
``AttentionCall``
    One call in torch's terms: inputs, weights, masks and options.
``Options``
    The options of a run; their names are the keywords of the three functions above.

Only these names are public: the packages and modules listed below are not, and change without
notice. The command ``mha-parity`` does the same from a shell: see ``mha-parity --help``. Importing
this package loads neither numpy nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mha_parity.api import ParityError, Verdict, assert_parity, judge, replay
    from mha_parity.core.candidate import TargetError
    from mha_parity.core.options import Options
    from mha_parity.targets.adapters.attention_call import AttentionCall, adapter

__version__ = "0.1.0"
__all__ = [
    "AttentionCall",
    "Options",
    "ParityError",
    "TargetError",
    "Verdict",
    "__version__",
    "adapter",
    "assert_parity",
    "judge",
    "replay",
]

_HOMES = {
    "AttentionCall": "mha_parity.targets.adapters.attention_call",
    "Options": "mha_parity.core.options",
    "ParityError": "mha_parity.api",
    "TargetError": "mha_parity.core.candidate",
    "Verdict": "mha_parity.api",
    "adapter": "mha_parity.targets.adapters.attention_call",
    "assert_parity": "mha_parity.api",
    "judge": "mha_parity.api",
    "replay": "mha_parity.api",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
