"""A bounded sample of texts."""

from shadow_model.data.text_sample import TextSample

TEXTS = [f"document number {number}" for number in range(2000)]


def sample_of(texts: list[str], size: int) -> list[str]:
    sample = TextSample(size)
    for text in texts:
        sample.add(text)
    return sample.texts()


def test_a_short_stream_is_kept_whole() -> None:
    assert sample_of(TEXTS, 1 << 20) == TEXTS


def test_a_long_one_is_kept_evenly_within_the_bound_and_in_order() -> None:
    kept = sample_of(TEXTS, 10_000)
    assert kept == sorted(kept, key=TEXTS.index)
    assert 4_000 <= sum(len(text) for text in kept) <= 10_000
    second_half = sum(TEXTS.index(text) >= 1000 for text in kept)
    assert 0.35 < second_half / len(kept) < 0.65  # about 300 kept: 0.5 +- 5 standard deviations


def test_it_is_repeatable() -> None:
    assert sample_of(TEXTS, 10_000) == sample_of(list(TEXTS), 10_000)


def test_one_text_beyond_the_bound_is_still_a_sample() -> None:
    assert sample_of(["x" * 100], 10) == ["x" * 100]
