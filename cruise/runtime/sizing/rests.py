"""Which pods were resized before this process began, and so are not to be cut yet."""

from datetime import datetime

from cruise.domain.policy import Policy
from cruise.runtime.ports import Store


async def resting(store: Store, policy: Policy, now: datetime) -> dict[str, datetime]:
    """Return until when pods rest, by uid, by what is stored of their last resizes.

    Whether those were growths is not known: on doubt nobody is cut.
    """
    if not policy.rules.calm:
        return {}
    rest = max(policy.growth_rest, policy.resize_rest)
    originals = await store.original_sizes()
    return {uid: one.at + rest for uid, one in originals.items() if now < one.at + rest}
