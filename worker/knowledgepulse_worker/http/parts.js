// What the pages share.
// All values from traces pass through `text` and are inserted only as text nodes.

const PARTS = { complexity: "complexity", novelty: "novelty", tool_diversity: "tool diversity", outcome_confidence: "outcome" };
const SVG = "http://www.w3.org/2000/svg";
const whole = new Intl.NumberFormat("en");
const $ = id => document.getElementById(id);

// Invisible characters and characters that change the text direction are shown as escapes.
const UNSEEN = /[\p{Cc}\p{Zl}\p{Zp}\p{Cs}\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/gu;
const text = value => String(value).replace(UNSEEN, c => "\\u{" + c.codePointAt(0).toString(16) + "}");

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter(child => child !== null && child !== ""));
  return node;
}
function shape(tag, attributes, content) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (content !== undefined) node.append(content);
  return node;
}
const percent = share => (100 * share).toFixed(4) + "%";
const shown = (part, all) => all === 0 ? "–" : (100 * part / all).toFixed(1) + "%";
const count = (n, one, many) => whole.format(n) + " " + (n === 1 ? one : many);
const words = name => name.replace("_", " ");
const number = value => Number(value.toFixed(4)).toString();

const BINS = 40;

// A histogram of scores, each a pair of the score and whether it passes.
function drawHistogram(chart, scores, behind, before) {
  const bins = Array.from({ length: BINS }, () => ({ all: 0, pass: 0 }));
  for (const [score, passes] of scores) {
    const bin = bins[Math.min(BINS - 1, Math.floor(score * BINS + 1e-9))];
    bin.all++;
    if (passes) bin.pass++;
  }
  const most = Math.max(1, ...bins.map(bin => bin.all));
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find(one => most / one <= 4);
  const top = Math.max(4, most) * 1.18;  // room for the threshold's label
  const marksUp = [], labels = [], bars = [];
  for (let n = step; n <= Math.max(4, most); n += step) {
    const y = percent(1 - n / top);
    marksUp.push(shape("line", { x1: 0, x2: "100%", y1: y, y2: y, class: "grid" }));
    labels.push(shape("text", { x: 0, y, dy: -3, class: "halo" }, whole.format(n)));
  }
  bins.forEach((bin, i) => {
    if (!bin.all) return;
    const box = { x: percent((i + 0.06) / BINS), width: percent(0.88 / BINS) };
    const group = shape("g", {});
    group.append(shape("title", {}, `${number(i / BINS)} to ${number((i + 1) / BINS)}: ${count(bin.all, "trace", "traces")}, ${bin.pass} pass`));
    group.append(shape("rect", { ...box, y: percent(1 - bin.all / top), height: percent((bin.all - bin.pass) / top), class: "under" }));
    group.append(shape("rect", { ...box, y: percent(1 - bin.pass / top), height: percent(bin.pass / top), class: "over" }));
    bars.push(group);
  });
  chart.replaceChildren(...marksUp, ...bars, shape("line", { x1: 0, x2: "100%", y1: "100%", y2: "100%", class: "base" }), ...behind, ...labels, ...before);
  drawBins(bins);
}

function drawBins(bins) {
  $("bins").replaceChildren(...bins.flatMap((bin, i) => bin.all ? [el("tr", {},
    el("th", { scope: "row" }, `${number(i / BINS)} to ${number((i + 1) / BINS)}`),
    el("td", {}, whole.format(bin.all)), el("td", {}, whole.format(bin.pass)))] : []));
}


function drawTicks() {
  for (const value of [0, 0.25, 0.5, 0.75, 1]) {
    const tick = el("span", {}, String(value));
    tick.style.left = percent(value);
    $("ticks").append(tick);
  }
}
