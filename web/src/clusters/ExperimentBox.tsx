/** A box that leads to the experiment that occupies it. */

import { Link } from "@tanstack/react-router";
import type { CSSProperties, ReactNode } from "react";
import classes from "./clusters.module.css";

/** The colour of each experiment, by its id. */
export type Colours = ReadonlyMap<string, string>;

/** The colour of an experiment as a CSS variable. */
export function own(colours: Colours, id: string): CSSProperties {
  return { "--own": colours.get(id) } as CSSProperties;
}

interface Props {
  id: string;
  title: string;
  style: CSSProperties;
  children: ReactNode;
}

export function ExperimentBox({ id, title, style, children }: Props) {
  return (
    <Link to="/experiments/$id" params={{ id }} className={classes.slot} title={title} aria-label={title} style={style}>
      {children}
    </Link>
  );
}
