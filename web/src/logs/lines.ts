/** What the pages of a log are made of, and the names of places in it. Pure. */

/** One line as the server gives it. Its place is (attempt, replica, try, line): times repeat, places do not. */
export interface LogLine {
  replica: string;
  attempt: number;
  try: number;
  line: number;
  offset: number;
  time: number;
  stream: number;
  text: string;
  length: number;
  complete: boolean;
  gap: number;
  match?: [number, number] | null;
}

/** The log of one try of one replica. */
export interface LogOf {
  replica: string;
  attempt: number;
  try: number;
  rank: number;
  lines: number;
  size: number;
  closed: boolean;
}

export interface Place {
  attempt: number;
  replica: string;
  try: number;
  line: number;
}

/** `0:worker-2:0:1841`, as URLs and the server's `anchor` have it. */
export function anchorOf(place: Place): string {
  return `${place.attempt}:${place.replica}:${place.try}:${place.line}`;
}

/** The place that a text names; null when it names none. */
export function placeOf(anchor: string | undefined): Place | null {
  const match = /^(\d{1,9}):([\w.-]{1,64}):(\d{1,9}):(\d{1,15})$/.exec(anchor ?? "");
  if (!match) return null;
  return { attempt: Number(match[1]), replica: match[2]!, try: Number(match[3]), line: Number(match[4]) };
}

export function samePlace(a: Place, b: Place): boolean {
  return a.line === b.line && a.replica === b.replica && a.attempt === b.attempt && a.try === b.try;
}

/** Lines of several logs, each in its own order, in the order of time; at equal times the lower rank comes first. */
export function merged(logs: readonly (readonly LogLine[])[], rank: (replica: string) => number): LogLine[] {
  const next = logs.map(() => 0);
  const found: LogLine[] = [];
  for (;;) {
    let best = -1;
    for (let i = 0; i < logs.length; i += 1) {
      const line = logs[i]![next[i]!];
      if (!line) continue;
      const other = best < 0 ? undefined : logs[best]![next[best]!];
      if (!other || line.time < other.time || (line.time === other.time && rank(line.replica) < rank(other.replica)))
        best = i;
    }
    if (best < 0) return found;
    found.push(logs[best]![next[best]!]!);
    next[best]! += 1;
  }
}

/** What a person copies: the time, who, and the text without escapes. */
export function copied(lines: readonly LogLine[], plain: (text: string) => string, times: boolean): string {
  const several = new Set(lines.map((line) => line.replica)).size > 1;
  return lines
    .map((line) => {
      const when = times ? `${new Date(line.time * 1000).toISOString()} ` : "";
      return `${when}${several ? `${line.replica} | ` : ""}${plain(line.text)}`;
    })
    .join("\n");
}
