"""The fused kernels against the same arithmetic written out, in float64."""

import pytest
import torch
from torch import Tensor

from shadow_model.nn.flash import (
    Attended,
    attend,
    attend_backward,
    attend_backward_plainly,
    attend_plainly,
)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_fused_equals_plain(groups: int, causal: bool, masked: bool) -> None:
    generator = torch.Generator().manual_seed(43)

    def draw(*shape: int) -> Tensor:
        return torch.randn(3, *shape, generator=generator, dtype=torch.float64)

    query, key, value = draw(4, 20, 8), draw(groups, 20, 8), draw(groups, 20, 8)
    mask = torch.zeros(3, 1, 1, 20, dtype=torch.float64)
    if masked:
        mask[1, ..., 3:9] = -torch.inf
    keywords = {"causal": causal, "mask": mask if masked else None}
    found = attend(query, key, value, **keywords)
    expected = attend_plainly(query, key, value, **keywords)
    # 1e-12: float64 sums in another order
    torch.testing.assert_close(tuple(found), tuple(expected), rtol=1e-12, atol=1e-12)
    # as if the queries had read more keys elsewhere; one took no part here
    log_sum = expected.log_sum + 0.3
    log_sum[0, :, 5] = torch.inf
    whole = Attended(expected.out * 0.9, log_sum)
    grads = attend_backward(query.sin(), query, key, value, whole, **keywords)
    plain = attend_backward_plainly(query.sin(), query, key, value, *whole, **keywords)
    torch.testing.assert_close(grads, plain, rtol=1e-12, atol=1e-12)
    assert not grads[0][0, :, 5].any()
