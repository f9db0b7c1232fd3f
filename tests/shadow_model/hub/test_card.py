"""The card says what the receipts say."""

from shadow_model.hub.card import model_card, place_of
from shadow_model.receipt import FileRecord, Receipt


def test_losses_digests_and_the_outcome() -> None:
    arm = {"tag": "proof", "train": {"seed": 0}}
    output = FileRecord(name="a", sha256="1" * 64, bytes=1234)
    trained = Receipt(
        stage="proof",
        key="k" * 32,
        config={"arm": arm},
        outputs=(output,),
        counts={"held_out": {"loss": 5.25, "text": 5.5, "clip": None}},
    )
    report = Receipt(stage="report", key="r", counts={"headline": "Neither is ahead."})
    card = model_card([trained, report])
    assert card.startswith("---\ntags:\n- shadow-proof")
    assert "Neither is ahead." in card
    assert "| proof | 5.2500 | 5.5000 | - |" in card
    assert trained.as_input().sha256[:16] in card
    assert 'load_checkpoint("proof/proof/final")' in card
    assert "no report yet" in model_card([trained])


def test_seeds_have_places_of_their_own() -> None:
    assert [place_of("proof", seed) for seed in (0, 1)] == ["proof", "proof_seed1"]
