"""`baseline_infer` and `cuda_graph_infer`: milliseconds of one forward pass, for a prompt of any length.

    from inference.session import Session

    session = Session(CaseOptions(model="gpt2", device="cuda"))
    session.baseline_infer(input_ids)      # float, ms
    session.cuda_graph_infer(input_ids)    # float, ms; the first call with a new length captures, untimed

The module's own two functions do the same on a session that `configure` sets, or on gpt2 by default.
"""

from __future__ import annotations

import torch

from contract import Strategy
from inference.case import CaseOptions, open_case
from inference.prepare import prepare
from inference.request import as_prompt, run_request
from inference.strategies import EagerForward, ForwardStrategy, check_lengths

_WARM_UP_REQUESTS = 3


class Session:
    """One loaded model with its eager forward and one captured graph per prompt length seen."""

    def __init__(self, options: CaseOptions | None = None) -> None:
        """Load the model.

        Raises:
            LaunchgapError: see `inference.case.open_case`.
        """
        self._case = open_case(options or CaseOptions())
        self._eager = EagerForward(self._case.loaded.model, self._case.backend)
        self._graphs: dict[int, ForwardStrategy] = {}
        self._eager_warmed: set[int] = set()

    def baseline_infer(self, input_ids: torch.Tensor) -> float:
        """Milliseconds of one eager forward pass over token ids of shape (n,) or (1, n).

        By CUDA events; the copy to the device is not in it, nor is tokenisation. Wall clock on the CPU.
        Kernels load lazily, so the first call with a new length runs a few times untimed.

        Raises:
            LaunchgapError: no valid token ids, or more of them than the model has positions.
        """
        prompt = self._checked(input_ids)
        length = prompt.shape[-1]
        if length not in self._eager_warmed:
            self._warm_up(self._eager, prompt)
            self._eager_warmed.add(length)
        return run_request(self._eager, prompt, self._case.backend).event_ms

    def cuda_graph_infer(self, input_ids: torch.Tensor) -> float:
        """Milliseconds of one replay over token ids of shape (n,) or (1, n), measured as the baseline is.

        Raises:
            LaunchgapError: as `baseline_infer`; CaptureError when the model cannot be captured.
        """
        prompt = self._checked(input_ids)
        return run_request(self._graph(prompt), prompt, self._case.backend).event_ms

    def close(self) -> None:
        """Free all graphs."""
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()

    def _graph(self, prompt: torch.Tensor) -> ForwardStrategy:
        length = prompt.shape[-1]
        if length not in self._graphs:
            graph = prepare(
                Strategy.GRAPH,
                self._case.loaded.model,
                self._case.backend,
                prompt_length=length,
                max_length=length,
            )
            self._warm_up(graph, prompt)
            self._graphs[length] = graph
        return self._graphs[length]

    def _warm_up(self, strategy: ForwardStrategy, prompt: torch.Tensor) -> None:
        for _ in range(_WARM_UP_REQUESTS):
            run_request(strategy, prompt, self._case.backend)

    def _checked(self, input_ids: torch.Tensor) -> torch.Tensor:
        prompt = as_prompt(input_ids, self._case.loaded.fields["vocab_size"])
        check_lengths(prompt.shape[-1], prompt.shape[-1], self._case.loaded.fields["max_positions"])
        return prompt


_session: Session | None = None


def configure(options: CaseOptions) -> Session:
    """Set the model that the module's own functions measure, freeing the one before it."""
    global _session  # noqa: PLW0603 - the two functions below take the prompt alone, so the model is kept here
    if _session is not None:
        _session.close()
    _session = Session(options)
    return _session


def baseline_infer(input_ids: torch.Tensor) -> float:
    """`Session.baseline_infer` on the configured session."""
    return (_session or configure(CaseOptions())).baseline_infer(input_ids)


def cuda_graph_infer(input_ids: torch.Tensor) -> float:
    """`Session.cuda_graph_infer` on the configured session."""
    return (_session or configure(CaseOptions())).cuda_graph_infer(input_ids)
