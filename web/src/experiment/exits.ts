/** How a process ended, in words. Pure. */

/** What a signal means to somebody who trains. */
const SIGNALS: Record<string, string> = {
  SIGHUP: "its terminal went away",
  SIGINT: "interrupted, as by Ctrl-C",
  SIGQUIT: "quit from the keyboard",
  SIGILL: "an instruction this processor does not have",
  SIGABRT: "aborted by itself: a failed assertion in native code, or a library that gave up",
  SIGBUS: "bad memory access: often a full /dev/shm",
  SIGFPE: "an arithmetic error in native code",
  SIGKILL: "killed: by the kernel for its memory, or by somebody",
  SIGSEGV: "crashed in native code: bad memory access",
  SIGPIPE: "wrote to a peer that was gone",
  SIGTERM: "asked to end",
  SIGXCPU: "used up its CPU time",
};

const CODES: Record<number, string> = {
  0: "success",
  1: "an error, usually an exception",
  2: "wrong use of its command",
  126: "the command cannot be executed",
  127: "the command was not found",
};

export interface Ended {
  exit_code?: number | null;
  signal?: string | null;
  reason?: string | null;
}

/** `SIGKILL (137)`, `exit code 3`, `OOMKilled` */
export function exitName({ exit_code, signal, reason }: Ended): string {
  const oom = /^(OOMKilled|TimedOut|Evicted)\b/.exec(reason ?? "");
  if (oom) return oom[1]!;
  if (signal) return `${signal} (${exit_code ?? "?"})`;
  if (exit_code !== null && exit_code !== undefined) return `exit code ${exit_code}`;
  return reason || "an unknown end";
}

/** What that means, empty when nothing is known beyond the name. */
export function exitWords({ exit_code, signal, reason }: Ended): string {
  if (reason) return reason;
  if (signal) return SIGNALS[signal] ?? "";
  return CODES[exit_code ?? -1] ?? "";
}
