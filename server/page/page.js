// The admin page: asks stats.json each second, and shows what it says. Rates
// are differences between two answers over the server's own time.
"use strict";

const POLL_MS = 1000;
const TIMEOUT_MS = 5000;
const HISTORY = 300;        // points: five minutes
const WINDOWS_MIN = [1, 2, 3, 4, 5]; // of the charts: the first that holds the history
const LATENCY_POINTS = 30;  // answers that latencies are taken over
const SMOOTH_POINTS = 5;    // the same of the large figures

const $ = (id) => document.getElementById(id);

// ---- words and numbers

const trim = (v) => v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2);

function scaled(v, units, base) {
  if (v === null || v === undefined || Number.isNaN(v)) return ["–", ""];
  let i = 0;
  while (v >= base * 0.9995 && i < units.length - 1) { v /= base; i++; }
  return [i === 0 ? (v >= 10 || Number.isInteger(v) ? v.toFixed(0) : v.toFixed(1)) : trim(v), units[i]];
}
const number = (v) => scaled(v, ["", "k", "M", "G", "T"], 1000);
const bytes = (v) => scaled(v, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
function duration(ns) {
  if (ns === null || Number.isNaN(ns)) return ["–", ""];
  const units = ["ns", "µs", "ms", "s"];
  let i = 0;
  while (ns >= 999.5 && i < 3) { ns /= 1000; i++; }
  return [i === 0 ? ns.toFixed(0) : trim(ns), units[i]];
}
const percent = (v, digits = 1) => v === null || Number.isNaN(v) ? ["–", ""] : [(100 * v).toFixed(digits), "%"];
const whole = (v) => v.toLocaleString("en");
const text = (pair) => pair[1] ? pair[0] + (pair[1] in { k: 1, M: 1, G: 1, T: 1 } ? "" : " ") + pair[1] : pair[0];

function ago(seconds) {
  const d = Math.floor(seconds / 86400), h = Math.floor(seconds / 3600) % 24, m = Math.floor(seconds / 60) % 60;
  if (d) return d + " d " + h + " h";
  if (h) return h + " h " + m + " min";
  if (m) return m + " min " + seconds % 60 + " s";
  return seconds + " s";
}

// ---- elements; never from text that a client could have chosen

function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}
function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}
function put(e, t) { if (e.textContent !== t) e.textContent = t; }
function key(color) {
  const k = make("span", { class: "key", "aria-hidden": "true" });
  k.style.setProperty("--c", color);
  return k;
}

// ---- state

let last = null;        // the answer before
const raw = [];         // answers, the newest last, LATENCY_POINTS + 1 of them
const points = [];      // what the charts show
let cursor = null;      // time that the pointer is at, in all charts
let failedSince = 0;

const color = { hit: "var(--hit)", miss: "var(--miss)", set: "var(--set)", other: "var(--other)", evict: "var(--evict)", calm: "var(--calm)" };

// ---- charts

const charts = [];

// span is how much time the charts show.
function span() {
  const age = points.length ? points[points.length - 1].t - points[0].t : 0;
  return 60_000 * (WINDOWS_MIN.find((m) => age <= m * 60_000) ?? 5);
}

// A chart of points over the last five minutes: stacked areas, or curves.
class Chart {
  constructor(id, name, series, options) {
    this.box = $("chart-" + id);
    this.series = series;
    this.options = options;
    this.svg = svg("svg", { role: "img" });
    this.name = name;
    this.box.append(this.svg);
    this.values = {};
    for (const s of series) {
      this.values[s.key] = make("b", {}, "–");
      $("legend-" + id).append(make("li", {}, key(s.color), s.label + " ", this.values[s.key]));
    }
    this.box.addEventListener("pointermove", (e) => {
      const r = this.box.getBoundingClientRect();
      const share = (e.clientX - r.left - this.left) / (r.width - this.left);
      cursor = share < 0 || share > 1 ? null : share;
      charts.forEach((c) => c.draw());
    });
    this.box.addEventListener("pointerleave", () => { cursor = null; charts.forEach((c) => c.draw()); });
    new ResizeObserver(() => this.draw()).observe(this.box);
    charts.push(this);
  }

  get left() { return 46; }

  draw() {
    const w = this.box.clientWidth, h = this.box.clientHeight, bottom = 18, top = 6;
    if (!w || !h) return;
    const now = points.length ? points[points.length - 1].t : Date.now();
    const shown = span();
    const x = (t) => this.left + (w - this.left) * (1 - (now - t) / shown);
    const seen = points.filter((p) => now - p.t <= shown);
    let high = 0;
    for (const p of seen) {
      const values = this.series.map((s) => p[s.key] ?? 0);
      high = Math.max(high, this.options.stacked ? values.reduce((a, b) => a + b, 0) : Math.max(...values));
    }
    const [low, ceiling] = this.options.range ? this.options.range(seen) : [0, nice(high, this.options.base ?? 1000)];
    const y = (v) => top + (h - top - bottom) * (1 - (v - low) / (ceiling - low));
    const parts = [];

    for (const share of [0, 0.5, 1]) {
      const v = low + share * (ceiling - low);
      parts.push(svg("line", { class: "grid", x1: this.left, x2: w, y1: y(v), y2: y(v) }));
      parts.push(svg("text", { x: this.left - 8, y: y(v) + 4, "text-anchor": "end" }, v === 0 ? "0" : text(this.options.format(v))));
    }
    const steps = shown === 60_000 ? 3 : w < 480 && shown > 120_000 ? 2 : shown / 60_000;
    for (let i = 0; i <= steps; i++) {
      const before = shown * i / steps;
      const label = i === 0 ? "now" : before % 60_000 ? "−" + before / 1000 + " s" : "−" + before / 60_000 + " min";
      const anchor = i === 0 ? "end" : i === steps ? "start" : "middle";
      parts.push(svg("text", { x: x(now - before), y: h - 2, "text-anchor": anchor }, label));
    }

    const below = new Map();
    for (const s of this.series) {
      for (const run of runs(seen, s.key)) {
        const edge = run.map((p) => {
          const from = this.options.stacked ? below.get(p) ?? 0 : 0;
          return [x(p.t), y(from + p[s.key]), y(Math.max(from, low)), from + p[s.key]];
        });
        const line = edge.map((e) => e[0].toFixed(1) + "," + e[1].toFixed(1)).join("L");
        const back = edge.slice().reverse().map((e) => e[0].toFixed(1) + "," + e[2].toFixed(1)).join("L");
        if (this.options.stacked) {
          parts.push(svg("path", { class: "area", fill: s.color, d: "M" + line + "L" + back + "Z" }));
          run.forEach((p, i) => below.set(p, edge[i][3]));
        } else {
          if (this.series.length === 1) parts.push(svg("path", { class: "fill", fill: s.color, d: "M" + line + "L" + back + "Z" }));
          parts.push(svg("path", { class: "curve", stroke: s.color, d: "M" + line }));
        }
      }
    }

    let at = seen[seen.length - 1];
    if (cursor !== null && seen.length) {
      const t = now - (1 - cursor) * shown;
      at = seen.reduce((a, b) => Math.abs(a.t - t) < Math.abs(b.t - t) ? a : b);
      parts.push(svg("line", { class: "cross", x1: x(at.t), x2: x(at.t), y1: top, y2: h - bottom }));
    }
    for (const s of this.series) put(this.values[s.key], text(this.options.format(at?.[s.key] ?? null)));
    this.svg.setAttribute("viewBox", "0 0 " + w + " " + h);
    this.svg.setAttribute("aria-label", this.name + ": " + this.series.map((s) => s.label + " " + text(this.options.format(at?.[s.key] ?? null))).join(", "));
    this.svg.replaceChildren(...parts);
  }
}

// runs splits points where key has no value.
function runs(seen, k) {
  const all = [];
  let run = [];
  for (const p of seen) {
    if (p[k] === null || p[k] === undefined) { if (run.length) all.push(run); run = []; } else run.push(p);
  }
  if (run.length) all.push(run);
  return all;
}

// nice is a number over v that is round in units of base: 1000, or 1024.
function nice(v, base) {
  if (v <= 0) return 1;
  let unit = 1;
  while (v > unit * base) unit *= base;
  let ten = unit;
  while (v > ten * 10) ten *= 10;
  while (v <= ten) ten /= 10;
  for (const m of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (v <= m * ten) return m * ten;
  return unit * base;
}

// ---- tiles

// each makes a large figure one of each unit of time.
const each = (unit, pair) => pair[0] === "–" ? pair : [text(pair), "/" + unit];

const tiles = {};
function tile(k, label, stroke, series) {
  const value = make("p", { class: "value", id: "tile-" + k }, "–");
  const under = make("p", { class: "under" });
  const spark = svg("svg", { "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 300 34" });
  $("tiles").append(make("article", { class: "tile" }, make("h2", {}, label), value, under, spark));
  tiles[k] = { value, under, spark, stroke, series };
}
function show(k, pair, under) {
  const t = tiles[k];
  const shown = pair[0] + "|" + pair[1];
  if (t.shown !== shown) {
    t.shown = shown;
    t.value.replaceChildren(pair[0], ...(pair[1] ? [make("small", {}, pair[1])] : []));
  }
  put(t.under, under);
}
function sparks() {
  const now = points.length ? points[points.length - 1].t : 0, shown = span();
  for (const t of Object.values(tiles)) {
    let high = 0;
    for (const p of points) high = Math.max(high, p[t.series] ?? 0);
    const parts = [];
    for (const run of runs(points, t.series)) {
      const at = run.map((p) => (300 * (1 - (now - p.t) / shown)).toFixed(1) + "," + (32 - 28 * (high ? p[t.series] / high : 0)).toFixed(1));
      const first = at[0].split(",")[0], end = at[at.length - 1].split(",")[0];
      parts.push(svg("path", { class: "fill", fill: t.stroke, d: "M" + first + ",34L" + at.join("L") + "L" + end + ",34Z" }));
      parts.push(svg("path", { class: "curve", stroke: t.stroke, "vector-effect": "non-scaling-stroke", d: "M" + at.join("L") }));
    }
    t.spark.replaceChildren(...parts);
  }
}

// ---- figures

// quantiles of the commands of a class, all if k is null, between two answers.
function quantiles(from, to, k, shares) {
  const counts = new Map();
  let total = 0;
  for (const c of to.latency) {
    if (k !== null && c.class !== k) continue;
    const before = new Map(from.latency.find((o) => o.class === c.class)?.buckets ?? []);
    for (const [end, n] of c.buckets) {
      const more = n - (before.get(end) ?? 0);
      if (more <= 0) continue;
      counts.set(end, (counts.get(end) ?? 0) + more);
      total += more;
    }
  }
  const sorted = [...counts].sort((a, b) => a[0] - b[0]);
  return {
    total,
    values: shares.map((share) => {
      if (!total) return null;
      let seen = 0;
      for (const [end, n] of sorted) if ((seen += n) >= share * total) return end;
      return sorted[sorted.length - 1][0];
    }),
  };
}

// rate is what a counter rose by a second; null where it was set back.
function rate(a, b, get) {
  const seconds = (b.time_ms - a.time_ms) / 1000;
  const rise = get(b) - get(a);
  return seconds > 0 && rise >= 0 && a.pid === b.pid ? rise / seconds : null;
}

const reads = (s) => s.get_hits + s.get_misses;
const others = (s) => s.deletes + s.ariths + s.touches;

function take(s) {
  if (last && (s.pid !== last.pid || s.time_ms <= last.time_ms || s.requests < last.requests)) raw.length = 0;
  raw.push(s);
  if (raw.length > LATENCY_POINTS + 1) raw.shift();
  const before = raw.length > 1 ? raw[raw.length - 2] : null;
  if (before) {
    const p = { t: s.time_ms };
    p.hit = rate(before, s, (v) => v.get_hits);
    p.miss = rate(before, s, (v) => v.get_misses);
    p.set = rate(before, s, (v) => v.sets);
    p.other = rate(before, s, others);
    p.ops = p.hit === null ? null : p.hit + p.miss + p.set + p.other;
    p.ratio = p.hit + p.miss > 0 ? p.hit / (p.hit + p.miss) : null;
    p.evict = rate(before, s, (v) => v.evictions);
    p.expire = rate(before, s, (v) => v.expirations);
    p.reject = rate(before, s, (v) => v.rejected);
    p.in = rate(before, s, (v) => v.bytes_read);
    p.out = rate(before, s, (v) => v.bytes_written);
    p.held = s.held_bytes;
    p.conns = s.connections.current;
    const base = raw[Math.max(0, raw.length - 1 - 10)];
    [p.p50, p.p99] = quantiles(base, s, null, [0.5, 0.99]).values;
    points.push(p);
  } else if (points.length) {
    points.push({ t: s.time_ms }); // a gap
  }
  while (points.length > HISTORY) points.shift();
  // A server whose clock is behind the one before has a history of its own.
  while (points.length > 1 && points[0].t > points[points.length - 1].t) points.shift();
  last = s;
}

function render() {
  const s = last;
  const base = raw[Math.max(0, raw.length - 1 - SMOOTH_POINTS)];
  const p = points[points.length - 1] ?? {};
  const smooth = (get) => raw.length > 1 ? rate(base, s, get) : null;

  put($("about"), s.addresses.join(", ") + " · as memcached " + s.version + " · " + s.loops + (s.loops === 1 ? " loop · " : " loops · ") + "up " + ago(s.uptime_seconds));
  $("state").dataset.state = s.state === "ready" ? "ready" : "bad";
  put($("state"), s.state);

  const hits = smooth((v) => v.get_hits), misses = smooth((v) => v.get_misses);
  const ratio = hits !== null && hits + misses > 0 ? hits / (hits + misses) : null;
  show("ratio", percent(ratio), reads(s) ? text(percent(s.get_hits / reads(s))) + " since the start" : "nothing was read yet");
  show("ops", each("s", number(p.ops ?? null)), text(number(smooth(reads))) + " reads, " + text(number(smooth((v) => v.sets))) + " stores");
  show("memory", bytes(s.held_bytes), "of " + text(bytes(s.limit_bytes)) + ", " + text(number(s.items)) + " items");
  show("evict", each("s", number(smooth((v) => v.evictions))), text(number(s.evictions)) + " in all");
  show("conns", [whole(s.connections.current), ""], "of " + whole(s.connections.max) + (s.connections.aside ? ", " + s.connections.aside + " aside" : ""));
  show("latency", duration(p.p99 ?? null), "99 %; median " + text(duration(p.p50 ?? null)));
  document.title = (ratio === null ? "" : text(percent(ratio)) + " · ") + text(number(p.ops ?? null)) + "/s · Quarry";

  charts.forEach((c) => c.draw());
  sparks();
  memory(s);
  classes(s, base);
  segments(s, base);
  commands(s);
  facts(s, base);
  freshness(s, base);
  tenants(s, base);
}

// ---- memory

const uses = {
  key_value: ["Keys, values", "var(--hit)"],
  header: ["Headers", "var(--set)"],
  rounding: ["Rounding", "var(--miss)"],
  free_chunk: ["Free chunks", "var(--stone)"],
  pinned: ["Being sent", "var(--other)"],
  upload: ["Arriving", "var(--evict)"],
  idle_page: ["Idle pages", "var(--calm)"],
};
const onTop = { index: "Index", index_overflow: "Index overflow", sketch: "Sketch", record: "Floors, grants", go_heap: "Go heap", go_other: "Go runtime", program: "Program" };

function memory(s) {
  const by = Object.fromEntries(s.memory.map((m) => [m.use, m.bytes]));
  const bar = [], list = [], whole = Math.max(s.limit_bytes, s.held_bytes);
  const row = (label, color, n, share) => make("div", {}, make("dt", {}, ...(color ? [key(color)] : []), label),
    make("dd", {}, text(bytes(n)), ...(share === null ? [] : [make("small", {}, text(percent(share)))])));
  for (const [use, [label, color]] of Object.entries(uses)) {
    const n = by[use] ?? 0;
    if (n / whole > 0.0005) {
      const part = make("i", use === "rounding" || use === "free_chunk" ? { class: "hatched" } : {});
      part.style.width = (100 * n / whole).toFixed(2) + "%";
      part.style.setProperty("--c", color);
      part.title = label + ": " + text(bytes(n));
      bar.push(part);
    }
    list.push(row(label, color, n, n / whole));
  }
  list.push(row("Not in use", "var(--void)", whole - s.held_bytes + s.uncarved_bytes, (whole - s.held_bytes + s.uncarved_bytes) / whole));
  for (const [use, label] of Object.entries(onTop)) list.push(row(label, null, by[use] ?? 0, null));
  $("memory-bar").replaceChildren(...bar);
  $("memory-bar").setAttribute("aria-label", text(percent(s.held_bytes / whole)) + " of the limit is in use");
  $("memory-uses").replaceChildren(...list);
  put($("memory-sub"), text(bytes(s.held_bytes)) + " of " + text(bytes(s.limit_bytes)) + " in pages; the process has " + text(bytes(s.resident_bytes)) + " in all");
}

// waste is what a class holds beyond its items.
const waste = (c) => Math.max(c.held_bytes - c.requested_bytes, 0);

function classes(s, base) {
  const high = Math.max(...s.classes.map((c) => Math.max(c.held_bytes, c.requested_bytes)), 1);
  const columns = s.classes.map((c) => {
    const used = make("i", { class: "used" }), free = make("i", { class: "waste" });
    used.style.height = (100 * c.requested_bytes / high).toFixed(2) + "%";
    free.style.height = (100 * waste(c) / high).toFixed(2) + "%";
    return make("div", { title: "class " + c.class + ", chunks of " + text(bytes(c.chunk_bytes)) + ": " + text(bytes(c.held_bytes)) + ", " + text(number(c.items)) + " items, " + text(percent(c.held_bytes ? waste(c) / c.held_bytes : 0)) + " waste" }, free, used);
  });
  $("classes-chart").replaceChildren(...columns);
  const axis = $("classes-chart").nextElementSibling.classList.contains("axis") ? $("classes-chart").nextElementSibling : make("div", { class: "axis", "aria-hidden": "true" });
  $("classes-chart").after(axis);
  const n = s.classes.length, marks = n < 2 ? s.classes : [0, 0.25, 0.5, 0.75, 1].map((q) => s.classes[Math.round(q * (n - 1))]);
  axis.replaceChildren(...marks.map((c) => make("span", {}, text(bytes(c.chunk_bytes)))));
  const held = s.classes.reduce((a, c) => a + c.held_bytes, 0), lost = s.classes.reduce((a, c) => a + waste(c), 0);
  put($("classes-sub"), n + (n === 1 ? " class" : " classes") + " by chunk size; light is what holds no item: " + text(percent(held ? lost / held : null)));

  const before = new Map(raw.length > 1 ? base.classes.map((c) => [c.class, c]) : []);
  const seconds = (s.time_ms - base.time_ms) / 1000;
  const per = (c, k) => before.has(c.class) && seconds > 0 ? text(number(Math.max(c[k] - before.get(c.class)[k], 0) / seconds)) : "–";
  rows("classes", s.classes.map((c) => [String(c.class), text(bytes(c.chunk_bytes)), whole(c.items), whole(c.pages), text(bytes(c.held_bytes)),
    text(bytes(c.requested_bytes)), text(percent(c.held_bytes ? waste(c) / c.held_bytes : 0)), per(c, "hits"), per(c, "evictions")]));
}

// rows fills a table; the first cell of a row is its head.
function rows(id, data) {
  const body = $(id).tBodies[0];
  while (body.rows.length > data.length) body.deleteRow(-1);
  data.forEach((cells, i) => {
    const tr = body.rows[i] ?? body.appendChild(make("tr", {}, ...cells.map((_, j) => make(j ? "td" : "th", j ? {} : { scope: "row" }))));
    cells.forEach((cell, j) => {
      if (typeof cell === "string") put(tr.cells[j], cell);
      else tr.cells[j].replaceChildren(...cell);
    });
  });
}

function segments(s, base) {
  const colors = { window: color.set, probation: color.calm, protected: color.hit };
  const all = s.segments.reduce((a, g) => a + g.items, 0);
  $("segments-bar").replaceChildren(...s.segments.map((g) => {
    const part = make("i");
    part.style.width = (all ? 100 * g.items / all : 0).toFixed(2) + "%";
    part.style.setProperty("--c", colors[g.name]);
    part.title = g.name;
    return part;
  }));
  $("segments-bar").setAttribute("aria-label", s.segments.map((g) => g.name + " " + whole(g.items)).join(", "));
  rows("segments", s.segments.map((g, i) => [[key(colors[g.name]), g.name], whole(g.items), text(percent(all ? g.items / all : null)),
    text(number(raw.length > 1 ? rate(base, s, (v) => v.segments[i].hits) : null))]));
  put($("segments-sub"), s.policy + ", window " + s.window_percent.toFixed(1) + " %");
  const admitted = raw.length > 1 ? rate(base, s, (v) => v.admitted) : null, rejected = raw.length > 1 ? rate(base, s, (v) => v.rejected) : null;
  put($("admission"), "Newcomers at the window's end: " + text(number(admitted)) + " a second stay, " + text(number(rejected)) + " go.");
}

function commands(s) {
  const from = raw[0];
  rows("commands", s.latency.map((c) => {
    const q = raw.length > 1 ? quantiles(from, s, c.class, [0.5, 0.99, 0.999]) : { total: 0, values: [null, null, null] };
    return [c.class, ...q.values.map((v) => text(duration(v))), whole(q.total)];
  }));
}

function facts(s, base) {
  const fill = (id, list) => $(id).replaceChildren(...list.map(([k, v]) => make("div", {}, make("dt", {}, k), make("dd", {}, v))));
  const c = s.connections;
  fill("conns", [
    ["Open", whole(c.current)], ["Limit", whole(c.max)], ["Opened in all", whole(c.total)], ["Refused", whole(c.rejected)],
    ["Aside (slow readers)", whole(c.aside)], ["Went aside", whole(c.asides)], ["Closed as idle", whole(c.idle_kicks)],
    ["Being sent", text(bytes(s.sending_bytes))],
  ]);
  const cpu = raw.length > 1 ? rate(base, s, (v) => v.cpu_seconds) : null;
  fill("process", [
    ["Processor", cpu === null ? "–" : text(percent(cpu, 0)) + " of one"], ["Resident", text(bytes(s.resident_bytes))],
    ["Go collections", whole(s.gc_cycles)], ["Shards", whole(s.shards)],
    ["Page moves", whole(s.pages_moved)], ["Sweeper checked", text(number(s.sweep_checked))],
    ["Not stored: too large", whole(s.too_large)], ["Not stored: no memory", whole(s.no_memory)],
  ]);
}

function freshness(s, base) {
  const f = s.freshness;
  $("fresh-card").hidden = !f;
  if (!f) return;
  const per = (k) => raw.length > 1 ? text(number(rate(base, s, (v) => v.freshness?.[k] ?? 0))) : "–";
  put($("fresh-sub"), f.clock_distrusted ? "the clock is not trusted: nothing with a deadline is served" : "rates a second");
  $("fresh").replaceChildren(...[
    ["Grants", per("grants")], ["Of them in the background", per("grants_background")], ["Fills", per("filled")], ["Refused", per("refused")],
    ["Told to wait", per("waits")], ["Budget spent", per("denials")], ["Notices", per("notices")],
    ["Grants out", whole(f.in_flight) + (f.in_flight_max ? " of " + whole(f.in_flight_max) : "")],
    ["A fill takes", f.fill_ms ? f.fill_ms + " ms" : "–"], ["Versioned items", whole(f.versioned_items)],
    ["Keys kept apart", whole(f.records) + " of " + text(number(f.records_max))],
  ].map(([k, v]) => make("div", {}, make("dt", {}, k), make("dd", {}, v))));
}

function tenants(s, base) {
  $("tenants-card").hidden = !s.tenants;
  if (!s.tenants) return;
  const before = new Map(raw.length > 1 ? base.tenants?.map((t) => [t.kind + ":" + t.name, t]) : []);
  const seconds = (s.time_ms - base.time_ms) / 1000;
  rows("tenants", s.tenants.map((t) => {
    const b = before.get(t.kind + ":" + t.name);
    const per = (get) => b && seconds > 0 ? Math.max(get(t) - get(b), 0) / seconds : null;
    const hits = per((v) => v.hits), all = per((v) => v.hits + v.misses);
    let quota = [t.quota_bytes ? text(percent(t.bytes / t.quota_bytes, 0)) : "no quota"];
    if (t.quota_bytes) {
      const bar = make("span", { class: "bar", "aria-hidden": "true" }), part = make("i");
      part.style.width = Math.min(100 * t.bytes / t.quota_bytes, 100).toFixed(1) + "%";
      part.style.setProperty("--c", t.bytes > 0.95 * t.quota_bytes ? color.miss : color.hit);
      bar.append(part);
      quota.push(bar);
    }
    const name = t.kind === "other" ? make("em", {}, "all others") : t.name || make("em", {}, "no prefix");
    return [[name], whole(t.items), text(bytes(t.bytes)), quota, text(percent(all ? hits / all : null)), text(number(all)),
      text(number(per((v) => v.evicted))), whole(t.refused)];
  }));
}

// ---- asking

async function poll() {
  const began = performance.now();
  try {
    const response = await fetch("stats.json", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!response.ok) throw new Error(response.status === 503 ? "stopping" : "status " + response.status);
    take(await response.json());
    failedSince = 0;
    document.querySelector("main").classList.remove("stale");
    render();
  } catch (e) {
    failedSince ||= began;
    $("state").dataset.state = "bad";
    put($("state"), e.message === "stopping" ? "stopping" : "no answer for " + Math.round((performance.now() - failedSince) / 1000) + " s");
    document.querySelector("main").classList.add("stale");
    if (!(e instanceof TypeError) && e.name !== "TimeoutError" && e.message !== "stopping") console.error(e);
  }
  setTimeout(poll, Math.max(POLL_MS - (performance.now() - began), 50));
}

tile("ratio", "Hit ratio", color.hit, "ratio");
tile("ops", "Operations", color.set, "ops");
tile("memory", "Memory in use", color.other, "held");
tile("evict", "Evictions", color.evict, "evict");
tile("conns", "Connections", color.calm, "conns");
tile("latency", "Latency", color.miss, "p99");
new Chart("ops", "Operations a second", [
  { key: "hit", label: "hits", color: color.hit }, { key: "miss", label: "misses", color: color.miss },
  { key: "set", label: "stores", color: color.set }, { key: "other", label: "others", color: color.other },
], { stacked: true, format: number });
new Chart("ratio", "Hit ratio", [{ key: "ratio", label: "hits of all reads", color: color.hit }], {
  format: (v) => percent(v),
  range: (seen) => {
    const low = Math.min(...seen.map((p) => p.ratio ?? 1));
    for (const floor of [0.99, 0.95, 0.9, 0.8, 0.5]) if (low >= floor + (1 - floor) * 0.1) return [floor, 1];
    return [0, 1];
  },
});
new Chart("latency", "Time in the server", [{ key: "p99", label: "99 %", color: color.miss }, { key: "p50", label: "median", color: color.set }], { format: duration });
new Chart("evict", "Items leaving the cache", [{ key: "evict", label: "evicted", color: color.evict }, { key: "expire", label: "expired", color: color.calm }], { format: number });
new Chart("net", "Network", [{ key: "out", label: "out", color: color.set }, { key: "in", label: "in", color: color.hit }], { format: bytes, base: 1024 });
poll();
