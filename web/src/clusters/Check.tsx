/** Asks a cluster what works there. Only when somebody wants it: a cluster is not asked for its own sake. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Info, Stethoscope, Check as Tick, X } from "lucide-react";
import { api, asked } from "../api/client";
import { CommandHint, ErrorBox } from "../look/Notes";
import classes from "./clusters.module.css";

const MARKS = {
  ok: { Icon: Tick, hue: "hue-green" },
  note: { Icon: Info, hue: "hue-grey" },
  problem: { Icon: X, hue: "hue-red" },
};

export function Check({ name, pods }: { name: string; pods: boolean }) {
  const checked = useQuery({
    queryKey: ["cluster check", name],
    queryFn: () => asked(api.GET("/api/clusters/{name}/check", { params: { path: { name }, query: { pod: false } } })),
    enabled: false,
    retry: false,
  });
  return (
    <>
      <div className={classes.check}>
        <Button
          variant="default"
          loading={checked.isFetching}
          leftSection={<Stethoscope size={14} aria-hidden />}
          onClick={() => void checked.refetch()}
        >
          Check it
        </Button>
        <CommandHint command={`shoal cluster check ${name}`} label={pods ? "from inside a pod too:" : undefined} />
      </div>
      {checked.error ? <ErrorBox error={checked.error} compact /> : null}
      {checked.data && (
        <ul className={classes.findings} aria-label={`findings on ${name}`}>
          {checked.data.findings.map((finding) => {
            const { Icon, hue } = MARKS[finding.state];
            return (
              <li key={finding.name + finding.text}>
                <span className={`${classes.finding} ${hue}`}>
                  <Icon size={13} aria-hidden /> {finding.state}
                </span>
                <span>{finding.name}</span>
                <span>
                  {finding.text}
                  {finding.hint && finding.state !== "ok" && <span className="dim"> — {finding.hint}</span>}
                </span>
              </li>
            );
          })}
        </ul>
      )}
    </>
  );
}
