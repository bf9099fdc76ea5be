/** The only file that speaks HTTP to the server. Types come from its OpenAPI document (`make types`). */

import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

type Schemas = components["schemas"];
export type Experiment = Schemas["ExperimentView"];
export type ExperimentDetail = Schemas["ExperimentDetail"];
export type Replica = Schemas["ReplicaView"];
export type FirstFailure = Schemas["FirstFailure"];
export type Stragglers = Schemas["Stragglers"];
export type Why = Schemas["Why"];
export type ErrorBody = Schemas["ErrorBody"];
export type Note = Schemas["Note"];
export type { Schemas };

/** What the server refused, as it said it: what, where, hint, all problems of a file. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly body: ErrorBody,
  ) {
    super(body.what);
  }
}

/** The server cannot be reached: it has ended, or the machine sleeps. */
export class Unreachable extends Error {
  constructor() {
    super("the server does not answer");
  }
}

export const api = createClient<paths>({ baseUrl: "/", fetch: (request: Request) => reach(request) });

/**
 * The data of an answer, or an ApiError:
 *
 *     const experiment = await asked(api.GET("/api/experiments/{word}", { params: { path: { word: id } } }));
 */
export async function asked<T>(answer: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await answer;
  if (!response.ok) throw new ApiError(response.status, readable(error, response));
  return data as T;
}

/** `fetch` for what is no JSON (logs, files): same errors. */
export async function fetched(path: string, init?: RequestInit): Promise<Response> {
  const response = await reach(new Request(path, init));
  if (response.ok) return response;
  const text = await response.text();
  let error: unknown = text;
  try {
    error = JSON.parse(text);
  } catch {
    // the text is all there is
  }
  throw new ApiError(response.status, readable(error, response));
}

const AGAIN = [150, 600]; // ms before a question is asked again: a machine that joins another network drops connections

async function reach(request: Request): Promise<Response> {
  const pauses = request.method === "GET" ? AGAIN : []; // what changes something is asked once
  for (let tried = 0; ; tried += 1) {
    try {
      return await fetch(request);
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      if (tried >= pauses.length || request.signal.aborted) throw new Unreachable();
      await new Promise((done) => setTimeout(done, pauses[tried]));
    }
  }
}

function readable(error: unknown, response: Response): ErrorBody {
  if (typeof error === "object" && error !== null && "what" in error) return error as ErrorBody;
  const said = typeof error === "string" && error.length < 300 ? error : response.statusText;
  return { what: said || `status ${response.status}`, where: null, hint: null, problems: [] };
}
