import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { api } from "./client";
import { Live, live as shared } from "./live";
import { followChanges, renewAll, STACKS } from "./queries";

/** As a browser's, but it opens, speaks and breaks when it is told to. */
class Source extends EventTarget {
  static all: Source[] = [];
  closed = false;
  onopen?: () => void;
  onerror?: () => void;
  constructor(readonly url: string) {
    super();
    Source.all.push(this);
  }
  close() {
    this.closed = true;
  }
  say(kind: string, id: string, data: unknown = {}) {
    this.dispatchEvent(Object.assign(new Event(kind), { lastEventId: id, data: JSON.stringify(data) }));
  }
}

const page = Object.assign(new EventTarget(), { hidden: false });

function show(seen: boolean): void {
  page.hidden = !seen;
  page.dispatchEvent(new Event("visibilitychange"));
}

function newest(): Source {
  return Source.all.at(-1)!;
}

describe("the stream of events", () => {
  let live: Live;
  let healed: number;
  let stop: () => void;

  beforeEach(() => {
    vi.stubGlobal("EventSource", Source);
    vi.stubGlobal("document", page);
    vi.useFakeTimers();
    Source.all = [];
    page.hidden = false;
    live = new Live("/api/events?tracked=true");
    healed = 0;
    live.on("healed", () => {
      healed += 1;
    });
  });
  afterEach(() => {
    stop();
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  function begun(): void {
    stop = live.start();
    newest().onopen?.();
    newest().say("tracked", "7-ab-1", { experiments: [] });
  }

  it("goes on from its cursor after the tab was hidden, and renews nothing else", () => {
    begun();
    const told: unknown[] = [];
    live.on("change", (change) => told.push(change));
    show(false);
    expect([live.status, newest().closed]).toEqual(["paused", true]);
    show(true);
    expect(newest().url).toBe("/api/events?tracked=true&cursor=7-ab-1");
    newest().onopen?.();
    newest().say("change", "8-ab-1", { id: "e1" });
    expect([Source.all.length, live.status, told, healed]).toEqual([2, "live", [{ id: "e1" }], 0]);
  });

  it("heals after it broke, also when the tab was hidden before it could open again", () => {
    begun();
    newest().onerror?.();
    expect(live.status).toBe("broken");
    show(false);
    vi.advanceTimersByTime(20_000);
    expect(Source.all.length).toBe(1);
    show(true);
    newest().onopen?.();
    expect(healed).toBe(1);
    show(false);
    show(true);
    newest().onopen?.();
    expect(healed).toBe(1);
  });

  it("remembers up to when it knew everything, however often it tries again", () => {
    begun();
    vi.advanceTimersByTime(5_000);
    const lost = Date.now();
    newest().onerror?.();
    vi.advanceTimersByTime(20_000);
    newest().onerror?.();
    expect([live.status, live.lost]).toEqual(["broken", lost]);
    vi.advanceTimersByTime(20_000);
    newest().onopen?.();
    vi.advanceTimersByTime(1_000);
    newest().onerror?.();
    expect(live.lost).toBe(Date.now());
  });

  it("heals when the server does not know what was missed", () => {
    begun();
    show(false);
    show(true);
    newest().onopen?.();
    newest().say("stale", "9-cd-0");
    expect(healed).toBe(1);
  });

  it("heals a page that began in a hidden tab, which has no cursor", () => {
    page.hidden = true;
    stop = live.start();
    expect([Source.all.length, live.status]).toEqual([0, "paused"]);
    show(true);
    newest().onopen?.();
    expect([newest().url, healed]).toEqual(["/api/events?tracked=true", 1]);
  });
});

it("healing asks for all that is shown, but not for stacks", async () => {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Number.POSITIVE_INFINITY } } });
  const asked: string[] = [];
  const offs = [
    ["experiment", "e1", "why"],
    [STACKS, "e1"],
  ].map((queryKey) =>
    new QueryObserver(client, {
      queryKey,
      queryFn: () => {
        asked.push(queryKey[0]!);
        return 1;
      },
    }).subscribe(() => {}),
  );
  await vi.waitFor(() => expect([asked.length, client.isFetching()]).toEqual([2, 0]));
  asked.length = 0;
  await renewAll(client);
  expect(asked).toEqual(["experiment"]);
  for (const off of offs) off();
});

describe("what has changed", () => {
  let asked: string[];

  beforeEach(() => {
    asked = [];
    vi.stubGlobal("EventSource", Source);
    vi.stubGlobal("document", page);
    vi.spyOn(api, "GET").mockImplementation((async (path: string) => {
      asked.push(path);
      return { data: [], response: new Response() };
    }) as never);
    vi.useFakeTimers();
    page.hidden = false;
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
    vi.unstubAllGlobals();
  });

  it.each([
    ["change", { id: "e1", replica: null, to_state: "running" }],
    ["tracked", { experiments: [{ id: "e1", points: true, records: false, logs: false }] }],
  ])("just before the tab is hidden (%s) is asked for when it is seen again", async (kind, data) => {
    const client = new QueryClient();
    client.setQueryData(["experiments"], { rows: [{ id: "e1" }], total: 1 });
    const watched = new QueryObserver(client, { queryKey: ["experiments"], staleTime: Number.POSITIVE_INFINITY });
    const ends = [watched.subscribe(() => {}), followChanges(client), shared.start()];
    newest().onopen?.();
    newest().say(kind, "1", data);
    show(false);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(asked).toEqual([]);
    show(true);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(asked).toContain("/api/experiments");
    for (const end of ends) end();
  });
});
