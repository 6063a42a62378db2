// Helpers for all pages. Text is set through textContent only, so a name from a file is never parsed as HTML.
const D = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement, page = document.getElementById("page"), NS = "http://www.w3.org/2000/svg";
const css = name => getComputedStyle(root).getPropertyValue(name).trim();

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter(child => child !== null && child !== undefined));
  return made;
}
function svg(tag, attributes = {}, text) {
  const made = document.createElementNS(NS, tag);
  for (const name in attributes) if (attributes[name] !== undefined && attributes[name] !== null) made.setAttribute(name, attributes[name]);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Formatting of numbers ---------------------------------------------------------------------------------------
const trim = (value, digits = 3) => String(+value.toPrecision(digits));
const grouped = value => Math.round(value).toLocaleString("en");
function duration(s) {
  if (s < 0) return `-${duration(-s)}`;
  if (s > 0 && s < .001) return `${trim(s * 1e6)} µs`;
  if (s > 0 && s < .1) return `${trim(s * 1e3)} ms`;
  if (s < 59.95) return `${+s.toFixed(1)} s`;
  const minutes = Math.floor(Math.round(s) / 60), rest = Math.round(s) % 60;
  if (minutes < 60) return `${minutes} min ${String(rest).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 100 ? `${hours} h ${String(minutes % 60).padStart(2, "0")} min` : `${grouped(hours / 24)} d ${hours % 24} h`;
}
function size(count) {
  let unit = 0;
  while (Math.abs(count) >= 999.95 && unit < 4) { count /= 1000; unit++; }
  return `${unit ? count.toFixed(1) : Math.round(count)} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}
const SHOW = {
  text: v => String(v), seconds: duration, bytes: size, share: v => `${(100 * v).toFixed(1)} %`, metric: v => v.toFixed(4),
  number: v => Number.isInteger(v) ? grouped(v) : trim(v, 4), count: grouped, ratio: v => `${v < 0.1 ? trim(v, 2) : v.toFixed(2)}x`,
  joules: v => Math.abs(v) >= 1000 ? `${(v / 1000).toLocaleString("en", {maximumFractionDigits:1, minimumFractionDigits:1})} kJ` : `${v.toFixed(0)} J`,
};
const show = (value, kind) => value === null || value === undefined || Number.isNaN(value) ? "-" : typeof value === "string" ? value : typeof value === "boolean" ? (value ? "yes" : "no") : SHOW[kind](value);

// Parts of a page -----------------------------------------------------------------------------------------------------
function section(title, say, place, ...children) {
  const made = el("section", {class:place || "wide"}, el("div", {class:"head"}, el("h2", {}, title)), el("p", {class:"say"}, say || ""), children);
  page.append(made);
  return made;
}
const head = made => made.querySelector(".head");
function choice(name, options, chosen, act) {
  const box = el("div", {class:"choice", role:"group", "aria-label":name});
  const choose = (key, quiet) => { box.querySelectorAll("button").forEach(b => b.setAttribute("aria-pressed", b.dataset.key === key)); if (!quiet) act(key); };
  for (const [key, text] of options) box.append(el("button", {type:"button", "data-key":key, onclick:() => choose(key)}, text));
  choose(chosen, true);
  return box;
}
function selector(name, options, chosen, act) {
  const box = el("select", {"aria-label":name, onchange:event => act(event.target.value)}, options.map(([key, text]) => el("option", {value:key, selected:String(key) === String(chosen)}, text)));
  return el("label", {}, name, box);
}
const HINT = window.matchMedia("(hover: hover)").matches ? "Drag horizontally to zoom in, double-click to zoom out." : "";
const titled = text => text.length <= 3 ? text.toUpperCase() : `${text[0].toUpperCase()}${text.slice(1)}`;
const tools = (...parts) => el("div", {class:"tools screen"}, parts);
const keys = entries => el("div", {class:"keys"}, entries.map(([colour, text]) => el("span", {}, el("i", {style:{background:colour}}), text)));
const notes = list => list.length ? el("ul", {class:"notes"}, list.map(text => el("li", {}, text))) : null;

function table(data, caption = true) {
  const body = el("tbody"), order = data.rows.map((_, i) => i);
  let by = -1, up = true;
  const raw = cell => cell !== null && typeof cell === "object" ? cell.value : cell;
  const fill = () => body.replaceChildren(...order.map(i => el("tr", {class:(data.emphasised || []).includes(i) ? "strong" : null}, data.rows[i].map((cell, place) => {
    const {kind} = data.columns[place], text = kind === "text" ? "text" : null;
    if (cell === null || typeof cell !== "object") return el("td", {class:text && String(cell).length < 28 ? "text short" : text}, show(cell, kind));
    const between = cell.low !== null && cell.high !== null ? `${show(cell.low, kind)} to ${show(cell.high, kind)}` : "";
    return el("td", {class:text}, cell.value === null ? cell.text || "-" : `${cell.bound}${show(cell.value, kind)}`, between ? el("small", {}, between) : null, cell.value !== null && cell.text ? el("small", {}, cell.text) : null);
  }))));
  const sort = place => {
    up = by === place ? !up : true; by = place;
    const compare = (a, b) => a === b ? 0 : a === null || a === undefined ? 1 : b === null || b === undefined ? -1 : (typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b)) : a - b) * (up ? 1 : -1);
    order.sort((a, b) => compare(raw(data.rows[a][place]), raw(data.rows[b][place])) || a - b); fill();
  };
  fill();
  const heads = data.columns.map((column, place) => el("th", {class:column.kind === "text" ? "text" : null, title:column.note || null}, el("button", {type:"button", onclick:() => sort(place)}, column.name)));
  return el("div", {}, el("div", {class:"scroll"}, el("table", {}, caption && data.title ? el("caption", {}, data.title) : null, el("thead", {}, el("tr", {}, heads)), body)), notes([...data.columns.filter(c => c.note).map(c => `${c.name}: ${c.note}`), ...(data.notes || [])]));
}
function cards(entries) {
  page.append(el("div", {class:"cards wide"}, entries.map(([name, value, tone, more]) => el("div", {class:"card"}, el("span", {}, name), el("strong", {class:tone || null}, value), more ? el("span", {}, more) : null))));
}

// Theme: the system's preference, until the button is pressed ---------------------------------------------------------
const themed = [];
function theme(dark) { root.classList.toggle("dark", dark); themed.forEach(act => act()); }
const preferred = window.matchMedia("(prefers-color-scheme: dark)");
preferred.addEventListener("change", event => theme(event.matches));
theme(preferred.matches || location.hash === "#dark");
// Plots and maps are redrawn for printing, in the light theme.
const plots = [];
let darkOnScreen = false;
function paper(on) {
  if (on) darkOnScreen = root.classList.contains("dark");
  root.classList.toggle("paper", on);
  if (darkOnScreen) theme(!on);
  plots.forEach(fit => fit());
}
window.addEventListener("beforeprint", () => paper(true));
window.addEventListener("afterprint", () => paper(false));
const themeButton = () => el("button", {type:"button", class:"screen", id:"theme", title:"light or dark theme", "aria-label":"light or dark theme", onclick:() => theme(!root.classList.contains("dark"))}, "◐");

// Tooltips ---------------------------------------------------------------------------------------
function tipOf(box) {
  const tip = el("div", {class:"tip", role:"status"});
  box.append(tip);
  return {
    hide: () => { tip.style.display = "none"; },
    show: (x, y, title, rows) => {
      tip.replaceChildren(el("b", {}, title), ...rows.map(([colour, name, value]) => el("div", {}, colour ? el("i", {style:{background:colour}}) : null, el("span", {}, name), value === undefined ? null : el("em", {}, value))));
      tip.style.display = "block";
      const wide = box.clientWidth, right = x + 16 + tip.offsetWidth < wide;
      tip.style.left = `${Math.max(0, right ? x + 16 : Math.max(0, x - 16 - tip.offsetWidth))}px`;
      tip.style.top = `${Math.max(0, y - tip.offsetHeight / 2)}px`;
    },
  };
}
const measure = (() => { const pen = document.createElement("canvas").getContext("2d"); return (text, font = "12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif") => { pen.font = font; return pen.measureText(text).width; }; })();

// A plot that is redrawn whenever its width changes; `draw(width)` returns the SVG.
function plot(draw, label) {
  const box = el("div", {class:"plot"}), tip = tipOf(box);
  let width = 0;
  const again = () => { if (width < 40) return; box.querySelector("svg")?.remove(); const made = draw(width, tip, box); made.setAttribute("role", "img"); if (label) made.setAttribute("aria-label", label); box.prepend(made); };
  new ResizeObserver(([entry]) => { const now = Math.floor(entry.contentRect.width); if (now !== width) { width = now; again(); } }).observe(box);
  plots.push(() => { const now = Math.floor(box.clientWidth); if (now && now !== width) { width = now; again(); } });
  return {box, again};
}
