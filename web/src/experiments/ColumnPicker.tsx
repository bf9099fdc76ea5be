/** Which columns the list shows, and which of them stay at the left. Metrics have a last, a smallest, a largest value. */

import { Button, Checkbox, Divider, Popover, ScrollArea, Switch, TextInput } from "@mantine/core";
import { Columns3, Pin } from "lucide-react";
import { useState } from "react";
import { FIXED, metricColumn, nameOf, STATISTICS } from "./columns";
import { fieldOf } from "./completion";
import classes from "./experiments.module.css";

interface Props {
  shown: readonly string[];
  onShown: (columns: string[]) => void;
  left: readonly string[];
  onLeft: (columns: string[]) => void;
  onReset: () => void;
  params: readonly string[];
  metrics: readonly string[];
  dense: boolean;
  onDense: (dense: boolean) => void;
}

const MOST = 60;

export function ColumnPicker({ shown, onShown, left, onLeft, onReset, params, metrics, dense, onDense }: Props) {
  const [find, setFind] = useState("");
  const fits = (name: string) => name.toLowerCase().includes(find.toLowerCase());
  const toggle = (id: string, on: boolean) => onShown(on ? [...shown, id] : shown.filter((one) => one !== id));
  const box = (id: string, label: string, name = label) => (
    <Checkbox
      key={id}
      label={label}
      aria-label={name}
      checked={shown.includes(id)}
      onChange={(event) => toggle(id, event.currentTarget.checked)}
    />
  );
  const fitting = metrics.filter(fits);
  const fittingParams = params.filter(fits);
  return (
    <Popover position="bottom-end" shadow="md" width={380} trapFocus>
      <Popover.Target>
        <Button variant="default" leftSection={<Columns3 size={14} aria-hidden />}>
          Columns
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <TextInput
          placeholder="Find a param or metric"
          aria-label="find a column"
          value={find}
          onChange={(event) => setFind(event.currentTarget.value)}
          mb="sm"
        />
        <ScrollArea.Autosize mah={420} type="auto" offsetScrollbars="y">
          <div className={classes.picker}>
            {Object.entries(FIXED)
              .filter(([, column]) => fits(column.name))
              .map(([id, column]) => box(id, column.name === "#" ? "# (number)" : column.name))}
          </div>
          {fitting.length > 0 && <Divider label="Metrics" labelPosition="left" my="xs" />}
          {fitting.slice(0, MOST).map((name) => (
            <div key={name} className={classes.pickedMetric}>
              <span className="clip mono" title={name}>
                {name}
              </span>
              {STATISTICS.map((statistic) => box(metricColumn(name, statistic), statistic, `${name} ${statistic}`))}
            </div>
          ))}
          {fittingParams.length > 0 && <Divider label="Params" labelPosition="left" my="xs" />}
          <div className={classes.picker}>
            {fittingParams.slice(0, MOST).map((name) => box(fieldOf("params", name), name))}
          </div>
          {Math.max(fitting.length, fittingParams.length) > MOST && (
            <p className="dim">
              {MOST} of {Math.max(fitting.length, fittingParams.length)}: find others by name.
            </p>
          )}
        </ScrollArea.Autosize>
        <Divider label="Pinned at the left" labelPosition="left" my="xs" />
        <div className={classes.pinnable}>
          {shown.map((id) => {
            const on = left.includes(id);
            return (
              <button
                key={id}
                type="button"
                data-on={on || undefined}
                aria-label={`${on ? "unpin" : "pin"} ${nameOf(id, shown)}`}
                onClick={() => onLeft(on ? left.filter((one) => one !== id) : [...left, id])}
              >
                <Pin size={11} aria-hidden />
                <span className="clip">{nameOf(id, shown)}</span>
              </button>
            );
          })}
        </div>
        <Divider my="sm" />
        <div className={classes.pickerEnd}>
          <Switch label="Compact rows" checked={dense} onChange={(event) => onDense(event.currentTarget.checked)} />
          <Button variant="subtle" onClick={onReset}>
            As at first
          </Button>
        </div>
      </Popover.Dropdown>
    </Popover>
  );
}
