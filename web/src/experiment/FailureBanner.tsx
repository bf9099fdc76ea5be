/** The failure to look at: who, how, when, its last words, and where to read on. The cause, not its symptoms. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ScrollText } from "lucide-react";
import { api, asked, type FirstFailure } from "../api/client";
import { ERROR_WORDS } from "../logs/text";
import { several } from "../look/numbers";
import { StateShape } from "../look/StateMark";
import { Ago } from "../look/Time";
import { absolute } from "../look/times";
import { along, useShown } from "./context";
import { exitName, exitWords } from "./exits";
import classes from "./experiment.module.css";
import { failureOf, replicasOf } from "./replicas";

const LINES = 20;

export function FailureBanner({ whole }: { whole: boolean }) {
  const view = useShown();
  const { experiment, attempt } = view;
  const failure = failureOf(experiment, attempt);
  const end = useEnd(experiment.id, failure);
  if (!failure) return null;
  const others = replicasOf(experiment, failure.attempt).filter((one) => one.replica !== failure.replica);
  const stopped = others.filter((one) => one.state === "stopped").length;
  const failed = others.filter((one) => one.state === "failed").length;
  const recovered = experiment.state !== "failed" || failure.attempt !== experiment.attempt;
  const lines = (failure.lines.length ? failure.lines : (end?.lines ?? [])).slice(-LINES);
  const shared = {
    replicas: failure.replica,
    attempt: failure.attempt === experiment.attempt ? undefined : String(failure.attempt),
  };
  const words = exitWords(failure);
  return (
    <section className={classes.banner} data-recovered={recovered || undefined} aria-label="first failure">
      <div className={classes.bannerLine}>
        <StateShape state="failed" size={15} />
        <span>
          <b>{failure.replica}</b>
          {failure.process !== null && ` process ${failure.process}`} failed first: <b>{exitName(failure)}</b>
          {words && <span className={classes.words}> – {words}</span>}
        </span>
        <span className="dim" title={absolute(failure.time)}>
          {failure.attempt > 0 || experiment.attempt > 0 ? `attempt ${failure.attempt}, ` : ""}
          {failure.try > 0 ? `try ${failure.try}, ` : ""}
          <Ago time={failure.time} />
        </span>
        {(stopped > 0 || failed > 0) && (
          <span className="dim">
            {[
              stopped ? `${several(stopped, "other")} stopped by Shoal` : "",
              failed ? `${several(failed, "other")} failed after it` : "",
            ]
              .filter(Boolean)
              .join(", ")}
          </span>
        )}
        {failure.attempt < experiment.attempt && (
          <span className="dim">then Shoal started attempt {failure.attempt + 1}</span>
        )}
        <span className={classes.bannerLinks}>
          <Button
            size="compact-sm"
            variant="default"
            leftSection={<ScrollText size={13} aria-hidden />}
            renderRoot={(props) => (
              <Link
                to="/experiments/$id/$tab"
                params={{ id: experiment.id, tab: "logs" }}
                search={{ ...shared, at: end?.anchor } as never}
                {...props}
              />
            )}
          >
            Its log
          </Button>
          <Button
            size="compact-sm"
            variant="default"
            renderRoot={(props) => (
              <Link
                to="/experiments/$id/$tab"
                params={{ id: experiment.id, tab: "timeline" }}
                search={along(view) as never}
                {...props}
              />
            )}
          >
            Timeline
          </Button>
        </span>
      </div>
      {whole &&
        (lines.length > 0 ? (
          <pre
            className={`mono ${classes.lastLines}`}
            tabIndex={0}
            role="region"
            aria-label={`last lines of ${failure.replica}`}
          >
            {lines.join("\n")}
          </pre>
        ) : (
          <p className="dim">It printed nothing.</p>
        ))}
    </section>
  );
}

/** The end of the log of what failed: its lines, and the line to begin reading at. */
function useEnd(id: string, failure: FirstFailure | null) {
  return useQuery({
    queryKey: ["experiment", id, "end of log", failure?.attempt, failure?.replica, failure?.try],
    enabled: failure !== null,
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: async () => {
      const query = { replica: [failure!.replica], attempt: failure!.attempt, line: -1, before: LINES, after: 0 };
      const params = { path: { word: id }, query };
      const { lines } = await asked(api.GET("/api/experiments/{word}/logs/window", { params }));
      const own = lines.filter((line) => line.try === failure!.try);
      const telling = own.find((line) => ERROR.test(line.text)) ?? own.at(-1);
      return {
        lines: own.map((line) => line.text),
        anchor: telling ? [telling.attempt, telling.replica, telling.try, telling.line].join(":") : undefined,
      };
    },
  }).data;
}

const ERROR = new RegExp(ERROR_WORDS, "i");
