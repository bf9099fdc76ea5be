/** A page that is read from top to bottom: its name, what can be done, parts, and the same on the command line. */

import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { CommandHint } from "./Notes";
import classes from "./page.module.css";

interface PageProps {
  title: string;
  /** The page above it. */
  under?: { to: string; name: string };
  /** Beside the title: what it is in a few words. */
  about?: ReactNode;
  /** At the right: buttons. */
  tools?: ReactNode;
  /** The same on the command line. */
  command?: string;
  children: ReactNode;
}

export function Page({ title, under, about, tools, command, children }: PageProps) {
  return (
    <div className={classes.page}>
      <header className={classes.head}>
        {under && (
          <nav aria-label="above" className={classes.above}>
            <Link to={under.to} className="textlink">
              {under.name}
            </Link>{" "}
            <span aria-hidden>/</span>
          </nav>
        )}
        <h1>{title}</h1>
        {about && <span className="dim">{about}</span>}
        <span className={classes.tools}>
          {command && <CommandHint command={command} />}
          {tools}
        </span>
      </header>
      {children}
    </div>
  );
}

/** Two columns; on a narrow screen one. */
export function Columns({ wide, narrow }: { wide: ReactNode; narrow: ReactNode }) {
  return (
    <div className={classes.columns}>
      <div className={classes.column}>{wide}</div>
      <div className={classes.column}>{narrow}</div>
    </div>
  );
}

/** A part of a page in a frame. */
export function Part({ title, note, children }: { title: string; note?: ReactNode; children: ReactNode }) {
  return (
    <section className={classes.part} aria-label={title}>
      <div className={classes.partTitle}>
        <h2>{title}</h2>
        {note && <span className="dim">{note}</span>}
      </div>
      {children}
    </section>
  );
}

/** Names and values, one below the other; what has no value is left out. */
export function Facts({ facts }: { facts: Record<string, ReactNode> }) {
  const known = Object.entries(facts).filter(
    ([, value]) => value !== null && value !== undefined && value !== "" && value !== false,
  );
  return (
    <dl className={classes.facts}>
      {known.map(([name, value]) => (
        <div key={name}>
          <dt className="dim">{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
