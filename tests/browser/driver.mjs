// Drives one browser for the tests. Each line of stdin is a request, each line of stdout its answer, both JSON:
//   {"id": 1, "page": "a", "run": "await page.goto(args.url); return page.title()", "args": {"url": "…"}}
//   {"id": 1, "value": "Shoal"}   or   {"id": 1, "error": "…"}
// `{"go": "http://…"}` opens an address instead and answers with the status.
// `{"settle": true}` waits until the page has what it asked for; its stream of events stays open.
// A page that was not named before is opened in a context of its own, with `options`; {"close": true} ends it.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [, , webDirectory, executablePath] = process.argv;
const { chromium } = createRequire(`${webDirectory}/package.json`)("playwright-core");
const AsyncFunction = (async () => {}).constructor;
const TIMEOUT = 60_000;
const PATIENCE = 150_000; // for what has no timeout of its own
const CLOSING = 20_000; // for a page that is not needed any more
// A browser drops its connections when the machine gets or loses an address, as it does when a container starts. That
// is nobody's fault: who opens a page then opens it again.
const CHANGED = "ERR_NETWORK_CHANGED";
const GONE = "Not attached to an active page"; // the page loads itself again while it is told where to go

const browser = await chromium.launch({
  executablePath,
  args: [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
  ],
});
const pages = new Map();

async function opened(name, options) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  context.setDefaultTimeout(TIMEOUT);
  const page = await context.newPage();
  const heard = { console: [], requests: [], failures: [], broken: [] };
  page.on("console", (message) => {
    const said = `${message.type()}: ${message.text()} (${message.location().url})`;
    if (["error", "warning"].includes(message.type()) && !excused(said, heard)) heard.console.push(said);
  });
  page.on("pageerror", (error) => {
    if (!excused(error.message, heard)) heard.console.push(`uncaught: ${error.message}`);
  });
  page.on("response", (response) => {
    if (response.status() >= 400) broke(heard, response.url(), `status ${response.status()}`);
  });
  const pending = new Set();
  page.on("request", (request) => {
    heard.requests.push(request.url());
    if (request.isNavigationRequest()) heard.broken.length = 0; // what is loaded anew may break anew
    if (!request.url().includes("/api/events")) pending.add(request);
  });
  page.on("requestfinished", (request) => pending.delete(request));
  page.on("requestfailed", (request) => {
    pending.delete(request);
    const why = request.failure()?.errorText ?? "";
    heard.failures.push(`${request.url()} ${why}`);
    if (why !== "net::ERR_ABORTED") broke(heard, request.url(), why);
  });
  pages.set(name, { context, page, heard, pending });
  return pages.get(name);
}

/** Parts of the console that could not be loaded since the page was opened. */
function broke(heard, url, why) {
  if (url.includes("/assets/")) heard.broken.push(why);
}

/** Whether a complaint comes from a change of the network, and from nothing else: a part that is missing is no excuse. */
function excused(said, { broken }) {
  if (said.includes(CHANGED)) return true;
  const lacks = /Unable to preload|dynamically imported/.test(said);
  return lacks && broken.length > 0 && broken.every((why) => why.includes(CHANGED));
}

function changed(heard) {
  return heard.failures.some((line) => line.includes(CHANGED));
}

/** Opens an address; the status. Whatever the network's changes broke is loaded again. */
async function go({ page, heard }, url) {
  for (let tries = 1; ; tries += 1) {
    const before = heard.failures.length;
    try {
      const here = page.url();
      const opened = await page.goto(here.startsWith("http") && tries > 1 ? here : url); // a link that signs in is good once
      const broken = heard.failures.slice(before).some((line) => line.includes(CHANGED) && line.includes("/assets/"));
      if (!broken || tries === 8) return opened.status();
    } catch (error) {
      if (tries === 8 || !([CHANGED, GONE].some((word) => String(error).includes(word)) || changed(heard))) throw error;
    }
    await new Promise((done) => setTimeout(done, 250)); // the page may be about to load itself again
  }
}

async function answer(request) {
  const known = pages.get(request.page);
  if (request.close) {
    pages.delete(request.page);
    // Chromium has once not answered to this; nothing that is tested waits for it, and it ends with the browser.
    return Promise.race([known?.context.close(), new Promise((done) => setTimeout(done, CLOSING).unref())]);
  }
  const { context, page, heard, pending } = known ?? (await opened(request.page, request.options));
  if (request.settle) return settled(pending);
  if (request.go) return go({ page, heard }, request.go);
  const run = new AsyncFunction("page", "context", "heard", "args", request.run);
  return run(page, context, heard, request.args ?? {});
}

/** Waits until everything that the page asked for has come, and nothing more is asked for. */
async function settled(pending) {
  for (let quiet = 0; quiet < 6; quiet = pending.size ? 0 : quiet + 1) await new Promise((done) => setTimeout(done, 50));
}

function tooLong(request) {
  const error = new Error(`it took more than ${PATIENCE / 1000} s: ${request.run ?? request.go}`);
  return new Promise((_, refuse) => setTimeout(() => refuse(error), PATIENCE).unref());
}

process.stdout.write(`${JSON.stringify({ id: 0, value: browser.version() })}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let said;
  try {
    said = { id: request.id, value: (await Promise.race([answer(request), tooLong(request)])) ?? null };
  } catch (error) {
    said = { id: request.id, error: String(error.message ?? error) };
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
await browser.close();
