"""The stores that a document store of Haystack opens at its first use."""

from __future__ import annotations

import threading

from haystack.utils import Secret

from larder._closing import Closing
from larder._errors import invalid
from larder._stores import Stores, aopen, open
from larder._vectors import Vectors

_PLAIN = ("memory:", "sqlite:", "file:")


def as_plain(url: object) -> str | Secret:
    """Returns a URL that can have no password as it is, and any other one as a secret."""
    if isinstance(url, Secret):
        return url
    if not isinstance(url, str) or not url:
        raise invalid("python", "url", f"is a `{type(url).__name__}` or empty; pass a URL or a Secret")
    return url if url.startswith(_PLAIN) and "?" not in url else Secret.from_token(url)


class Connection(Closing):
    """Opens the stores once, at the first use, because a pipeline is built where it may never run."""

    def __init__(self, url: str | Secret, namespace: str) -> None:
        self.url = url
        self.namespace = namespace
        self._stores: Stores | None = None
        self._lock = threading.Lock()

    def _resolved(self) -> str:
        url = self.url.resolve_value() if isinstance(self.url, Secret) else self.url
        if not url:
            raise invalid("python", "url", "is a secret without a value; set its environment variable")
        return str(url)

    def vectors(self) -> Vectors:
        """Returns the vectors of the stores."""
        with self._lock:
            if self._stores is None:
                self._stores = open(self._resolved(), namespace=self.namespace)
            return self._stores.vectors

    async def avectors(self) -> Vectors:
        """As :meth:`vectors`."""
        if self._stores is None:
            stores = await aopen(self._resolved(), namespace=self.namespace)
            with self._lock:
                if self._stores is None:
                    self._stores = stores
            if self._stores is not stores:
                # Another caller was faster.
                await stores.aclose()
        return self._stores.vectors

    def close(self) -> None:
        """Closes the stores if they are open."""
        if self._stores is not None:
            self._stores.close()

    async def aclose(self) -> None:
        """As :meth:`close`."""
        if self._stores is not None:
            await self._stores.aclose()
