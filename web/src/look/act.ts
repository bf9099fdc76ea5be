/** Something that may fail, e.g. a request that changes something: whether it is going on, and what went wrong. */

import { useCallback, useState } from "react";

export function useAct() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const act = useCallback(async (wish: () => Promise<unknown>) => {
    setBusy(true);
    setError(null);
    try {
      await wish();
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  }, []);
  const forget = useCallback(() => setError(null), []);
  return { busy, error, act, forget };
}
