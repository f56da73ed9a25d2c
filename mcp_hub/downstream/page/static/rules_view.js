/** The view of rules, groups and profiles in force, each with the line of the configuration that made it. */

import { announce, confirm } from "./dialog.js";
import { button, chapter, emptyState, fill, h } from "./element.js";
import { jsonText } from "./json_text.js";
import { count, counted, printable } from "./text.js";

/** Rules that are drawn; the filter finds the others. */
const MAX_RULES = 500;

export class RulesView {
  #app;
  #groups = h("div", {});
  #rules = h("div", {});
  #profiles = h("div", {});
  #drawn = "";

  constructor(app) {
    this.#app = app;
    this.filter = h("input", { type: "search", placeholder: "Filter rules", "aria-label": "Filter rules", "aria-keyshortcuts": "/", autocomplete: "off", spellcheck: "false", oninput: () => this.#drawRules() });
    this.element = h(
      "div",
      { class: "view page-view rules-view", tabindex: 0, role: "region", "aria-label": "Rules, groups and profiles" },
      h("div", { class: "toolbar", role: "search" }, this.filter),
      this.#rules,
      this.#groups,
      this.#profiles,
    );
  }

  show() {
    this.draw();
  }

  draw() {
    const { rules, groups, profiles } = this.#app.store.state ?? {};
    const said = JSON.stringify([rules, groups, profiles, this.#app.isAdmin]);
    if (rules === undefined || said === this.#drawn) return;
    this.#drawn = said;
    this.#drawRules();
    fill(this.#groups, chapter("Groups", this.#groupsOf(groups ?? [])));
    fill(this.#profiles, chapter("Profiles", profilesOf(profiles ?? [])));
  }

  escape(target) {
    if (target !== this.filter || this.filter.value === "") return false;
    this.filter.value = "";
    this.#drawRules();
    return true;
  }

  #drawRules() {
    const all = this.#app.store.state?.rules ?? [];
    const wanted = this.filter.value.trim().toLowerCase();
    const shown = all.filter((rule) => `${rule.policy} ${rule.key} ${rule.server ?? ""} ${JSON.stringify(rule.value)}`.toLowerCase().includes(wanted));
    const byServer = new Map();
    for (const rule of shown.slice(0, MAX_RULES)) byServer.set(rule.server ?? "", [...(byServer.get(rule.server ?? "") ?? []), rule]);
    const none = all.length
      ? h("p", { class: "quiet" }, "No rule matches.")
      : emptyState("No rule is written: the defaults hold.", "A key such as ", h("code", {}, "disable_tools"), " in the configuration makes one.");
    const more = shown.length > MAX_RULES ? h("p", { class: "quiet" }, `${count(shown.length - MAX_RULES)} more: narrow the filter.`) : null;
    fill(this.#rules, chapter("Rules in force", h("p", { class: "quiet" }, counted(shown.length, "rule")), byServer.size ? tableOf(byServer) : none, more));
  }

  #groupsOf(groups) {
    if (!groups.length) return emptyState("There is no group of tools.", "The key ", h("code", {}, "groups"), " makes groups that are switched on when a model needs them.");
    const head = ["Group", "Tools", "State", "Line"].map((title) => h("th", { scope: "col" }, title));
    const rows = groups.slice(0, MAX_RULES).map((group) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, printable(group.name, 120), group.description ? h("span", { class: "quiet below" }, printable(group.description, 300)) : null),
        h("td", { class: "number" }, count(group.tools)),
        h("td", {}, h("span", { class: `state ${group.active ? "good" : "quiet"}` }, group.active ? "on" : "off"), this.#app.isAdmin ? [" ", this.#switchOf(group)] : null),
        h("td", {}, where(group.where)),
      ),
    );
    return tableFrame("Groups", h("table", { class: "group-table" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)));
  }

  #switchOf({ name, active }) {
    const verb = active ? "Switch off" : "Switch on";
    return button(`${verb}…`, async () => {
      const done = await confirm({
        title: `${verb} the group ${printable(name, 80)}?`,
        text: active ? "Its tools disappear for every client that has made no choice of its own." : "Its tools are listed for every client that has made no choice of its own.",
        verb,
        act: () => this.#app.session.request("POST", "actions/groups", { states: { [name]: !active } }),
      });
      if (!done) return;
      announce(done.text ?? `${verb}: done.`);
      this.#app.reload();
    }, { class: "small", "aria-label": `${verb} ${printable(name, 80)}` });
  }
}

function where(text) {
  return text ? h("code", { class: "where" }, printable(text, 200)) : null;
}

function tableFrame(label, table) {
  return h("div", { class: "table-frame", tabindex: 0, role: "region", "aria-label": label }, table);
}

function tableOf(byServer) {
  const head = ["Rule", "Key", "Value", "Line"].map((title) => h("th", { scope: "col" }, title));
  const bodies = [...byServer].map(([server, rules]) =>
    h("tbody", {}, h("tr", { class: "of" }, h("th", { scope: "rowgroup", colspan: 4 }, server ? printable(server, 120) : "every server")), rules.map(rowOf)),
  );
  return tableFrame("Rules in force", h("table", { class: "rule-table" }, h("thead", {}, h("tr", {}, head)), bodies));
}

function rowOf(rule) {
  return h("tr", {}, h("th", { scope: "row" }, rule.policy), h("td", {}, h("code", {}, printable(rule.key, 120))), h("td", {}, valueOf(rule.value)), h("td", {}, where(rule.where)));
}

function valueOf(value) {
  const text = jsonText(value);
  const flat = text.replace(/\n\s*/g, " ");
  return h("code", { class: "value" }, flat.length <= 120 ? printable(flat) : text);
}

function profilesOf(profiles) {
  if (!profiles.length) return emptyState("There is no profile.", "The key ", h("code", {}, "profiles"), " says what a principal sees.");
  return h("ul", { class: "plain-list" }, profiles.slice(0, MAX_RULES).map((profile) => h("li", {}, typeof profile === "string" ? h("code", {}, printable(profile, 120)) : [h("strong", {}, printable(profile.name ?? "", 120)), " ", where(profile.where), h("pre", { class: "json" }, jsonText(without(profile)))])));
}

function without({ name, where: line, ...others }) {
  return others;
}
