/** Times and durations as they are shown: short, with the whole truth for `title`. Times are UTC seconds. */

let utc = false;

/** From now on times of the day are those of UTC, or of where this browser is. */
export function showUtc(on: boolean): void {
  utc = on;
}

/** `0.8s`, `45s`, `2m 5s`, `2h 13m`, `3d 4h` */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  const size = Math.max(0, seconds);
  if (size < 10) return `${size < 0.05 ? 0 : size.toFixed(1)}s`;
  const whole = Math.round(size);
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return pair(whole, 60, "m", 1, "s");
  if (whole < 86400) return pair(whole, 3600, "h", 60, "m");
  return pair(whole, 86400, "d", 3600, "h");
}

/** `now`, `12s ago`, `5m ago`, `3h ago`, `2d ago`; `in 5m` for what is to come. */
export function ago(time: number | null | undefined, now: number): string {
  if (time === null || time === undefined) return "";
  const age = now - time;
  if (Math.abs(age) < 1.5) return "now";
  const text = rough(Math.abs(age));
  return age < 0 ? `in ${text}` : `${text} ago`;
}

/** `2026-11-15 23:41:07 UTC+1`, where this browser is. */
export function absolute(time: number | null | undefined): string {
  if (time === null || time === undefined) return "";
  return `${stamp(time)} ${zone(time)}`;
}

/** `2026-11-15 23:41:07` */
export function stamp(time: number): string {
  const date = new Date(time * 1000);
  if (utc) return date.toISOString().slice(0, 19).replace("T", " ");
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day} ${clock(time)}`;
}

/** `23:41:07` */
export function clock(time: number): string {
  const date = new Date(time * 1000);
  if (utc) return date.toISOString().slice(11, 19);
  return [two(date.getHours()), two(date.getMinutes()), two(date.getSeconds())].join(":");
}

/** `UTC`, `UTC+1`, `UTC−3:30`, at that time. */
export function zone(time: number): string {
  const minutes = utc ? 0 : -new Date(time * 1000).getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const size = Math.abs(minutes);
  const rest = size % 60 ? `:${two(size % 60)}` : "";
  return `UTC${minutes < 0 ? "−" : "+"}${Math.floor(size / 60)}${rest}`;
}

/** How long it has run, until now if it still does; null when it has not begun. */
export function elapsed(of: { started?: number | null; finished?: number | null }, now: number): number | null {
  if (of.started === null || of.started === undefined) return null;
  return Math.max(0, (of.finished ?? now) - of.started);
}

function rough(seconds: number): string {
  if (seconds < 60) return `${Math.round(seconds)}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

function pair(whole: number, large: number, largeName: string, small: number, smallName: string): string {
  const rest = Math.floor((whole % large) / small);
  return rest
    ? `${Math.floor(whole / large)}${largeName} ${rest}${smallName}`
    : `${Math.floor(whole / large)}${largeName}`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}
