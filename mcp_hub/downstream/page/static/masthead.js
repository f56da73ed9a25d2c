/** The head of the page: what this hub is, its figures, calls of the last minute, and the connection to it. */

import { button, drawn, fill, h, setText } from "./element.js";
import { count, printable, short } from "./text.js";

const WIDTH = 120;
const HEIGHT = 28;

export class Masthead {
  #store;
  #version = h("span", { class: "version" });
  #figures = {};
  #titles = {};
  #calls = drawn("path", { class: "spark-calls" });
  #errors = drawn("path", { class: "spark-errors" });
  #rate = h("span", { class: "rate" });
  #connection = h("div", { class: "connection", role: "status" });
  #background = h("p", { class: "state warn background", hidden: true });
  #retry;

  /** `retry()` connects again now, `leave()` ends the session. */
  constructor(store, { retry, leave }) {
    this.#store = store;
    this.#retry = retry;
    const figure = (name, title) => {
      this.#figures[name] = h("dd", {}, "–");
      this.#titles[name] = h("dt", {}, title);
      return h("div", { class: `figure ${name}` }, this.#titles[name], this.#figures[name]);
    };
    const spark = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", "aria-hidden": "true", preserveAspectRatio: "none" });
    spark.append(this.#calls, this.#errors);
    this.element = h(
      "header",
      { class: "masthead" },
      h("h1", {}, "mcp-hub ", this.#version),
      h("dl", { class: "figures" }, figure("servers", "servers ready"), figure("tools", "tools"), figure("tokens", "tokens"), figure("calls", "calls"), figure("errors", "errors")),
      h("div", { class: "rates" }, spark, this.#rate),
      this.#connection,
      this.#background,
      button("Leave", leave, { class: "link leave" }),
    );
    setInterval(() => this.#drawRates(), 1000);
  }

  /** Draws what has changed. */
  draw(topics) {
    const { state } = this.#store;
    if (state !== null) {
      const served = state.servers.filter((server) => server.state !== "disabled");
      const ready = served.filter((server) => server.state === "ready").length;
      const { totals } = state;
      setText(this.#version, state.version);
      setText(this.#figures.servers, `${count(ready)} of ${count(served.length)}`);
      setText(this.#figures.tools, count(totals.tools));
      setText(this.#figures.tokens, short(totals.tokens));
      setText(this.#figures.calls, short(totals.calls));
      setText(this.#figures.errors, short(totals.errors));
      for (const [name, total] of Object.entries(totals)) setText(this.#titles[name], total === 1 ? name.slice(0, -1) : name);
      this.element.querySelector(".errors").classList.toggle("some", totals.errors > 0);
      const { restarts = 0, last_error: last } = state.background ?? {};
      this.#background.hidden = restarts === 0;
      const loops = restarts === 1 ? "1 background loop of the hub failed and was begun again" : `${count(restarts)} background loops of the hub failed and were begun again`;
      setText(this.#background, `${loops}, last ${printable(last ?? "", 200)}. The log has the traceback.`);
    }
    if (topics.has("connection")) this.#drawConnection();
  }

  #drawConnection() {
    const { state, wait, reason } = this.#store.connection;
    this.#connection.dataset.state = state;
    if (state === "live") fill(this.#connection, h("span", { class: "state good" }, "live"));
    else if (state === "lost") {
      const why = reason ? `The hub said: ${printable(reason, 200)}. ` : "";
      const again = `Connection lost. ${why}Trying again within ${count(Math.ceil(wait / 1000))} s.`;
      fill(this.#connection, h("span", { class: "state bad" }, again), " ", button("Try now", this.#retry, { class: "small" }));
    } else fill(this.#connection, h("span", { class: "state quiet" }, "connecting"));
  }

  #drawRates() {
    if (document.hidden || this.#store.state === null) return;
    const rates = this.#store.rates();
    const highest = Math.max(5, ...rates.map((rate) => rate.calls));
    this.#calls.setAttribute("d", area(rates.map((rate) => rate.calls / highest)));
    this.#errors.setAttribute("d", area(rates.map((rate) => rate.errors / highest)));
    const last = rates.slice(-6, -1).reduce((sum, rate) => sum + rate.calls, 0) / 5;
    setText(this.#rate, `${last < 10 ? last.toFixed(1) : count(last)}/s`);
  }
}

function area(shares) {
  const step = WIDTH / (shares.length - 1);
  const points = shares.map((share, at) => `L${(at * step).toFixed(1)} ${(HEIGHT - share * (HEIGHT - 2)).toFixed(1)}`);
  return `M0 ${HEIGHT}${points.join("")}L${WIDTH} ${HEIGHT}Z`;
}
