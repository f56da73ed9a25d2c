/** Event streams read by `fetch`: of one run, and the standing one that is opened again when it is lost. */

/** Milliseconds without a byte after which a standing stream counts as lost; the hub writes every 15 s. */
const SILENCE = 40_000;
const FIRST_WAIT = 1000;
const LONGEST_WAIT = 10_000;

/** The header of a request that is answered with a stream. */
export const STREAM = { Accept: "text/event-stream" };

/** Yields `{event, id, data}` of a response; `data` is decoded JSON. `onbytes` is called for every piece. */
export async function* eventsOf(response, onbytes = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let event = "message";
  let id = null;
  let data = [];
  let pending = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onbytes();
      const lines = value.split("\n");
      for (let at = 0; at < lines.length - 1; at += 1) {
        pending.push(lines[at]);
        const line = (pending.length === 1 ? pending[0] : pending.join("")).replace(/\r$/, "");
        pending = [];
        if (line === "") {
          if (data.length) yield { event, id, data: JSON.parse(data.join("\n")) };
          event = "message";
          data = [];
        } else if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        else if (line.startsWith("event:")) event = line.slice(6).trim();
        else if (line.startsWith("id:")) id = line.slice(3).trim();
      }
      if (lines.at(-1)) pending.push(lines.at(-1));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The standing stream of the hub's events. It is opened again with the last id, later and later. */
export class Feed {
  #session;
  #take;
  #say;
  #lastId = null;
  #failures = 0;
  #wake = () => {};
  #closed = null;

  /** `take(event)` gets each event; `say({state, wait, reason})` is told `live`, `lost` or `ended`. */
  constructor(session, take, say) {
    this.#session = session;
    this.#take = take;
    this.#say = say;
    addEventListener("online", () => this.#wake());
  }

  /** Opens the stream, and again whenever it is lost, until `close`. */
  async run() {
    this.#closed = new AbortController();
    const closed = this.#closed.signal;
    this.#lastId = null;
    this.#failures = 0;
    while (!closed.aborted) {
      const reason = await this.#follow(closed);
      if (closed.aborted) return;
      const wait = Math.min(FIRST_WAIT * 2 ** this.#failures, LONGEST_WAIT);
      this.#failures += 1;
      this.#say({ state: "lost", wait, reason });
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, wait);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
        closed.addEventListener("abort", this.#wake, { once: true });
      });
    }
  }

  /** Tries again now. */
  retry() {
    this.#wake();
  }

  /** Ends the stream for good. */
  close() {
    this.#closed?.abort();
  }

  async #follow(closed) {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    closed.addEventListener("abort", stop, { once: true });
    let timer = setTimeout(stop, SILENCE);
    let reason = null;
    try {
      const headers = this.#lastId === null ? STREAM : { ...STREAM, "Last-Event-ID": this.#lastId };
      const response = await this.#session.response("GET", "events", { signal: attempt.signal, headers });
      this.#say({ state: "live", resumed: this.#lastId !== null || this.#failures > 0 });
      this.#failures = 0;
      const heard = () => {
        clearTimeout(timer);
        timer = setTimeout(stop, SILENCE);
      };
      for await (const event of eventsOf(response, heard)) {
        if (event.id !== null) this.#lastId = event.id;
        if (event.event === "bye") reason = event.data.reason;
        else this.#take(event);
      }
    } catch (error) {
      if (error.status === 401 || error.status === 403) this.close();
    } finally {
      clearTimeout(timer);
      closed.removeEventListener("abort", stop);
    }
    return reason;
  }
}
