/** A chart in numbers, for those who read or copy them. */

import { Table } from "@mantine/core";
import { count } from "../look/numbers";
import classes from "./charts.module.css";
import { xWord } from "./options";
import type { Curve } from "./packed";

const MOST_ROWS = 500;

export function NumbersTable({
  curves,
  x,
  height,
  say,
}: {
  curves: Curve[];
  x: string;
  height: number;
  say: (value: number) => string;
}) {
  const rows = curves.flatMap((curve) => Array.from(curve.start, (_, i) => ({ curve, i })));
  return (
    <div className={classes.numbers} style={{ height }} tabIndex={0} role="region" aria-label="values">
      <Table stickyHeader>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{x}</Table.Th>
            {curves.length > 1 && <Table.Th>rank</Table.Th>}
            <Table.Th className="number">min</Table.Th>
            <Table.Th className="number">mean</Table.Th>
            <Table.Th className="number">max</Table.Th>
            <Table.Th className="number">points</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows
            .slice(-MOST_ROWS)
            .reverse()
            .map(({ curve, i }) => (
              <Table.Tr key={`${curve.replica}:${curve.process}:${curve.start[i]}`}>
                <Table.Td>{xWord(x, curve.x_first[i]!)}</Table.Td>
                {curves.length > 1 && <Table.Td>{curve.replica}</Table.Td>}
                <Table.Td className="number" title={String(curve.min?.[i])}>
                  {say(curve.min?.[i] ?? Number.NaN)}
                </Table.Td>
                <Table.Td className="number" title={String(curve.mean?.[i])}>
                  {say(curve.mean?.[i] ?? Number.NaN)}
                </Table.Td>
                <Table.Td className="number" title={String(curve.max?.[i])}>
                  {say(curve.max?.[i] ?? Number.NaN)}
                </Table.Td>
                <Table.Td className="number">{count(curve.count[i]!)}</Table.Td>
              </Table.Tr>
            ))}
        </Table.Tbody>
      </Table>
      {rows.length > MOST_ROWS && (
        <p className="dim">{`the last ${MOST_ROWS} of ${count(rows.length)} rows; the CSV has all points`}</p>
      )}
    </div>
  );
}
