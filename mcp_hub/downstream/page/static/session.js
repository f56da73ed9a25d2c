/** The session of this page with the hub: a cookie that the browser keeps, and a token that only this tab has. */

const KEY = "mcp-hub-page";
const API = "/ui/api/";

/** What the hub has refused, with its code and what to do. */
export class Refusal extends Error {
  constructor(status, { code = null, message = "The hub did not say why.", cure = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.cure = cure;
  }
}

/** The hub could not be reached. */
const UNREACHABLE = {
  code: null,
  message: "The hub does not answer.",
  cure: "Look whether it still runs: mcp-hub status",
};

async function refusalOf(response) {
  let said = {};
  try {
    said = (await response.json()).error ?? {};
  } catch {
    said = { message: `The hub answered ${response.status}.` };
  }
  return new Refusal(response.status, said);
}

export class Session {
  #token = sessionStorage.getItem(KEY);

  /** Called when the hub no longer knows the session. */
  onended = () => {};

  /** Whether there is a token; the hub may have forgotten it. */
  get isOpen() {
    return this.#token !== null;
  }

  /** Exchanges `{secret}` of a link or `{token}` of a caller for a session. Throws Refusal. */
  async open(credential) {
    this.#forget();
    const { token } = await this.request("POST", "session", credential);
    this.#token = token;
    sessionStorage.setItem(KEY, token);
  }

  /** Ends the session, here and in the hub. */
  async close() {
    try {
      await this.request("DELETE", "session");
    } finally {
      this.#forget();
    }
  }

  /** Sends one request and returns what the hub answers. Throws Refusal. */
  async request(method, path, body) {
    return (await this.response(method, path, { body })).json();
  }

  /** Sends one request and returns the response, which may be a stream. Throws Refusal, and AbortError by `signal`. */
  async response(method, path, { body, signal, headers = {} } = {}) {
    let response;
    try {
      response = await fetch(API + path, {
        method,
        signal,
        cache: "no-store",
        credentials: "same-origin",
        headers: {
          Accept: "application/json",
          ...headers,
          ...(this.#token === null ? {} : { "X-Mcp-Hub-Page": this.#token }),
          ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal(0, UNREACHABLE);
    }
    if (response.ok) return response;
    const refusal = await refusalOf(response);
    if (response.status === 401 && this.#token !== null) {
      this.#forget();
      this.onended(refusal);
    }
    throw refusal;
  }

  #forget() {
    this.#token = null;
    sessionStorage.removeItem(KEY);
  }
}
