/** Tools that stand above charts on several pages. */

import { Button, Slider, Switch } from "@mantine/core";
import { RotateCcw } from "lucide-react";
import { useState } from "react";
import classes from "./charts.module.css";

export function WholeRange({ reset }: { reset: () => void }) {
  return (
    <Button variant="default" leftSection={<RotateCcw size={13} aria-hidden />} onClick={reset}>
      Whole range
    </Button>
  );
}

interface HeatWish {
  deviation: boolean;
  bymean: boolean;
}

export function HeatSwitches({ wish, setWish }: { wish: HeatWish; setWish: (change: Partial<HeatWish>) => void }) {
  return (
    <>
      <Switch
        label="deviation from the median"
        checked={wish.deviation}
        onChange={(event) => setWish({ deviation: event.currentTarget.checked })}
      />
      <Switch
        label="largest first"
        checked={wish.bymean}
        onChange={(event) => setWish({ bymean: event.currentTarget.checked })}
      />
    </>
  );
}

/** Charts follow when it is let go: to draw them all for each pixel would be slow. */
export function Smoothing({ value, onChange }: { value: number; onChange: (value: number) => void }) {
  const [held, setHeld] = useState(value);
  return (
    <span className={classes.smooth}>
      <span className="dim">smooth</span>
      <Slider
        w={110}
        size="sm"
        min={0}
        max={0.99}
        step={0.01}
        value={held}
        onChange={setHeld}
        onChangeEnd={onChange}
        label={(weight) => weight.toFixed(2)}
        thumbLabel="weight of the moving average"
      />
    </span>
  );
}
