import { useEffect, useState } from "react";

const waiting: (() => void)[] = [];

const PAUSE = 50; // ms: also what each asks for comes apart then

/** One after the other: what is costly to make does not keep the page from scrolling. */
function next() {
  waiting.shift()?.();
  if (waiting.length > 0) setTimeout(next, PAUSE);
}

/** Whether it is this component's turn to show what is costly; those that go before theirs comes are left out. */
export function useTurn(): boolean {
  const [mine, setMine] = useState(false);
  useEffect(() => {
    const take = () => setMine(true);
    waiting.push(take);
    if (waiting.length === 1) setTimeout(next, 0);
    return () => {
      const place = waiting.indexOf(take);
      if (place >= 0) waiting.splice(place, 1);
    };
  }, []);
  return mine;
}
