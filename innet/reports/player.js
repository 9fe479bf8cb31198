"use strict";
// Plays a recording of innet: see innet/records/recording.py for what its columns mean.

const record = JSON.parse(document.getElementById("record").textContent);
const SENT_ON = 1, BY_PROGRAM = 2, QUEUE_FULL = 3, LOST = 4, NO_LINK = 5, NO_PROGRAM = 6;
const FATES = record.fates;
const SECONDS = 20; // that a whole recording takes at the speed ×1, without its quiet times
const GAP = 0.01; // of the busy time: what a longer quiet time shrinks to where it is skipped
const HOLD = 0.45; // seconds for which a loss stays visible
const $ = (id) => document.getElementById(id);

// ---------------------------------------------------------------- what is in the record

async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The columns by name: bytes as they are, other numbers as Float64Array. */
function unpack(columns, data) {
  const found = {};
  let begin = 0;
  for (const { name, rows, width, base, is_delta: isDelta } of columns) {
    const end = begin + rows * width;
    if (name === "bytes" && width <= 1) {
      found.bytes = width ? data.slice(begin, end) : new Uint8Array(rows);
      if (base) for (let row = 0; row < rows; row++) found.bytes[row] += base;
    } else {
      const values = new Float64Array(rows).fill(base);
      for (let place = 0, scale = 1; place < width; place++, scale *= 256) {
        const first = begin + place * rows;
        for (let row = 0; row < rows; row++) values[row] += scale * data[first + row];
      }
      if (isDelta) for (let row = 1; row < rows; row++) values[row] += values[row - 1];
      found[name] = values;
    }
    begin = end;
  }
  return found;
}

/** How many values of a sorted array are at most `value`. */
function upTo(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Bits of a frame as a BigInt; null where they are not kept. */
function bits(bytes, begin, end, offset, width) {
  if (begin + Math.ceil((offset + width) / 8) > end) return null;
  let value = 0n;
  const first = offset >> 3, last = (offset + width - 1) >> 3;
  for (let at = first; at <= last; at++) value = (value << 8n) | BigInt(bytes[begin + at]);
  value >>= BigInt(8 * (last + 1) - offset - width);
  return value & ((1n << BigInt(width)) - 1n);
}

function shown(value, width, notation) {
  if (value === null) return "not kept";
  const hex = value.toString(16);
  if (notation === "mac") return hex.padStart(12, "0").replace(/(..)(?=.)/g, "$1:");
  if (notation === "ipv4") return [24n, 16n, 8n, 0n].map((n) => (value >> n) & 255n).join(".");
  if (width > 64) return "0x" + hex.padStart(width / 4, "0");
  return value < 10n ? String(value) : `${value} (0x${hex})`;
}

/** Places of nodes in [0, 1]: hosts below, switches above them by their distance from hosts. */
function placed(nodes, links) {
  const near = nodes.map(() => []);
  for (const link of links) near[link.source].push(link.target);
  const layer = nodes.map((node) => (node.kind === "host" ? 0 : -1));
  let reached = nodes.map((_, at) => at).filter((at) => layer[at] === 0);
  while (reached.length) {
    const next = [];
    for (const at of reached) {
      for (const other of near[at]) {
        if (layer[other] < 0) { layer[other] = layer[at] + 1; next.push(other); }
      }
    }
    reached = next;
  }
  const most = Math.max(1, ...layer);
  const rows = Array.from({ length: most + 1 }, () => []);
  layer.forEach((each, at) => rows[each < 0 ? most : each].push(at));
  const x = nodes.map(() => 0.5);
  const spread = (row) => row.forEach((at, place) => { x[at] = (place + 0.5) / row.length; });
  rows.forEach(spread);
  // Nodes stand below or above the middle of those that they are linked to.
  const sortBy = (row, other) => {
    const middle = new Map(row.map((at) => {
      const seen = near[at].filter((each) => other(layer[each], layer[at]));
      return [at, seen.length ? seen.reduce((sum, each) => sum + x[each], 0) / seen.length : x[at]];
    }));
    row.sort((a, b) => middle.get(a) - middle.get(b) || a - b);
    spread(row);
  };
  for (let round = 0; round < 4; round++) {
    for (let level = most - 1; level >= 0; level--) sortBy(rows[level], (a, b) => a > b);
    for (let level = 1; level <= most; level++) sortBy(rows[level], (a, b) => a < b);
  }
  return nodes.map((_, at) => ({ x: x[at], y: 1 - (layer[at] < 0 ? most : layer[at]) / most }));
}

// ---------------------------------------------------------------- units

function unitOf(picoseconds) {
  for (const [name, scale] of [["s", 1e12], ["ms", 1e9], ["µs", 1e6]]) {
    if (picoseconds >= scale) return { name, scale };
  }
  return { name: "ns", scale: 1e3 };
}

function duration(picoseconds, digits = 4) {
  const { name, scale } = unitOf(Math.abs(picoseconds));
  return `${Number((picoseconds / scale).toPrecision(digits))} ${name}`;
}

const count = (number) => number.toLocaleString("en");

function rateText(rate) {
  const [name, scale] = rate >= 1e9 ? ["Gbit/s", 1e9] : rate >= 1e6 ? ["Mbit/s", 1e6] : ["kbit/s", 1e3];
  return `${Number((rate / scale).toPrecision(4))} ${name}`;
}

// ---------------------------------------------------------------- the run

let run = null;

class Run {
  constructor(columns) {
    Object.assign(this, columns);
    const { nodes, links } = record;
    this.rows = this.time.length;
    this.begin = record.begin;
    this.end = Math.max(record.end, this.begin + 1);
    this.frameBegin = new Float64Array(this.frame_length.length);
    for (let at = 1; at < this.frame_length.length; at++) {
      this.frameBegin[at] = this.frameBegin[at - 1] + this.frame_length[at - 1];
    }
    // When each packet arrives, and when it came to the switch that it leaves.
    this.arrives = this.time.map((time, row) => time + this.flight[row]);
    this.entered = this.time.map((time, row) => this.arrivalOf(this.cause[row], this.copy_of_cause[row], time));
    this.longest = this.flight.reduce((most, each) => Math.max(most, each), 0);
    this.again.forEach((each) => { this.longest = Math.max(this.longest, each); });
    this.axis = this.shortened();
    this.children = new Map();
    const add = (cause, child) => {
      if (cause < 0) return;
      if (!this.children.has(cause)) this.children.set(cause, []);
      this.children.get(cause).push(child);
    };
    for (let row = 0; row < this.rows; row++) add(this.cause[row], { row });
    this.full_cause.forEach((cause, full) => add(cause, { full }));
    this.events = this.allEvents();
    this.queues = this.allQueues(nodes, links);
    // Losses and drops in order of time: where they are seen.
    const seen = [];
    for (let row = 0; row < this.rows; row++) {
      const fate = this.fate[row];
      if (fate === LOST) seen.push([this.time[row] + this.flight[row] / 2, row, fate]);
      else if (fate === BY_PROGRAM || fate === NO_PROGRAM || fate === NO_LINK) {
        seen.push([this.arrives[row], row, fate]);
      }
    }
    this.full_time.forEach((time, at) => seen.push([time, at, QUEUE_FULL]));
    seen.sort((a, b) => a[0] - b[0]);
    this.seen = seen;
    this.seenTimes = Float64Array.from(seen, (each) => each[0]);
    this.changes = record.watches.map((_, watch) => {
      const rows = [];
      this.change_watch.forEach((each, row) => { if (each === watch) rows.push(row); });
      return {
        times: Float64Array.from(rows, (row) => this.change_time[row]),
        values: rows.map((row) => this.change_high[row] * 2 ** 32 + this.change_low[row]),
        first: record.first_values[watch],
      };
    });
  }

  /** Points of time and their places where quiet times, with nothing on a link, are short. */
  shortened() {
    const gaps = [];
    let until = this.begin, busy = 0;
    for (let row = 0; row < this.rows; row++) {
      const time = this.time[row];
      if (time > until) gaps.push([until, time]);
      const through = Math.min(this.end, time + Math.max(this.flight[row], this.again[row]));
      if (through > until) { busy += through - Math.max(until, time); until = through; }
    }
    if (this.end > until) gaps.push([until, this.end]);
    this.busy = busy || this.end - this.begin;
    const times = [this.begin], places = [0], quiet = [];
    for (const [since, end] of gaps) {
      const short = GAP * this.busy;
      if (end - since <= 2 * short) continue;
      const place = places.at(-1) + since - times.at(-1);
      times.push(since, end);
      places.push(place, place + short);
      quiet.push([since, end]);
    }
    times.push(this.end);
    places.push(places.at(-1) + this.end - times.at(-2));
    return { times, places, quiet };
  }

  /** A time's part of the whole axis, in [0, 1]; and back. */
  partOf(time) {
    const { times, places } = this.axisNow();
    const at = Math.min(times.length - 1, Math.max(1, upTo(times, time)));
    const share = (time - times[at - 1]) / (times[at] - times[at - 1] || 1);
    return (places[at - 1] + share * (places[at] - places[at - 1])) / places.at(-1);
  }

  timeOf(part) {
    const { times, places } = this.axisNow();
    const place = part * places.at(-1);
    const at = Math.min(places.length - 1, Math.max(1, upTo(places, place)));
    const share = (place - places[at - 1]) / (places[at] - places[at - 1] || 1);
    return times[at - 1] + share * (times[at] - times[at - 1]);
  }

  axisNow() {
    if ($("quiet").checked) return this.axis;
    return { times: [this.begin, this.end], places: [0, this.end - this.begin], quiet: [] };
  }

  arrivalOf(row, copy, otherwise) {
    if (row < 0) return otherwise;
    return copy ? this.time[row] + this.again[row] : this.time[row] + this.flight[row];
  }

  allEvents() {
    const times = [this.begin, this.end];
    for (let row = 0; row < this.rows; row++) {
      times.push(this.time[row]);
      if (this.arrives[row] <= this.end) times.push(this.arrives[row]);
    }
    for (const time of this.full_time) times.push(time);
    for (const time of this.change_time) times.push(time);
    const sorted = Float64Array.from(times).sort();
    return sorted.filter((time, at) => at === 0 || time !== sorted[at - 1]);
  }

  /** Of each link from a switch: when packets came to its queue and left it. */
  allQueues(nodes, links) {
    const rows = links.map(() => []);
    for (let row = 0; row < this.rows; row++) rows[this.link[row]].push(row);
    const found = links.map((link, at) => {
      if (nodes[link.source].kind !== "switch") return null;
      const enters = Float64Array.from(rows[at], (row) => this.entered[row]).sort();
      const leaves = Float64Array.from(rows[at], (row) => this.time[row]);
      return { link: at, enters, leaves, rows: rows[at], most: 0 };
    });
    for (const queue of found) {
      if (queue) {
        let left = 0;
        queue.enters.forEach((time, at) => {
          while (left < queue.leaves.length && queue.leaves[left] <= time) left++;
          queue.most = Math.max(queue.most, at + 1 - left);
        });
      }
    }
    return found;
  }

  depth(queue, time) {
    return upTo(queue.enters, time) - upTo(queue.leaves, time);
  }

  value(watch, time) {
    const { times, values, first } = this.changes[watch];
    const at = upTo(times, time);
    return at ? values[at - 1] : first;
  }
}

// ---------------------------------------------------------------- what is seen

const view = { time: 0, playing: false, speed: 3, selected: null, node: null, dots: [], last: 0, frames: 0 };
const SPEEDS = [1 / 256, 1 / 64, 1 / 16, 1 / 4, 1 / 2, 1, 2, 4, 16];
let colors = {};
let places = [];
let stage = { width: 0, height: 0, pen: null };

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "paper", "faint", "line", "wire", "node", "up", "down", "bad", "ended", "queue", "link", "shade"]) {
    colors[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

function fitted(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = "12px system-ui, sans-serif";
  return { width, height, pen };
}

const speedOf = () => (run.busy / SECONDS) * SPEEDS[view.speed];

function layOut() {
  readColors();
  stage = fitted($("net"));
  const top = 34, bottom = 40, side = 34;
  places = placed(record.nodes, record.links).map(({ x, y }) => ({
    x: side + x * (stage.width - 2 * side),
    y: top + y * (stage.height - top - bottom),
  }));
  // Links between the same nodes lie side by side, each direction on its right.
  const beside = new Map();
  wires = record.links.map((link) => {
    const pair = `${link.source}-${link.target}`;
    const turn = beside.get(pair) || 0;
    beside.set(pair, turn + 1);
    const from = places[link.source], to = places[link.target];
    const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
    const along = { x: (to.x - from.x) / length, y: (to.y - from.y) / length };
    const right = { x: -along.y, y: along.x };
    const off = 3.5 + 9 * turn;
    const at = (distance, aside = 0) => ({
      x: from.x + along.x * distance + right.x * (off + aside),
      y: from.y + along.y * distance + right.y * (off + aside),
    });
    const margin = Math.min(15, length / 4);
    return { at, begin: margin, length: length - 2 * margin, off };
  });
  layOutQueues();
  drawStrip();
  drawCharts();
  draw();
}
let wires = [];

const pointOf = (wire, part) => wire.at(wire.begin + part * wire.length);

function draw() {
  const { pen, width, height } = stage;
  const time = view.time;
  pen.clearRect(0, 0, width, height);
  drawWires(pen);
  drawPackets(pen, time);
  drawLosses(pen, time, true);
  drawNodes(pen, width);
  drawQueues(pen, time);
  drawLosses(pen, time, false);
  const unit = unitOf(run.end - run.begin);
  const digits = Math.max(0, Math.round(Math.log10(unit.scale)));
  $("clock").textContent =
    `${((time - run.begin) / unit.scale).toFixed(Math.min(6, digits))} of ` +
    `${Number(((run.end - run.begin) / unit.scale).toPrecision(6))} ${unit.name}`;
  $("scrub").value = String(Math.round(10000 * run.partOf(time)));
  drawCursors();
  view.frames++;
}

function drawWires(pen) {
  pen.lineWidth = 1.2;
  pen.strokeStyle = colors.wire;
  pen.beginPath();
  for (const wire of wires) {
    const from = pointOf(wire, 0), to = pointOf(wire, 1);
    pen.moveTo(from.x, from.y);
    pen.lineTo(to.x, to.y);
  }
  pen.stroke();
}

function drawPackets(pen, time) {
  view.dots = [];
  const last = upTo(run.time, time);
  const first = upTo(run.time, time - run.longest - 1);
  for (let row = first; row < last; row++) {
    dot(pen, row, (time - run.time[row]) / run.flight[row], run.fate[row] === LOST ? 0.5 : 1);
    if (run.again[row]) dot(pen, row, (time - run.time[row]) / run.again[row], 1);
  }
  const row = view.selected;
  if (row === null) return;
  const mine = view.dots.filter((each) => each.row === row);
  pen.strokeStyle = colors.ink;
  pen.lineWidth = 2;
  for (const { x, y } of mine) {
    pen.beginPath();
    pen.arc(x, y, 8.5, 0, 7);
    pen.stroke();
  }
  const wire = wires[run.link[row]];
  const from = pointOf(wire, 0), to = pointOf(wire, 1);
  pen.globalAlpha = 0.55;
  pen.beginPath();
  pen.moveTo(from.x, from.y);
  pen.lineTo(to.x, to.y);
  pen.stroke();
  pen.globalAlpha = 1;
}

function dot(pen, row, part, most) {
  if (part < 0 || part >= most) return;
  const wire = wires[run.link[row]];
  const { x, y } = pointOf(wire, part);
  const link = record.links[run.link[row]];
  const takes = (8e12 * (Math.max(run.length[row], 60) + 24)) / link.rate;
  const tail = pointOf(wire, Math.max(0, part - Math.min(0.3, takes / run.flight[row])));
  pen.strokeStyle = pen.fillStyle = record.nodes[link.source].kind === "host" ? colors.up : colors.down;
  pen.lineWidth = 3.2;
  pen.beginPath();
  pen.moveTo(tail.x, tail.y);
  pen.lineTo(x, y);
  pen.stroke();
  pen.beginPath();
  pen.arc(x, y, 4.2, 0, 7);
  pen.fill();
  view.dots.push({ row, x, y });
}

/** Beside each switch a bar for the queue of each of its ports, in order of ports. */
function layOutQueues() {
  const ports = record.nodes.map(() => []);
  for (const queue of run.queues) if (queue) ports[record.links[queue.link].source].push(queue);
  for (const queues of ports) {
    queues.sort((a, b) => record.links[a.link].source_port - record.links[b.link].source_port);
    const width = Math.min(6, 84 / queues.length);
    queues.forEach((queue, at) => {
      const node = places[record.links[queue.link].source];
      queue.bar = { x: node.x + 21 + at * width, y: node.y + 12, width: Math.max(1, width - 1.5) };
    });
  }
  queuesOf = ports.filter((queues) => queues.some((queue) => queue.most));
  deepest = Math.max(1, ...run.queues.map((queue) => (queue ? queue.most : 0)));
}
let queuesOf = [], deepest = 1;

function drawQueues(pen, time) {
  pen.textAlign = "left";
  pen.textBaseline = "alphabetic";
  for (const queues of queuesOf) {
    let total = 0;
    for (const queue of queues) {
      const depth = queue.most ? run.depth(queue, time) : 0;
      if (!depth) continue;
      total += depth;
      const { x, y, width } = queue.bar;
      const height = 3 + 27 * (depth / deepest);
      pen.fillStyle = colors.paper;
      pen.fillRect(x - 1, y - height - 1, width + 2, height + 2);
      pen.fillStyle = colors.queue;
      pen.fillRect(x, y - height, width, height);
    }
    if (total) {
      const { x, y, width } = queues.at(-1).bar;
      pen.fillStyle = colors.queue;
      label(pen, String(total), x + width + 4, y);
    }
  }
}

function drawNodes(pen, width) {
  const hosts = record.nodes.filter((node) => node.kind === "host").length;
  const room = (width - 60) / Math.max(1, hosts);
  const widest = Math.max(...record.nodes.map((node) => pen.measureText(node.name).width));
  const every = Math.max(1, Math.ceil((widest + 6) / room)); // so that labels do not meet
  record.nodes.forEach((node, at) => {
    const { x, y } = places[at];
    pen.fillStyle = colors.node;
    pen.strokeStyle = view.node === at ? colors.ink : colors.faint;
    pen.lineWidth = view.node === at ? 2.5 : 1.2;
    pen.beginPath();
    if (node.kind === "host") pen.arc(x, y, Math.min(9, Math.max(2.5, 0.4 * room)), 0, 7);
    else pen.roundRect(x - 15, y - 12, 30, 24, 4);
    pen.fill();
    pen.stroke();
    pen.fillStyle = colors.ink;
    pen.textAlign = "center";
    if (node.kind === "switch") {
      pen.textBaseline = "bottom";
      label(pen, node.name, x, y - 15);
    } else if (order[at] % every === 0) {
      pen.textBaseline = "top";
      label(pen, node.name, x, y + 13);
    }
  });
}

function label(pen, text, x, y) {
  pen.strokeStyle = colors.paper;
  pen.lineWidth = 3;
  pen.strokeText(text, x, y);
  pen.fillText(text, x, y);
}
let order = []; // places of hosts from left to right

/** What was lost or dropped lately: at switches, where `under` nodes, or elsewhere. */
function drawLosses(pen, time, under) {
  const hold = HOLD * speedOf();
  const last = upTo(run.seenTimes, time);
  for (let at = upTo(run.seenTimes, time - hold); at < last; at++) {
    const [when, row, fate] = run.seen[at];
    if (under === (fate === LOST || fate === QUEUE_FULL)) continue;
    const age = (time - when) / hold;
    pen.globalAlpha = 1 - 0.8 * age;
    pen.lineWidth = 2.6;
    if (fate === LOST) cross(pen, pointOf(wires[run.link[row]], 0.5), 6);
    else if (fate === QUEUE_FULL) {
      const { x, y, width } = run.queues[run.full_link[row]].bar;
      cross(pen, { x: x + width / 2, y: y - 36 }, 5);
    } else {
      const end = places[record.links[run.link[row]].target];
      pen.strokeStyle = colors.ended;
      pen.beginPath();
      pen.arc(end.x, end.y, 18 + 7 * age, 0, 7);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }
}

function cross(pen, { x, y }, size) {
  pen.strokeStyle = colors.bad;
  pen.beginPath();
  pen.moveTo(x - size, y - size);
  pen.lineTo(x + size, y + size);
  pen.moveTo(x + size, y - size);
  pen.lineTo(x - size, y + size);
  pen.stroke();
}

// ---------------------------------------------------------------- over the whole time

const SIDE = 8; // pixels beside the strip and the charts: half the knob of the scrub bar

const pixelOf = (time, width) => SIDE + run.partOf(time) * (width - 2 * SIDE);

function drawStrip() {
  const { pen, width, height } = fitted($("strip"));
  const sent = new Float64Array(Math.ceil(width) + 1), bad = new Uint8Array(sent.length);
  for (const time of run.time) sent[Math.floor(pixelOf(time, width))]++;
  for (const [time, , fate] of run.seen) {
    if (fate === LOST || fate === QUEUE_FULL) bad[Math.floor(pixelOf(time, width))] = 1;
  }
  const most = sent.reduce((a, b) => Math.max(a, b), 1);
  pen.fillStyle = colors.shade;
  for (const [since, end] of run.axisNow().quiet) {
    const x = pixelOf(since, width);
    pen.fillRect(x, 0, Math.max(2, pixelOf(end, width) - x), height);
  }
  pen.fillStyle = colors.faint;
  sent.forEach((each, x) => pen.fillRect(x, height - 8 - (each / most) * (height - 12), 1, (each / most) * (height - 12)));
  pen.fillStyle = colors.bad;
  bad.forEach((each, x) => { if (each) pen.fillRect(x, height - 6, 1.5, 6); });
}

let charts = [];

function drawCharts() {
  const box = $("charts");
  box.replaceChildren();
  charts = [];
  const busy = run.queues.filter((queue) => queue && queue.most > 0);
  busy.sort((a, b) => b.most - a.most);
  for (const queue of busy.slice(0, 3)) {
    const link = record.links[queue.link];
    const times = [], values = [];
    let enter = 0, leave = 0;
    while (leave < queue.leaves.length) {
      const enters = enter < queue.enters.length && queue.enters[enter] <= queue.leaves[leave];
      times.push(enters ? queue.enters[enter++] : queue.leaves[leave++]);
      values.push(enter - leave);
    }
    chart(
      `Queue of ${record.nodes[link.source].name}, port ${link.source_port}, to ` +
        `${record.nodes[link.target].name}: packets`,
      times, values, 0, (time) => run.depth(queue, time), colors.queue);
  }
  record.watches.slice(0, 8).forEach((name, watch) => {
    const { times, values, first } = run.changes[watch];
    chart(name, times, values, first, (time) => run.value(watch, time), colors.link);
  });
  const hidden = Math.max(0, busy.length - 3) + Math.max(0, record.watches.length - 8);
  if (hidden) box.append(element("p", `${count(hidden)} further queues and cells are not drawn.`, "faint"));
}

function chart(title, times, values, first, now, color) {
  const head = element("p", title);
  const value = element("b", "");
  head.append(value);
  const canvas = document.createElement("canvas");
  const box = element("div", "", "chart");
  box.append(head, canvas);
  $("charts").append(box);
  const { pen, width, height } = fitted(canvas);
  const low = new Float64Array(Math.ceil(width) + 1).fill(Infinity), high = new Float64Array(low.length).fill(-Infinity);
  let before = first, at = 0;
  for (let x = 0; x < low.length; x++) {
    low[x] = high[x] = before;
    while (at < times.length && pixelOf(times[at], width) < x + 1) {
      before = values[at++];
      low[x] = Math.min(low[x], before);
      high[x] = Math.max(high[x], before);
    }
  }
  const top = high.reduce((a, b) => Math.max(a, b), 1), base = low.reduce((a, b) => Math.min(a, b), 0);
  const y = (each) => height - 3 - ((each - base) / (top - base)) * (height - 8);
  pen.strokeStyle = colors.line;
  pen.strokeRect(SIDE, 1, width - 2 * SIDE, height - 2);
  pen.fillStyle = color;
  for (let x = SIDE; x < width - SIDE; x++) pen.fillRect(x, y(high[x]), 1, Math.max(1.5, y(low[x]) - y(high[x]) + 1));
  pen.fillStyle = colors.faint;
  pen.textBaseline = "top";
  pen.fillText(count(top), SIDE + 4, 4);
  charts.push({ canvas, pen, width, height, now, value, kept: pen.getImageData(0, 0, canvas.width, canvas.height) });
}

function drawCursors() {
  for (const each of charts) {
    each.value.textContent = count(each.now(view.time));
    each.pen.putImageData(each.kept, 0, 0);
    each.pen.fillStyle = colors.ink;
    each.pen.fillRect(pixelOf(view.time, each.width) - 0.5, 0, 1, each.height);
  }
}

// ---------------------------------------------------------------- a packet, a node

function element(kind, text, name = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

function pairs(rows) {
  const table = document.createElement("table");
  for (const [name, value] of rows) {
    const row = document.createElement("tr");
    row.append(element("th", name), element("td", value));
    table.append(row);
  }
  return table;
}

function linkText(number) {
  const link = record.links[number];
  const end = (node, port) => record.nodes[node].name + (port === null || port === undefined ? "" : `:${port}`);
  return `${end(link.source, link.source_port)} → ${end(link.target, link.target_port)}`;
}

function goButton(text, row) {
  const made = element("button", text);
  made.addEventListener("click", () => { select(row, true); });
  return made;
}

function showPacket(row) {
  const box = $("detail");
  const link = record.links[run.link[row]];
  const since = (time) => duration(time - run.begin, 7);
  box.replaceChildren(element("h2", `Packet ${count(row)}`));
  const takes = (8e12 * (Math.max(run.length[row], 60) + 24)) / link.rate;
  const facts = [
    ["link", linkText(run.link[row])],
    ["first bit", since(run.time[row])],
    [record.nodes[link.target].kind === "switch" ? "in the program" : "arrives", since(run.arrives[row])],
    ["length", `${count(run.length[row])} bytes, ${duration(takes)} at ${rateText(link.rate)}`],
  ];
  if (record.nodes[link.source].kind === "switch" && run.cause[row] >= 0) {
    facts.push(["waited", duration(run.time[row] - run.entered[row])]);
  }
  if (run.flow[row] >= 0) {
    const bare = run.frame_length[run.frame[row]] === 0;
    facts.push(bare ? ["part of", "a message, without bytes"]
      : ["flow", `${run.flow[row]}, without bytes: headers as captures have them`]);
  }
  if (run.again[row]) facts.push(["duplicate", `arrives ${since(run.time[row] + run.again[row])}`]);
  if (run.damaged[row]) facts.push(["damaged", "on the way; the bytes here are those that were sent"]);
  facts.push(["then", FATES[run.fate[row]]]);
  box.append(pairs(facts));
  // Where it comes from, and where it is next.
  box.append(element("h3", "Before"));
  if (run.cause[row] >= 0) box.append(goButton(`packet ${count(run.cause[row])}: ${linkText(run.link[run.cause[row]])}`, run.cause[row]));
  else box.append(element("p", record.nodes[link.source].kind === "host" ? `${record.nodes[link.source].name} sent it.` : "Not known.", "faint"));
  box.append(element("h3", "Next"));
  const next = run.children.get(row) || [];
  for (const each of next.slice(0, 20)) {
    if (each.row !== undefined) box.append(goButton(`packet ${count(each.row)}: ${linkText(run.link[each.row])} at ${since(run.time[each.row])}`, each.row));
    else box.append(element("p", `dropped: the queue to ${linkText(run.full_link[each.full])} was full`, "bad"));
  }
  if (next.length > 20) box.append(element("p", `and ${count(next.length - 20)} more`, "faint"));
  if (!next.length) box.append(element("p", `${FATES[run.fate[row]][0].toUpperCase()}${FATES[run.fate[row]].slice(1)}.`, "faint"));
  if (run.way[row] >= 0) {
    box.append(element("h3", `Way through ${record.nodes[link.target].name}`));
    box.append(element("pre", record.ways[run.way[row]].join("\n")));
  }
  showHeaders(box, row);
}

function showHeaders(box, row) {
  const frame = run.frame[row], layout = run.layout[row];
  if (frame < 0) return;
  const begin = run.frameBegin[frame], end = begin + run.frame_length[frame];
  let parsed = 0;
  for (const header of layout >= 0 ? record.layouts[layout] : []) {
    box.append(element("h3", header.name));
    let offset = header.offset;
    const rows = [];
    for (const { name, width, notation } of header.fields) {
      if (width) rows.push([name, shown(bits(run.bytes, begin, end, offset, width), width, notation)]);
      offset += width;
    }
    box.append(pairs(rows));
    parsed = Math.max(parsed, Math.ceil(offset / 8));
  }
  const rest = run.bytes.subarray(Math.min(begin + parsed, end), end);
  const hex = [...rest.subarray(0, 256)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  if (rest.length) {
    box.append(element("h3", layout >= 0 && parsed ? "Bytes behind the headers" : "Bytes"));
    box.append(element("pre", hex + (rest.length > 256 ? ` and ${count(rest.length - 256)} more` : "")));
  }
}

function showNode(at) {
  const box = $("detail"), node = record.nodes[at];
  box.replaceChildren(element("h2", node.name));
  let came = 0, left = 0;
  for (let row = 0; row < run.rows && run.time[row] <= view.time; row++) {
    const link = record.links[run.link[row]];
    if (link.target === at && run.arrives[row] <= view.time && run.fate[row] !== LOST) came++;
    if (link.source === at) left++;
  }
  const facts = [["kind", node.kind], ["packets in", count(came)], ["packets out", count(left)]];
  if (node.kind === "switch") facts.splice(1, 0, ["program", node.program || "none: it forwards flows"]);
  box.append(pairs(facts));
  for (const queue of run.queues) {
    if (!queue || record.links[queue.link].source !== at) continue;
    const waiting = queue.rows.filter((row) => run.entered[row] <= view.time && run.time[row] > view.time);
    if (!waiting.length) continue;
    box.append(element("h3", `Waiting at port ${record.links[queue.link].source_port}: ${count(waiting.length)}`));
    for (const row of waiting.slice(0, 12)) box.append(goButton(`packet ${count(row)}, leaves at ${duration(run.time[row] - run.begin, 7)}`, row));
  }
  box.append(element("p", "As of the moment at which you clicked.", "faint"));
}

function showHelp() {
  const box = $("detail");
  box.replaceChildren(element("h2", "The run"));
  const fates = FATES.map((name, fate) => [name, run.fate.reduce((sum, each) => sum + (each === fate), 0)]);
  box.append(pairs([
    ["packets put onto links", count(run.rows)],
    ...fates.filter(([, number]) => number).map(([name, number]) => [name, count(number)]),
    ...(run.full_time.length ? [["copies that found a queue full", count(run.full_time.length)]] : []),
    ["hosts", count(record.nodes.filter((node) => node.kind === "host").length)],
    ["switches", count(record.nodes.filter((node) => node.kind === "switch").length)],
    ["links", [...new Set(record.links.map((link) => rateText(link.rate)))].join(", ")],
  ]));
  box.append(element("p", "Click a packet to see its headers and where it is next, or a switch to see what waits there.", "faint"));
}

function select(row, jump = false) {
  view.selected = row;
  view.node = null;
  if (row === null) showHelp();
  else {
    // Where it is best seen: a third of its way along the link.
    if (jump) { pause(); goTo(run.time[row] + run.flight[row] / 3); }
    showPacket(row);
  }
  draw();
}

// ---------------------------------------------------------------- time

function goTo(time) {
  view.time = Math.min(run.end, Math.max(run.begin, time));
  draw();
}

function pause() {
  view.playing = false;
  $("play").textContent = "Play";
  $("play").setAttribute("aria-pressed", "false");
}

function play() {
  if (view.playing) { pause(); return; }
  if (view.time >= run.end) view.time = run.begin;
  view.playing = true;
  view.last = performance.now();
  $("play").textContent = "Pause";
  $("play").setAttribute("aria-pressed", "true");
  requestAnimationFrame(tick);
}

function tick(now) {
  if (!view.playing) return;
  const passed = Math.min(0.25, Math.max(0, now - view.last) / 1000);
  view.last = now;
  let next = view.time + passed * speedOf();
  if ($("quiet").checked) {
    // Where nothing is under way, on to shortly before what happens next.
    const soon = run.events[upTo(run.events, view.time)];
    if (!view.dots.length && soon > view.time + 0.3 * speedOf()) next = Math.max(next, soon - 0.1 * speedOf());
  }
  goTo(next);
  if (view.time >= run.end) pause();
  else requestAnimationFrame(tick);
}

function step(way) {
  pause();
  const at = upTo(run.events, view.time);
  if (way > 0) goTo(run.events[Math.min(at, run.events.length - 1)]);
  else goTo(run.events[Math.max(0, run.events[at - 1] < view.time ? at - 1 : at - 2)]);
}

function setSpeed(speed) {
  view.speed = Math.min(SPEEDS.length - 1, Math.max(0, speed));
  $("speed").value = String(view.speed);
}

function click(event) {
  const box = $("net").getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  const away = (each) => Math.hypot(each.x - x, each.y - y);
  let best = null;
  for (const each of view.dots) if (away(each) < 12 && (!best || away(each) < away(best))) best = each;
  if (best) { select(best.row); return; }
  const node = places.findIndex((each) => away(each) < 18);
  view.selected = null;
  view.node = node < 0 ? null : node;
  if (node < 0) showHelp();
  else showNode(node);
  draw();
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const inSelect = event.target === $("speed");
  const actions = {
    " ": play, ArrowRight: () => step(1), ArrowLeft: () => step(-1), Home: () => goTo(run.begin),
    End: () => goTo(run.end), ArrowUp: () => setSpeed(view.speed + 1),
    ArrowDown: () => setSpeed(view.speed - 1), Escape: () => select(null),
  };
  const action = actions[event.key];
  if (!action || inSelect || (event.key === " " && event.target.tagName === "BUTTON" && event.target.id !== "play")) return;
  event.preventDefault();
  action();
}

async function begin() {
  const data = await inflate(record.data);
  delete record.data;
  run = new Run(unpack(record.columns, data));
  view.time = run.begin;
  const said = [`${count(run.rows)} packets in ${duration(run.end - run.begin)} of simulated time`];
  if (record.left_out) said.push(`${count(record.left_out)} later packets are left out`);
  if (record.cut !== null) said.push(`of each packet the first ${record.cut} bytes are kept`);
  $("about").textContent = `${said.join("; ")}.`;
  const placesNow = placed(record.nodes, record.links);
  const hosts = record.nodes.map((_, at) => at).filter((at) => record.nodes[at].kind === "host");
  hosts.sort((a, b) => placesNow[a].x - placesNow[b].x);
  hosts.forEach((at, place) => { order[at] = place; });
  SPEEDS.forEach((speed, at) => {
    const option = element("option", `1 s is ${duration((run.busy / SECONDS) * speed, 3)}`);
    option.value = String(at);
    $("speed").append(option);
  });
  setSpeed(view.speed);
  $("speed").addEventListener("change", () => setSpeed(Number($("speed").value)));
  $("play").addEventListener("click", play);
  $("step").addEventListener("click", () => step(1));
  $("back").addEventListener("click", () => step(-1));
  $("start").addEventListener("click", () => { pause(); goTo(run.begin); });
  $("scrub").addEventListener("input", () => {
    pause();
    goTo(run.timeOf(Number($("scrub").value) / 10000));
  });
  $("quiet").addEventListener("change", layOut);
  $("net").addEventListener("click", click);
  addEventListener("keydown", keys);
  new ResizeObserver(layOut).observe($("net"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", layOut);
  layOut();
  showHelp();
  document.documentElement.dataset.ready = "yes";
}

begin();
