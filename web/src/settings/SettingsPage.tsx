/** How the console looks in this browser, what the server is, and signing out. */

import { Button, SegmentedControl, useMantineColorScheme } from "@mantine/core";
import { LogOut } from "lucide-react";
import { useState } from "react";
import { api, asked } from "../api/client";
import { useServer } from "../api/queries";
import { CommandHint, ErrorBox, Waiting } from "../look/Notes";
import { several } from "../look/numbers";
import { Facts, Page, Part } from "../look/Page";
import { Ago } from "../look/Time";
import { absolute, showUtc } from "../look/times";
import { useRemembered } from "../url/remembered";
import classes from "./settings.module.css";

export function SettingsPage() {
  return (
    <Page title="Settings">
      <div className={classes.settings}>
        <Looks />
        <About />
        <SignOut />
      </div>
    </Page>
  );
}

/** All of these are of this browser only. */
function Looks() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const [dense, setDense] = useRemembered("dense", false);
  const [utc, setUtc] = useRemembered("utc", false);
  const now = Date.now() / 1000;
  return (
    <Part title="Looks" note="remembered by this browser">
      <div className={classes.choices}>
        <span id="theme">Theme</span>
        <SegmentedControl
          aria-labelledby="theme"
          value={colorScheme}
          onChange={(value) => setColorScheme(value as typeof colorScheme)}
          data={[
            { value: "light", label: "Light" },
            { value: "dark", label: "Dark" },
            { value: "auto", label: "As the system" },
          ]}
        />
        <span id="rows">Rows of lists</span>
        <SegmentedControl
          aria-labelledby="rows"
          value={dense ? "dense" : "roomy"}
          onChange={(value) => setDense(value === "dense")}
          data={[
            { value: "roomy", label: "Roomy" },
            { value: "dense", label: "Compact" },
          ]}
        />
        <span id="times">Times</span>
        <SegmentedControl
          aria-labelledby="times"
          value={utc ? "utc" : "here"}
          onChange={(value) => {
            showUtc(value === "utc");
            setUtc(value === "utc");
          }}
          data={[
            { value: "here", label: `Where this browser is: ${place()}` },
            { value: "utc", label: "UTC" },
          ]}
        />
        <span />
        <span className="dim">Now it is {absolute(now)}.</span>
      </div>
    </Part>
  );
}

/** `Europe/Berlin`, as the browser calls it. */
function place(): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone || "local";
}

function About() {
  const server = useServer();
  return (
    <Part title="Server" note={<CommandHint command="shoal server status" />}>
      {server.isPending ? (
        <Waiting what="the server" />
      ) : !server.data ? (
        <ErrorBox error={server.error} retry={() => void server.refetch()} />
      ) : (
        <>
          {server.data.engine && (
            <ErrorBox error={new Error(`The engine does not work: ${server.data.engine}`)} compact />
          )}
          <Facts
            facts={{
              version: `Shoal ${server.data.version}`,
              home: <span className="mono">{server.data.home}</span>,
              address: <span className="mono">{location.origin}</span>,
              process: String(server.data.pid),
              started: (
                <span>
                  {absolute(server.data.started)}, <Ago time={server.data.started} />
                </span>
              ),
              "works on": several(server.data.unfinished, "experiment"),
              "when idle": server.data.kept ? "it stays" : "it ends; the next command starts another",
            }}
          />
        </>
      )}
    </Part>
  );
}

function SignOut() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const leave = async () => {
    setBusy(true);
    setError(null);
    try {
      await asked(api.POST("/api/sign-out"));
      location.assign("/"); // the server answers it without a cookie: how to sign in again
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <Part title="Signed in">
      <p>
        This browser holds a cookie of this server, which no script can read, for 30 days. Signing out takes it from
        this browser only; what runs goes on.
      </p>
      <div className={classes.leave}>
        <Button
          variant="default"
          loading={busy}
          leftSection={<LogOut size={14} aria-hidden />}
          onClick={() => void leave()}
        >
          Sign out
        </Button>
        <CommandHint command="shoal open" label="signs in again:" />
      </div>
      {error ? <ErrorBox error={error} compact /> : null}
    </Part>
  );
}
