"""Access tokens of the Hub, blotted out of whatever is shown or recorded.

Known are tokens by their form, and the values of the variables that huggingface_hub reads.
"""

import os
import re
from collections.abc import Mapping

TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
BLOT = "hf_***"
_FORM = re.compile(r"hf_[A-Za-z0-9]{16,}")
_FEWEST_SIGNS = 8  # a shorter value is no token, and may be a part of any word


def redacted(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return a text without the tokens in it.

    Args:
        environment: Where tokens are looked up; by default this process's own.
    """
    for name in TOKEN_VARIABLES:
        value = environment.get(name, "").strip()
        if len(value) >= _FEWEST_SIGNS:
            text = text.replace(value, BLOT)
    return _FORM.sub(BLOT, text)
