/** Replicas in little: `1m 7w 3ps`, and a cell for each of them, coloured by state. */

import { several } from "./numbers";
import classes from "./roles.module.css";
import { counted, hueOf } from "./states";

type Counts = Record<string, Record<string, number>>;

const SHORT: Record<string, string> = { master: "m", worker: "w", ps: "ps" };
const MOST = 16;

export function Roles({ roles }: { roles: Counts | null | undefined }) {
  if (!roles) return null;
  const states = counted(
    Object.values(roles).flatMap((counts) =>
      Object.entries(counts).flatMap(([state, n]) => Array<string>(n).fill(state)),
    ),
  );
  const all = states.reduce((sum, [, n]) => sum + n, 0);
  const words = states.map(([state, n]) => `${n} ${state}`).join(", ");
  return (
    <span className={classes.roles} title={`${several(all, "replica")}: ${words}`}>
      <span>{roleCounts(roles)}</span>
      <span className={classes.cells} aria-hidden>
        {all <= MOST
          ? Object.entries(roles).flatMap(([role, counts]) =>
              Object.entries(counts).flatMap(([state, n]) =>
                Array.from({ length: n }, (_, place) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: cells of one state are alike
                  <i key={`${role}${state}${place}`} data-hue={hueOf(state)} data-state={state} />
                )),
              ),
            )
          : states.map(([state, n]) => (
              <i
                key={state}
                data-hue={hueOf(state)}
                data-state={state}
                style={{ width: Math.max(4, (n / all) * 96) }}
              />
            ))}
      </span>
      <span className={classes.said}>{words}</span>
    </span>
  );
}

/** `1m 7w 3ps` */
export function roleCounts(roles: Counts): string {
  return Object.entries(roles)
    .map(([role, counts]) => `${Object.values(counts).reduce((sum, n) => sum + n, 0)}${SHORT[role] ?? ` ${role}`}`)
    .join(" ");
}
